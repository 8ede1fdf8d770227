// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestSourcesAgreeWithDecide: for random rules and requests, a source list admits whom Decide allows.
func TestSourcesAgreeWithDecide(t *testing.T) {
	ranges := []string{"0.0.0.0/0", "::/0", "192.0.2.0/24", "192.0.2.64/26", "192.0.2.65", "2001:db8::/32",
		"2001:db8:7::/48", "2001:db8:7::1", "64:ff9b::/96", "@l", "@long"}
	var long []string
	for i := range 40 {
		long = append(long, fmt.Sprintf("198.51.%d.0/24", i))
	}
	lists := []policy.List{
		{Name: "l", Ranges: []string{"203.0.113.0/25", "2001:db8:9::/64"}}, {Name: "long", Ranges: long},
	}
	addrs := []string{"192.0.2.1", "192.0.2.64", "192.0.2.65", "203.0.113.1", "203.0.113.200", "198.51.7.1",
		"198.51.77.1", "2001:db8::1", "2001:db8:7::1", "2001:db8:7::2", "2001:db8:9::1", "64:ff9b::c000:241", "::ffff:192.0.2.65", "10.0.0.1"}
	clusters := []string{"c1", "c2", "c11", "c*", "*", "*1"}
	flows := []string{policy.FlowAPI, policy.FlowVPN, policy.FlowProxy, policy.FlowIngress}
	exact := []string{"api.c1.example", "c1.example", "other.example", "a-c1.other.example", "-c1.other.example"}
	names := append([]string{"", "*", "*.c1.example", "*-c1.other.example", "*.example"}, exact...)
	destinations := []string{"*", "*:443", "api.c1.example", "*.c1.example", "api.c1.example:8443", "other.example:1-500",
		"*.example", "*.other.example", "*.api.c1.example", "a-c1.other.example"}
	some := func(t *rapid.T, of []string, least int, label string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), least, 3, rapid.ID[string]).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		var policies []*policy.Policy
		n := 0
		for range rapid.IntRange(1, 3).Draw(t, "policies") {
			var rules []policy.Rule
			for range rapid.IntRange(0, 4).Draw(t, "rules") {
				n++
				r := policy.Rule{Name: fmt.Sprint("r", n), Flow: some(t, append(flows, "*"), 1, "flows"),
					Destination: some(t, destinations, 1, "destinations"), Deny: rapid.Bool().Draw(t, "deny")}
				if slices.Contains(r.Flow, "*") && rapid.Bool().Draw(t, "dials") {
					r.Flow = nil // about dials: not for an edge
				}
				if rapid.Bool().Draw(t, "named") {
					r.Cluster = some(t, clusters, 1, "clusters")
				}
				if rapid.IntRange(0, 3).Draw(t, "sources") > 0 {
					r.Source = some(t, ranges, 1, "ranges")
				}
				if rapid.Bool().Draw(t, "grouped") {
					r.Group = "platform"
				}
				rules = append(rules, r)
			}
			p, problems := policy.Compile(rules, lists)
			if p == nil {
				t.Fatal(problems)
			}
			policies = append(policies, p)
		}
		rules := policy.NewEdgeRules(policies...)
		way := policy.EdgeWay{
			Cluster: rapid.SampledFrom([]string{"c1", "c2", "c11", "d"}).Draw(t, "cluster"),
			Flow:    rapid.SampledFrom(flows).Draw(t, "flow"), Name: rapid.SampledFrom(names).Draw(t, "name"),
			Port: rapid.SampledFrom([]uint16{0, 443, 8132, 8443}).Draw(t, "port"),
		}
		protected := rapid.Bool().Draw(t, "protected")
		list := rules.Sources(way, protected)
		partial := len(rules.Partials(way)) > 0
		for _, text := range addrs {
			for _, name := range exact {
				if end, many := strings.CutPrefix(way.Name, "*"); way.Name != name && way.Name != "" &&
					(!many || !strings.HasSuffix(name, end) || name == end) {
					continue
				}
				for _, port := range []uint16{443, 8132, 8443} {
					if way.Port != port && way.Port != 0 {
						continue
					}
					q := policy.Request{Cluster: way.Cluster, Flow: way.Flow, Name: name, Port: port,
						Source: netip.MustParseAddr(text), Protected: protected}
					v := policy.Decide(q, policies...)
					if admits := list.Admits(q.Source); admits && !v.Allow || !partial && v.Allow != admits {
						t.Fatalf("%s (partly %v) asked for %s:%d from %s: Decide says %v (%s), the list %+v", way, partial,
							name, port, text, v.Allow, v.Why(), list)
					}
				}
			}
		}
		for _, l := range [][]policy.SourceEntry{list.Allow, list.Deny} {
			for i := range l {
				if i > 0 && (!l[i-1].Prefix.Addr().Less(l[i].Prefix.Addr()) || l[i-1].Prefix.Overlaps(l[i].Prefix)) {
					t.Fatalf("not sorted, or not the shortest: %+v", l)
				}
			}
		}
	})
}

