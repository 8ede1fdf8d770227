// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// shown is what policies do with packets to a range and from it, without those that block everything.
func shown(all map[policy]meaning) string {
	var out []string
	for p, m := range all {
		if m.priority == blocked {
			continue
		}
		text := fmt.Sprintf("%d %s: peer %d", p.dir, p.far, m.peer)
		if m.local.IsValid() {
			text += fmt.Sprintf(" %s>%s", m.local, m.remote)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestPolicies(t *testing.T) {
	local, remote := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.2")
	for name, c := range map[string]struct {
		peers []Peer
		want  string
	}{
		"nobody": {nil, ""},
		"one": {[]Peer{{ID: 7, Local: local, Remote: remote, Ranges: prefixes("10.1.0.9/24")}},
			"0 10.1.0.0/24: peer 7; 1 10.1.0.0/24: peer 7 192.0.2.1>192.0.2.2; 2 10.1.0.0/24: peer 7"},
		"without a path nothing leaves": {[]Peer{{ID: 7, Ranges: prefixes("10.1.0.0/24")}},
			"0 10.1.0.0/24: peer 7; 1 10.1.0.0/24: peer 0; 2 10.1.0.0/24: peer 7"},
		"a range of two is the first one's": {[]Peer{{ID: 7, Ranges: prefixes("fd00::/64")}, {ID: 8, Local: local, Remote: remote,
			Ranges: prefixes("fd00::/64")}}, "0 fd00::/64: peer 7; 1 fd00::/64: peer 0; 2 fd00::/64: peer 7"},
	} {
		all := policies(c.peers)
		if got := shown(all); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for _, dir := range []direction{in, out, forward} {
			for _, r := range everything {
				if m := all[policy{dir, r}]; m != (meaning{priority: blocked}) {
					t.Errorf("%s: what no policy names in direction %d meets %+v", name, dir, m)
				}
			}
		}
	}
}

// TestTheLongerRangeCounts: the kernel takes the policy of the lowest priority, and the one that blocks last.
func TestTheLongerRangeCounts(t *testing.T) {
	all := policies([]Peer{{ID: 1, Ranges: prefixes("10.0.0.0/8", "::/1")}, {ID: 2, Ranges: prefixes("10.1.0.0/16", "10.1.2.3/32")}})
	last := uint32(0)
	for _, r := range prefixes("10.1.2.3/32", "10.1.0.0/16", "10.0.0.0/8", "::/1", "0.0.0.0/0") {
		m := all[policy{in, r}]
		if m.priority <= last {
			t.Errorf("%s has priority %#x, that of a longer one is %#x", r, m.priority, last)
		}
		last = m.priority
	}
}

// TestChanges: whatever was there, after the changes there is what is wanted; and on the way no range is another peer's
// than before or after.
func TestChanges(t *testing.T) {
	pool := prefixes("10.1.0.0/16", "10.1.2.0/24", "fd00::/64", "fd00::1/128")
	addrs := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) map[policy]meaning {
			var peers []Peer
			for id := range uint32(3) {
				peers = append(peers, Peer{ID: id + 1, Local: rapid.SampledFrom(addrs).Draw(t, name),
					Remote: rapid.SampledFrom(addrs).Draw(t, name), Ranges: rapid.SliceOf(rapid.SampledFrom(pool)).Draw(t, name)})
			}
			return policies(peers)
		}
		have, want := draw("have"), draw("want")
		now := map[policy]meaning{}
		for p, m := range have {
			now[p] = m
		}
		for _, c := range changes(have, want) {
			if c.gone {
				delete(now, c.policy)
			} else {
				now[c.policy] = c.meaning
			}
			for p, m := range now {
				if m != have[p] && m != want[p] {
					t.Fatalf("%+v means %+v on the way", p, m)
				}
			}
		}
		if fmt.Sprint(now) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", now, want)
		}
		if again := changes(now, want); len(again) > 0 {
			t.Fatalf("then there is more to do: %v", again)
		}
	})
}
