// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// where says what becomes of a packet that this machine sends: the peer, lost, own or clear.
func where(in topology.Input, to string) string {
	s, peers, _ := topology.Plan(in)
	w := topology.Explain(s, peers, netip.MustParseAddr(to))
	switch {
	case w.ToPeer && w.Mark != 0:
		return w.Peer.ID
	case w.Mark != 0 && w.Routed:
		return "lost"
	case strings.HasPrefix(w.Set, "own"):
		return "own"
	}
	return "clear"
}

func TestRangesOfWhomNothingIsHeard(t *testing.T) {
	gone := func(ranges ...string) func(*topology.Input) {
		return func(in *topology.Input) {
			in.Closed = append(in.Closed, topology.Closed{ID: "m9", Node: "node9", Ranges: prefixes(ranges...)})
		}
	}
	both := func(fs ...func(*topology.Input)) func(*topology.Input) {
		return func(in *topology.Input) {
			for _, f := range fs {
				f(in)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*topology.Input)
		to     string
		want   string
	}{
		"nobody has had it":             {func(*topology.Input) {}, "10.50.0.1", "clear"},
		"it is lost":                    {gone("10.50.0.0/16"), "10.50.0.1", "lost"},
		"of IPv6 too":                   {gone("fd50::/64"), "fd50::1", "lost"},
		"an address beside it is not":   {gone("10.50.0.0/16"), "10.51.0.1", "clear"},
		"another member has it":         {gone("10.244.2.0/24"), "10.244.2.7", "m2"},
		"another one has the wider":     {gone("10.97.3.0/24"), "10.97.3.1", "m2"},
		"another one has a part of it":  {gone("10.244.0.0/16"), "10.244.3.7", "m3"},
		"and the rest is lost":          {gone("10.244.0.0/16"), "10.244.9.7", "lost"},
		"what is ours stays ours":       {gone("10.244.1.0/24"), "10.244.1.7", "own"},
		"nobody is cut off by it":       {gone("192.0.2.0/24"), "192.0.2.2", "clear"},
		"nor this machine's resolver":   {gone("192.0.2.53/32"), "192.0.2.53", "clear"},
		"nor anybody by the whole":      {gone("0.0.0.0/0"), "192.0.2.9", "clear"},
		"what is not accepted here":     {gone("198.19.0.0/16"), "198.19.0.1", "clear"},
		"with bypass it goes in clear":  {both(gone("10.50.0.0/16"), func(in *topology.Input) { in.Options.Bypass = true }), "10.50.0.1", "clear"},
		"what this node excludes":       {both(gone("10.50.0.0/16"), func(in *topology.Input) { in.Options.Exclude = prefixes("10.50.1.0/24") }), "10.50.1.1", "clear"},
		"what the member had excluded":  {both(gone("10.50.0.0/16"), func(in *topology.Input) { in.Closed[0].Excluded = prefixes("10.50.1.0/24") }), "10.50.1.1", "clear"},
		"a hub stays to be reached":     {both(gone("10.50.0.0/16"), hub("10.50.0.1")), "10.50.0.1", "clear"},
		"a member's own is never given": {gone("192.0.2.2/32"), "192.0.2.2", "clear"},
	} {
		in := three()
		c.change(&in)
		if got := where(in, c.to); got != c.want {
			t.Errorf("%s: %s is %s, want %s", name, c.to, got, c.want)
		}
	}
}

// TestClosedIsNobodysPeer: what is closed gives nobody a tunnel, no source and no problem.
func TestClosedIsNobodysPeer(t *testing.T) {
	in := three()
	_, peers, problems := topology.Plan(in)
	in.Closed = []topology.Closed{{ID: "m0", Node: "node0", Ranges: prefixes("10.50.0.0/16", "10.244.0.0/16", "192.0.2.0/24")}}
	state, more, told := topology.Plan(in)
	if len(more) != len(peers) || !slices.EqualFunc(peers, more, func(a, b topology.Peer) bool { return slices.Equal(a.Allowed, b.Allowed) }) {
		t.Errorf("the peers are %+v, and were %+v", more, peers)
	}
	if !slices.Equal(problems, told) {
		t.Errorf("the problems are %v, and were %v", told, problems)
	}
	for to, closed := range map[string]bool{"10.50.0.1": true, "10.244.7.1": true, "10.244.2.1": false, "10.244.1.1": false, "192.0.2.77": false} {
		about := topology.Explain(state, more, netip.MustParseAddr(to)).About(in.Closed, told)
		if is := len(about) == 1 && strings.Contains(about[0], "closed: it was in a range of node0 (m0)"); is != closed || !is && len(about) > 0 {
			t.Errorf("of %s is told %q", to, about)
		}
	}
}

// TestAnotherEngineIsClosed: no tunnel leads to a peer with another engine. Its ranges stay closed, with bypass too:
// nothing has failed that would pass.
func TestAnotherEngineIsClosed(t *testing.T) {
	for _, c := range []struct {
		own, peer member.Engine
		down      bool
		want      string
	}{
		{"", member.WireGuard, true, "clear"}, {"", member.WireGuard, false, "m2"}, {member.IPsec, member.IPsec, true, "clear"},
		{"", member.IPsec, true, "m2"}, {member.IPsec, "", true, "m2"},
	} {
		in := three()
		in.Options.Bypass, in.Self.Engine, in.Members[0].Engine, in.Members[0].Pin = true, c.own, c.peer, member.Pin{7}
		in.Health = map[string]topology.Health{"m2": {Down: c.down}}
		if got := where(in, "10.244.2.1"); got != c.want {
			t.Errorf("from %v to %v, down %v: it goes to %s, want %s", c.own, c.peer, c.down, got, c.want)
		}
		if _, peers, _ := topology.Plan(in); peers[0].Engine != c.peer || peers[0].Pin != in.Members[0].Pin || !peers[1].Pin.IsZero() {
			t.Errorf("the peers are %+v", peers)
		}
	}
}

// hub makes an address one of a hub.
func hub(addr string) func(*topology.Input) {
	return func(in *topology.Input) {
		in.Local.Services = append(in.Local.Services, topology.Service{Addr: netip.MustParseAddr(addr), What: "the hub " + addr + ":443"})
	}
}

// TestServicesStayOutside: an address that an operator has written down is reached without
// the mesh, whoever has a range around it; the rest of that is routed.
func TestServicesStayOutside(t *testing.T) {
	for name, c := range map[string]struct {
		hub, to, want, told string
	}{
		"within a peer's range":    {"10.244.2.9", "10.244.2.9", "clear", "10.244.2.9/32"},
		"the address beside it":    {"10.244.2.9", "10.244.2.8", "m2", "10.244.2.9/32"},
		"of IPv6":                  {"fd10:2::9", "fd10:2::9", "clear", "fd10:2::9/128"},
		"mapped":                   {"::ffff:10.244.2.9", "10.244.2.9", "clear", "10.244.2.9/32"},
		"in nobody's range":        {"198.51.100.1", "198.51.100.1", "clear", ""},
		"within this node's range": {"10.244.1.9", "10.244.1.9", "own", ""},
	} {
		in := three()
		hub(c.hub)(&in)
		if got := where(in, c.to); got != c.want {
			t.Errorf("%s: %s is %s, want %s", name, c.to, got, c.want)
		}
		state, peers, problems := topology.Plan(in)
		told := ""
		for _, p := range problems {
			if strings.Contains(p.Why, "the hub") {
				told = p.Range.String()
				if about := topology.Explain(state, peers, p.Range.Addr()).About(nil, problems); len(about) == 0 || !strings.Contains(about[0], "is reached without the mesh") {
					t.Errorf("%s: explained with %q", name, about)
				}
			}
		}
		if told != c.told {
			t.Errorf("%s: told of %q, want %q", name, told, c.told)
		}
		if _, has := peers.Of(netip.MustParseAddr(c.to)); has != (c.want == "m2") {
			t.Errorf("%s: a tunnel takes it: %v", name, has)
		}
	}
}

// TestOwnUnderlay: what covers the address by which this machine reaches the others, or
// its gateway, is not announced, and told; another link of it may be.
func TestOwnUnderlay(t *testing.T) {
	for _, c := range []struct{ own, refused string }{
		{"192.0.2.0/24", "covers 192.0.2.1, the address by which this machine reaches the others"},
		{"192.0.2.1/32", "covers 192.0.2.1"},
		{"192.0.2.128/25", "covers 192.0.2.254, a default gateway"},
		{"10.244.1.0/24", ""},
		{"192.0.2.64/26", ""},
		{"0.0.0.0/0", "the default route"},
	} {
		in := three()
		in.Self.Addresses, in.Self.Ranges = nil, prefixes(c.own)
		in.Local.Underlay = addrs("192.0.2.1")
		in.Members = nil
		_, _, problems := topology.Plan(in)
		if c.refused == "" && len(problems) > 0 || c.refused != "" && (len(problems) != 1 || problems[0].Kind != topology.Refused || !strings.Contains(problems[0].Why, c.refused)) {
			t.Errorf("%s: %v, want %q", c.own, problems, c.refused)
		}
		withheld := len(in.Local.Withheld(in.Self.Ranges)) == 1
		if want := c.refused != ""; withheld != want {
			t.Errorf("%s is withheld: %v", c.own, withheld)
		}
		if got := where(in, "192.0.2.1"); c.refused != "" && got == "own" {
			t.Errorf("%s is this node's all the same", c.own)
		}
	}
}

func TestTaken(t *testing.T) {
	for name, c := range map[string]struct {
		own, before []string
		change      func(*topology.Input)
		want        int
	}{
		"nobody has it":        {[]string{"10.7.0.0/16"}, nil, nil, 0},
		"another has it":       {[]string{"10.244.2.0/24", "10.7.0.0/16"}, nil, nil, 1},
		"we had it before":     {[]string{"10.244.2.0/24"}, []string{"10.244.2.0/24"}, nil, 0},
		"a part of another's":  {[]string{"10.244.2.0/25"}, nil, nil, 0},
		"around another's":     {[]string{"10.244.0.0/16"}, nil, nil, 0},
		"the other has no key": {[]string{"10.244.2.0/24"}, nil, func(in *topology.Input) { in.Members[0].Key = member.Key{} }, 0},
		"the other excludes it": {[]string{"10.244.2.0/24"}, nil, func(in *topology.Input) {
			in.Members[0].Excluded = prefixes("10.244.2.0/24")
		}, 0},
		"it is ourselves": {[]string{"10.244.1.0/24"}, nil, func(in *topology.Input) { in.Members = append(in.Members, in.Self) }, 0},
	} {
		in := three()
		if in.Self.Ranges = prefixes(c.own...); c.change != nil {
			c.change(&in)
		}
		if got := topology.Taken(in, prefixes(c.before...)); len(got) != c.want || c.want > 0 && (got[0].Range != in.Self.Ranges[0] || !strings.Contains(got[0].Why, "node2 (m2)")) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
