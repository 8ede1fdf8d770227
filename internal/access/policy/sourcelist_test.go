// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
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
	names := []string{"", "api.c1.example", "c1.example", "other.example"}
	destinations := []string{"*", "*:443", "api.c1.example", "*.c1.example", "api.c1.example:8443", "other.example:1-500"}
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
			Port: rapid.SampledFrom([]uint16{443, 8132, 8443}).Draw(t, "port"),
		}
		protected := rapid.Bool().Draw(t, "protected")
		list := rules.Sources(way, protected)
		for _, text := range addrs {
			q := way.From(netip.MustParseAddr(text))
			q.Protected = protected
			if v := policy.Decide(q, policies...); v.Allow != list.Admits(q.Source) {
				t.Fatalf("%s from %s: Decide says %v (%s), the list %+v", way, text, v.Allow, v.Why(), list)
			}
		}
	})
}

// TestSourcesNameTheirRules: each entry has its rule, group and policy, and equal ones come once.
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
			entry("192.0.2.7/32", "office", "", 0),
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