// TestSourcesNameTheirRules: each entry has its rule, group and policy, and none is covered by another.
func TestSourcesNameTheirRules(t *testing.T) {
	flow, everything := []string{policy.FlowAPI}, []string{"*"}
	compile := func(rules ...policy.Rule) *policy.Policy {
		p, problems := policy.Compile(rules, nil)
		if p == nil {
			t.Fatal(problems)
		}
		return p
	}
	rules := policy.NewEdgeRules(
		compile(policy.Rule{Name: "office", Cluster: []string{"c1"}, Flow: flow,
			Source: []string{"192.0.2.0/24", "192.0.2.7"}, Destination: []string{"*", "api.c1.example"}},
			policy.Rule{Name: "lost", Cluster: []string{"c1"}, Flow: flow, Source: []string{"192.0.2.9"}, Deny: true,
				Destination: everything}),
		compile(policy.Rule{Name: "nodes", Group: "platform", Flow: flow, Source: []string{"10.0.0.0/8"},
			Destination: everything}),
	)
	entry := func(prefix, rule, group string, of int) policy.SourceEntry {
		return policy.SourceEntry{Prefix: netip.MustParsePrefix(prefix), Rule: rule, Group: group, Policy: of}
	}
	got := rules.Sources(policy.EdgeWay{Cluster: "c1", Flow: policy.FlowAPI, Name: "api.c1.example", Port: 443}, false)
	want := policy.SourceList{
		Protected: true,
		Allow: []policy.SourceEntry{
			entry("10.0.0.0/8", "nodes", "platform", 1), entry("192.0.2.0/24", "office", "", 0),
		},
		Deny: []policy.SourceEntry{entry("192.0.2.9/32", "lost", "", 0)},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := rules.Sources(policy.EdgeWay{Cluster: "c2", Flow: policy.FlowAPI, Port: 443}, false); got.Protected {
		t.Errorf("a cluster that no rule names is protected: %+v", got)
	}
}

// TestShortLists: what a list leaves out and joins, and whose an entry stays.
func TestShortLists(t *testing.T) {
	rule := func(name string, deny bool, sources ...string) policy.Rule {
		return policy.Rule{Name: name, Cluster: []string{"c1"}, Flow: []string{"api"}, Deny: deny, Source: sources,
			Destination: []string{"*"}}
	}
	for name, c := range map[string]struct {
		rules []policy.Rule
		allow []string
	}{
		"covered by another rule": {[]policy.Rule{rule("a", false, "192.0.2.7"), rule("b", false, "192.0.2.0/24")}, []string{"b 192.0.2.0/24"}},
		"the same of two rules":   {[]policy.Rule{rule("b", false, "192.0.2.7"), rule("a", false, "192.0.2.7/32")}, []string{"a 192.0.2.7/32"}},
		"halves of one rule":      {[]policy.Rule{rule("a", false, "192.0.2.128/25", "192.0.2.0/26", "192.0.2.64/26")}, []string{"a 192.0.2.0/24"}},
		"halves of two rules":     {[]policy.Rule{rule("a", false, "192.0.2.0/25"), rule("b", false, "192.0.2.128/25")}, []string{"a 192.0.2.0/25", "b 192.0.2.128/25"}},
		"neighbours, no halves":   {[]policy.Rule{rule("a", false, "192.0.2.64/26", "192.0.2.128/26")}, []string{"a 192.0.2.64/26", "a 192.0.2.128/26"}},
		"halves of everything":    {[]policy.Rule{rule("a", false, "0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")}, []string{"a 0.0.0.0/0", "a ::/0"}},
		"no sources":              {[]policy.Rule{rule("a", false)}, []string{"a 0.0.0.0/0", "a ::/0"}},
		"beside a deny rule":      {[]policy.Rule{rule("a", false, "192.0.2.0/25"), rule("d", true, "192.0.2.0/24")}, []string{"a 192.0.2.0/25"}},
	} {
		p, problems := policy.Compile(c.rules, nil)
		if p == nil {
			t.Fatal(problems)
		}
		var got []string
		for _, e := range policy.NewEdgeRules(p).Sources(policy.EdgeWay{Cluster: "c1", Flow: "api", Name: "x.example", Port: 443}, false).Allow {
			got = append(got, e.Rule+" "+e.Prefix.String())
		}
		if !slices.Equal(got, c.allow) {
			t.Errorf("%s: %q, want %q", name, got, c.allow)
		}
	}
}

// TestPartials: a rule about a part of a way is named, and its list is on the safe side.
func TestPartials(t *testing.T) {
	p := func(deny bool, destinations ...string) *policy.Policy {
		p, problems := policy.Compile([]policy.Rule{
			{Name: "first", Flow: []string{"api"}, Source: []string{"10.0.0.1"}, Destination: []string{"*"}},
			{Name: "r", Cluster: []string{"c1"}, Flow: []string{"api"}, Deny: deny, Source: []string{"192.0.2.0/24"}, Destination: destinations},
		}, nil)
		if p == nil {
			t.Fatal(problems)
		}
		return p
	}
	for _, c := range []struct {
		name string
		port uint16
		to   []string
		path string // of the partial; empty: none
	}{
		{"a.example", 443, []string{"a.example"}, ""},
		{"a.example", 443, []string{"a.example:443"}, ""},
		{"a.example", 443, []string{"b.example", "*.example:80"}, ""},
		{"a.example", 0, []string{"a.example:443"}, "[0]"},
		{"a.example", 0, []string{"b.example:443"}, ""},
		{"a.example", 0, []string{"*:443", "a.example"}, ""},
		{"", 443, []string{"a.example"}, "[0]"},
		{"*-s.example", 443, []string{"*.example"}, ""},
		{"*-s.example", 443, []string{"x.example", "p-s.example"}, "[1]"},
		{"*.s.example", 443, []string{"*.s.example"}, ""},
		{"*.s.example", 443, []string{"s.example"}, ""},
		{"*.s.example", 443, []string{"*.x.s.example"}, "[0]"},
	} {
		for field, deny := range map[string]bool{"allow": false, "deny": true} {
			w := policy.EdgeWay{Cluster: "c1", Flow: "api", Name: c.name, Port: c.port}
			rules := policy.NewEdgeRules(nil, p(deny, c.to...))
			got, list := rules.Partials(w), rules.Sources(w, false)
			if c.path == "" {
				if len(got) != 0 {
					t.Errorf("%v of %v: %+v", c.to, w, got)
				}
				continue
			}
			if len(got) != 1 || got[0].Path != "rules[1]."+field+c.path || got[0].Policy != 1 || got[0].Rule != "r" || got[0].Index != 1 {
				t.Errorf("%v of %v: %+v", c.to, w, got)
			}
			if a := netip.MustParseAddr("192.0.2.1"); !list.Protected || list.Admits(a) || len(list.Deny) != map[bool]int{true: 1}[deny] {
				t.Errorf("%v of %v: %+v", c.to, w, list)
			}
		}
	}
}
