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

func edgeText(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	p, findings := policy.Read("p.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"+rules), nil)
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

func TestEdgeChanges(t *testing.T) {
	const office = `- {name: office, clusters: [c1], flows: [api], sources: [203.0.113.0/24], allow: ["*"]}` + "\n"
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"nothing": {office, office, nil},
		"a wider range": {office, strings.Replace(office, "203.0.113.0/24", "203.0.112.0/23", 1),
			[]string{"c1/api denied allowed 203.0.112.0/24"}},
		"another family": {office, strings.Replace(office, "203.0.113.0/24", `203.0.113.0/24, "2001:db8::/32"`, 1),
			[]string{"c1/api denied allowed 2001:db8::/32"}},
		"a deny rule": {office, office + `- {name: no, clusters: ["c*"], flows: [api], sources: [203.0.113.7], deny: ["*"]}` + "\n",
			[]string{"c*/api allowed denied 0.0.0.0-203.0.113.6 203.0.113.8-255.255.255.255 ::/0", "c*/api allowed denied 203.0.113.7", "c1/api allowed denied 203.0.113.7"}},
		"protection": {office, office + `- {name: vpn, clusters: [c1], flows: [vpn], sources: [10.0.0.0/8], allow: ["*"]}` + "\n",
			[]string{"c1/vpn allowed denied 0.0.0.0-9.255.255.255 11.0.0.0-255.255.255.255 ::/0"}},
		"a prefix name": {office, strings.Replace(office, "[c1]", "[c1, c1-x]", 1),
			[]string{"c1-x/api allowed denied 0.0.0.0-203.0.112.255 203.0.114.0-255.255.255.255 ::/0"}},
		"a name and a port": {office, office + `- {name: name, clusters: [c1], flows: [api], sources: [192.0.2.1], allow: ["a.example:8443"]}` + "\n",
			[]string{"c1/api a.example:8443 denied allowed 192.0.2.1"}},
		"all rules gone": {office, `- {name: dials, clusters: [c1], allow: ["*"]}` + "\n",
			[]string{"c1/api denied allowed 0.0.0.0-203.0.112.255 203.0.114.0-255.255.255.255 ::/0"}},
		"the same by other rules": {office, `- {name: a, clusters: [c1], flows: [api], sources: [203.0.113.0/25], allow: ["*"]}
- {name: b, clusters: [c1], flows: [api], sources: [203.0.113.128/25], allow: ["*"]}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			word := map[bool]string{true: "allowed", false: "denied"}
			for _, x := range policy.EdgeChanges([]*policy.Policy{edgeText(t, c.before)}, []*policy.Policy{edgeText(t, c.after)}, nil,
				func(string) bool { return false }) {
				got = append(got, fmt.Sprint(x.EdgeWay, " ", word[x.Before.Allow], " ", word[x.After.Allow], " ", strings.Trim(fmt.Sprint(x.Sources), "[]")))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	// Where the tenant is protected, rules that come protect nothing more.
	after := []*policy.Policy{edgeText(t, office)}
	got := policy.EdgeChanges(nil, after, []string{"c2"}, func(string) bool { return true })
	if len(got) != 1 || fmt.Sprint(got[0].Sources) != "[203.0.113.0/24]" || !got[0].After.Allow {
		t.Errorf("%+v", got)
	}
}

// All sources of a span get the same verdict, and a guard is there where the policy protects.
func TestSpansAgainstDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]policy.Rule, rapid.IntRange(1, 6).Draw(t, "rules"))
		for i := range rules {
			r := drawRule(t, i)
			r.Caller, r.UID, r.Egress = nil, nil, nil
			r.Flow = someOf(t, "flows", policy.FlowAPI, policy.FlowVPN, "*")
			r.Destination = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*", "*:443", "a.example", "*.b.example:443"}),
				1, 3, rapid.ID[string]).Draw(t, "names")
			rules[i] = r
		}
		p := compiled(t, rules)
		e := policy.NewEdgeRules(p)
		source := netip.MustParseAddr(rapid.SampledFrom([]string{"203.0.113.7", "2001:db8::1", "10.0.0.1", "0.0.0.0", "ffff::"}).Draw(t, "source"))
		for _, cluster := range e.Clusters("c1", "d2") {
			if e.Guard(cluster, policy.FlowAPI) != "" != p.Protects(cluster, policy.FlowAPI) {
				t.Fatalf("%s: guard %q of %+v", cluster, e.Guard(cluster, policy.FlowAPI), rules)
			}
			for _, w := range e.Ways(cluster, policy.FlowAPI) {
				found := 0
				for _, s := range e.Spans(cluster, policy.FlowAPI) {
					if s.Contains(source) {
						found++
						if x, y := e.Decide(w, s.From, false), e.Decide(w, source, false); x.Allow != y.Allow || x.Rule != y.Rule {
							t.Fatalf("%v from %v and %v: %s; %s", w, s.From, source, x.Why(), y.Why())
						}
					}
				}
				if found != 1 {
					t.Fatalf("%v is in %d spans", source, found)
				}
			}
		}
	})
}
