// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"os"
	"strconv"
	"strings"
)

// Error is a reason for which the kernel has dropped packets of IPsec, anybody's in this network namespace.
type Error struct {
	Name    string // as in /proc/net/xfrm_stat
	Means   string // for people
	Packets uint64
}

// ErrorNames are those of all errors that have a meaning here.
func ErrorNames() []string {
	var out []string
	for _, e := range errorMeanings() {
		out = append(out, e.Name)
	}
	return out
}

// Errors are those that the kernel has counted, in the order of ErrorNames. One that this kernel does not count has no
// packets.
func Errors() ([]Error, error) {
	text, err := os.ReadFile("/proc/thread-self/net/xfrm_stat") // the network namespace is the thread's
	if err != nil {
		return nil, failed("reading the errors of IPsec", err)
	}
	return countErrors(string(text)), nil
}

func countErrors(text string) []Error {
	counted := map[string]uint64{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			counted[f[0]], _ = strconv.ParseUint(f[1], 10, 64) // 0 if it is no number
		}
	}
	out := errorMeanings()
	for i := range out {
		out[i].Packets = counted[out[i].Name]
	}
	return out
}

// NoStates is the name of the error of packets by keys that this node does not have.
const NoStates = "XfrmInNoStates"

// errorMeanings are what the kernel counts (its Documentation/networking/xfrm_proc.rst), and what that says here.
func errorMeanings() []Error {
	const damaged = "a packet is damaged, or is not ESP as it should be"
	return []Error{
		{Name: "XfrmInError", Means: damaged},
		{Name: "XfrmInBufferError", Means: "the kernel had no memory"},
		{Name: "XfrmInHdrError", Means: damaged},
		{Name: NoStates, Means: "a packet came by keys that this node does not have: its sender has older ones"},
		{Name: "XfrmInStateProtoError", Means: "a packet was forged or damaged, or both nodes have different keys"},
		{Name: "XfrmInStateModeError", Means: damaged},
		{Name: "XfrmInStateSeqError", Means: "a packet came twice, or more than 1,024 packets late"},
		{Name: "XfrmInStateExpired", Means: "a packet came by keys that have ended"},
		{Name: "XfrmInStateMismatch", Means: "a packet came in UDP and not by ESP alone, or the other way round"},
		{Name: "XfrmInStateInvalid", Means: "a packet came by keys that are being removed"},
		{Name: "XfrmInTmplMismatch", Means: "a packet came from a range that is not its sender's"},
		{Name: "XfrmInNoPols", Means: "a packet came for which there is no policy"},
		{Name: "XfrmInPolBlock", Means: "a packet came from a range that no peer has"},
		{Name: "XfrmInPolError", Means: "the kernel could not look up a policy"},
		{Name: "XfrmOutError", Means: "the kernel could not encrypt a packet"},
		{Name: "XfrmOutBundleGenError", Means: "the kernel could not find the way of an encrypted packet"},
		{Name: "XfrmOutBundleCheckError", Means: "the way of an encrypted packet has just changed"},
		{Name: "XfrmOutNoStates", Means: "a packet was to leave, and there were no keys yet"},
		{Name: "XfrmOutStateProtoError", Means: "the kernel could not encrypt a packet"},
		{Name: "XfrmOutStateModeError", Means: "a packet is larger than the path takes, or has no room for ESP"},
		{Name: "XfrmOutStateSeqError", Means: "keys have no sequence number left"},
		{Name: "XfrmOutStateExpired", Means: "a packet was to leave by keys that have ended"},
		{Name: "XfrmOutPolBlock", Means: "a packet was to leave for a range whose peer has no path or no keys"},
		{Name: "XfrmOutPolDead", Means: "a policy was being removed"},
		{Name: "XfrmOutPolError", Means: "the kernel could not look up a policy"},
		{Name: "XfrmFwdHdrError", Means: "a packet that was to be passed on is damaged"},
		{Name: "XfrmOutStateInvalid", Means: "a packet was to leave by keys that are being removed"},
		{Name: "XfrmAcquireError", Means: "the kernel could not ask for keys"},
	}
}
