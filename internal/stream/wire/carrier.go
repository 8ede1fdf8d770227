// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// CapabilityMux names the mux in Hello and Welcome, with its version
// (docs/reference/mux.md). There is no other: a peer without it is refused.
const CapabilityMux = "mux/1"

// CapabilityChoice says that an agent lets the hub choose among the addresses of
// a name before it dials (DialRequest.ask).
const CapabilityChoice = "choice/1"

// CheckConnections judges the setting connections, which hub and agent share, and
// gives the number that counts: the most if it is left out.
func CheckConnections(connections *int, add func(path, format string, args ...any)) int {
	if connections == nil {
		return limit.Connections
	}
	if *connections < 1 || *connections > limit.Connections { // 0 may have been meant as none, or as no bound
		add("connections", "%d is not 1 to %d; leave it out for %d", *connections, limit.Connections, limit.Connections)
	}
	return *connections
}

// Offer is what an agent names in Hello.
func Offer() []string { return []string{CapabilityMux, CapabilityChoice} }

// Choose is what a hub takes of what an agent offers.
func Choose(offered []string) (taken []string, f *fault.Fault) {
	if !slices.Contains(offered, CapabilityMux) {
		return nil, fault.New(fault.CodeVersion, "the agent does not offer the mux of this hub").
			Whyf("the hub speaks %s", CapabilityMux).
			Hint("bring the agent to the release of the hub")
	}
	for _, c := range Offer() {
		if slices.Contains(offered, c) {
			taken = append(taken, c)
		}
	}
	return taken, nil
}

// CheckTaken judges a hub's answer to the offer of an agent.
func CheckTaken(taken []string) *fault.Fault {
	if slices.Contains(taken, CapabilityMux) {
		return nil
	}
	return fault.New(fault.CodeVersion, "the hub does not take the mux of this agent").
		Whyf("the agent speaks %s", CapabilityMux).
		Hint("bring the hub to the release of the agent")
}
