// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/link/check"
)

func at(s string) netip.Addr { return netip.MustParseAddr(s) }

// peer is one through which everything passes.
func peer() check.Peer {
	return check.Peer{Cluster: "west", Name: "west.b", State: "direct", Path: "192.0.2.2:51820",
		Echo:  check.Echo{To: at("100.112.0.2"), Answered: true, RTT: 1.5},
		Sizes: []check.Size{{Bytes: 1420, Answered: true}, {Bytes: 1280, Answered: true}},
		Pods:  []check.Echo{{From: at("10.1.1.1"), To: at("100.112.0.2"), Sure: true, Answered: true, RTT: 2}}}
}

func well() check.Measured {
	return check.Measured{Link: "tombolo0", InForce: true, Forwards4: true, Needs4: true, Needs6: false,
		Peers: []check.Peer{peer()},
		Names: []check.Names{{Cluster: "west", Server: at("10.102.0.10"), Echo: check.Echo{Answered: true}}}}
}

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*check.Measured)
		what   string // the one finding that is not well; empty: all is
		state  string
		detail string // a part of it
		next   string
	}{
		"all is well": {func(*check.Measured) {}, "", "", "", ""},
		"no forwarding": {func(m *check.Measured) { m.Forwards4 = false }, check.Forwarding, check.Problem, "off",
			"sysctl -w net.ipv4.ip_forward=1"},
		"no forwarding of IPv6, which nobody needs": {func(m *check.Measured) { m.Forwards6 = false }, "", "", "", ""},
		"none of both": {func(m *check.Measured) { m.Forwards4, m.Needs6 = false, true }, check.Forwarding, check.Problem,
			"off", "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"},
		"the kernel lags": {func(m *check.Measured) { m.InForce, m.Why = false, "refused" }, check.Kernel, check.Problem,
			"refused", "tombolo mesh status"},
		"other NAT": {func(m *check.Measured) { m.Before = []string{"x/y (priority 1)"} }, check.Masquerade, check.Warning,
			"x/y (priority 1)", "priority above 90"},
		"strict, and nothing passes": {func(m *check.Measured) { m.Strict, m.Peers[0].Pods = true, nil }, check.RPFilter,
			check.Warning, "strict on tombolo0", "rp_filter=2"},
		"strict, and packets pass": {func(m *check.Measured) { m.Strict = true }, "", "", "", ""},
		"relayed": {func(m *check.Measured) { m.Peers[0].State, m.Peers[0].Why = "relayed", "UDP is blocked" }, check.Tunnel,
			check.Warning, "UDP is blocked", "netcheck"},
		"down": {func(m *check.Measured) { m.Peers[0].State, m.Peers[0].Echo.Answered = "down", false }, check.Tunnel,
			check.Problem, "down", "netcheck"},
		"up, and silent": {func(m *check.Measured) { m.Peers[0].Echo.Answered = false }, check.Tunnel, check.Problem,
			"direct", "its policy"},
		"no peer": {func(m *check.Measured) { m.Peers[0] = check.Peer{Cluster: "west", Name: "west.b"} }, check.Tunnel,
			check.Problem, "no tunnel", "does not run"},
		"a narrow path": {func(m *check.Measured) { m.Peers[0].Sizes[0].Answered = false }, check.MTU, check.Problem,
			"packets of 1420 bytes are lost, 1280 pass", "mesh.mtu of both nodes to 1280"},
		"a narrow path that is known": {func(m *check.Measured) {
			m.Peers[0].Sizes[0] = check.Size{Bytes: 1420, TooLarge: true}
		}, "", "", "", ""},
		"loss": {func(m *check.Measured) { m.Peers[0].Sizes[1].Answered = false }, check.MTU, check.Warning,
			"an echo of 1280 was lost", "check again"},
		"no size passes": {func(m *check.Measured) { m.Peers[0].Sizes = []check.Size{{Bytes: 1280}} }, check.MTU,
			check.Problem, "packets of 1280 bytes are lost", "may be down"},
		"sources are rewritten": {func(m *check.Measured) { m.Peers[0].Pods[0].Answered = false }, check.Pods, check.Problem,
			"what 10.1.1.1 sends to 100.112.0.2 is not answered", "link explain 10.1.1.1"},
		"nobody may be there": {func(m *check.Measured) {
			m.Peers[0].Pods = []check.Echo{{From: at("10.1.1.1"), To: at("10.2.1.1")}}
		}, check.Pods, check.Unknown, "10.2.1.1", "try a pod"},
		"one of two answers": {func(m *check.Measured) {
			m.Peers[0].Pods = append([]check.Echo{{From: at("10.1.1.1"), To: at("10.2.1.1")}}, m.Peers[0].Pods...)
		}, "", "", "", ""},
		"through a gateway": {func(m *check.Measured) {
			m.Peers = append(m.Peers, check.Peer{Cluster: "west", Name: "west.d", Through: "east.g",
				Pods: []check.Echo{{From: at("10.1.1.1"), To: at("10.2.3.1")}}})
		}, check.Pods, check.Unknown, "through east.g", "try a pod"},
		"names": {func(m *check.Measured) { m.Names[0].Answered, m.Names[0].Why = false, "timeout" }, check.DNS, check.Warning,
			"no answer of 10.102.0.10: timeout", "--dns west=ADDRESS"},
		"no Services": {func(m *check.Measured) { m.Names[0] = check.Names{Cluster: "west"} }, check.DNS, check.Unknown,
			"no range of Services", "kubectl describe tcl west"},
		"more peers": {func(m *check.Measured) { m.Left = 7 }, check.Left, check.Unknown, "7 more", "--cluster"},
		"an object": {func(m *check.Measured) { m.Problems = []string{"the Cluster \"x\" does not count"} }, check.Federation,
			check.Problem, "does not count", "correct the object"},
	} {
		m := well()
		test.change(&m)
		all := check.Judge(m)
		var bad []check.Finding
		for _, f := range all {
			if f.State != check.OK {
				bad = append(bad, f)
			} else if f.Next != "" {
				t.Errorf("%s: %+v: nothing is to be done", name, f)
			}
		}
		switch {
		case test.what == "" && (len(bad) > 0 || check.Worst(all) != check.OK):
			t.Errorf("%s: %+v", name, bad)
		case test.what == "":
		case len(bad) != 1:
			t.Errorf("%s: %+v, want one", name, bad)
		case bad[0].Check != test.what || bad[0].State != test.state || !strings.Contains(bad[0].Detail, test.detail) ||
			!strings.Contains(bad[0].Next, test.next) || check.Worst(all) != test.state:
			t.Errorf("%s: %+v", name, bad[0])
		}
	}
}
