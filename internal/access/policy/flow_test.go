// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const edgePolicy = `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
lists:
- name: seed
  ranges: [10.250.0.0/16, "fd00:10::/64"]
rules:
- name: office
  clusters: [c1]
  flows: [api]
  sources: [203.0.113.0/24, "2001:db8::/32"]
  allow: ["*"]
- name: lost-laptop
  clusters: [c1]
  flows: [api]
  sources: [203.0.113.7]
  deny: ["*"]
- name: vpn
  clusters: ["c*"]
  flows: [vpn, proxy]
  sources: [198.51.100.1]
  allow: ["*"]
- name: seeds
  group: platform
  flows: [api, vpn, proxy, ingress]
  sources: ["@seed"]
  allow: ["*"]
- name: scanner
  flows: ["*"]
  sources: [192.0.2.66]
  deny: ["*"]
- name: dials
  clusters: [c2]
  allow: ["*"]
`

func TestEdgeFlows(t *testing.T) {
	p, findings := policy.Read("p.yaml", []byte(edgePolicy), nil)
	if p == nil {
		t.Fatal(findings)
	}
	for _, c := range []struct {
		to, from, rule, group, why string
		allow                      bool
	}{
		{"c1/api", "203.0.113.9", "office", "", "", true},
		{"c1/api", "::ffff:203.0.113.9", "office", "", "", true},
		{"c1/api", "2001:db8::7", "office", "", "", true},
		{"c1/api", "203.0.113.7", "lost-laptop", "", `203.0.113.7 is denied for c1/api by rule "lost-laptop"`, false},
		{"c1/api", "198.51.100.1", "", "", "no rule allows 198.51.100.1 for c1/api", false},
		{"c1/api", "", "lost-laptop", "", `an unknown address is denied for c1/api by rule "lost-laptop"`, false},
		{"c1/api", "10.250.3.4", "seeds", "platform", `allowed by rule "seeds" of group "platform"`, true},
		{"c1/vpn", "198.51.100.1", "vpn", "", "", true},
		{"c1/vpn", "203.0.113.9", "", "", "", false},
		{"c1/vpn", "fd00:10::1", "seeds", "platform", "", true},
		{"c1/ingress", "203.0.113.9", "", "", "no rule protects c1/ingress", true},
		{"c1/ingress", "192.0.2.66", "scanner", "", "", false},
		{"c2/api", "203.0.113.99", "", "", "no rule protects c2/api", true}, // a rule about dials protects nothing here
		{"c2/proxy", "203.0.113.99", "", "", "", false},
		{"d1/proxy", "203.0.113.99", "", "", "", true},
		{"c1/other", "203.0.113.9", "", "", "", false}, // there is no such flow
	} {
		t.Run(c.to+" from "+c.from, func(t *testing.T) {
			cluster, flow, _ := strings.Cut(c.to, "/")
			q := policy.Request{Cluster: cluster, Flow: flow, Name: "api.example.org", Port: 443}
			if c.from != "" {
				q.Source = netip.MustParseAddr(c.from)
			}
			v := policy.Decide(q, nil, p)
			if v.Allow != c.allow || v.Rule != c.rule || v.Group != c.group || v.Open {
				t.Fatalf("%+v: %s", v, v.Why())
			}
			if c.why != "" && v.Why() != c.why {
				t.Errorf("%s; want %s", v.Why(), c.why)
			}
			if q.Protected = true; policy.Decide(q, p).Allow != (c.allow && v.Rule != "") {
				t.Errorf("where all is protected: %+v", policy.Decide(q, p))
			}
		})
	}
	if v := policy.Decide(policy.Request{Cluster: "c1", Flow: policy.FlowAPI, Protected: true}); v.Allow {
		t.Errorf("without a policy: %+v", v)
	}
	if v := policy.Decide(policy.Request{Cluster: "c1", Addr: netip.MustParseAddr("10.9.9.9"), Port: 443}, p); v.Allow {
		t.Errorf("rules for the edge allow a dial: %+v", v)
	}
}

func TestEdgeRulesThatMeanNothing(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a, flows: [api], callers: [x], allow: ["*"]}`:        "p.yaml:3:",
		`{name: a, flows: [vpn], uids: [0], allow: ["*"]}`:           "an edge does not know them",
		`{name: a, flows: ["*"], egress: [cluster], deny: ["*"]}`:    "an edge does not know them",
		`{name: a, flows: [ingress], allow: ["10.0.0.0/8"]}`:         "an edge decides by the name",
		`{name: a, flows: [dial, api], allow: ["@l"]}`:               "an edge decides by the name",
		`{name: a, flows: [apis], allow: ["*"]}`:                     `there is no flow "apis"; known: dial, route, back, api, vpn, proxy, ingress`,
		`{name: a, group: "A b", flows: [api], allow: ["*"]}`:        "small letters",
		`{name: a, flows: [api], sources: [10.0.0.1/8], allow: [x]}`: "did you mean 10.0.0.0/8",
	} {
		doc := "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules: [" + text + "]\nlists: [{name: l, ranges: [10.0.0.0/8]}]\n"
		p, findings := policy.Read("p.yaml", []byte(doc), nil)
		if p != nil || !strings.Contains(fmt.Sprint(findings), want) {
			t.Errorf("%s: %v", text, findings)
		}
	}
}

func TestEdgeFlowsAgainstTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]policy.Rule, rapid.IntRange(1, 8).Draw(t, "rules"))
		for i := range rules {
			r := drawRule(t, i)
			r.Caller, r.UID, r.Egress = nil, nil, nil
			r.Flow = someOf(t, "flows", policy.FlowAPI, policy.FlowVPN, "*", policy.FlowDial)
			r.Destination = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*", "*:443", "a.example", "*.b.example:443"}),
				1, 3, rapid.ID[string]).Draw(t, "names")
			rules[i] = r
		}
		q := policy.Request{
			Cluster: rapid.SampledFrom([]string{"c1", "c2", "d2"}).Draw(t, "cluster"),
			Flow:    rapid.SampledFrom([]string{policy.FlowAPI, policy.FlowVPN, policy.FlowIngress}).Draw(t, "flow"),
			Name:    rapid.SampledFrom([]string{"", "a.example", "x.b.example", "other"}).Draw(t, "name"),
			Port:    rapid.SampledFrom([]uint16{443, 8132}).Draw(t, "port"),
		}
		if s := rapid.SampledFrom([]string{"", "203.0.113.7", "2001:db8::1"}).Draw(t, "source"); s != "" {
			q.Source = netip.MustParseAddr(s)
		}
		match := func(texts []string, s string) bool {
			for _, text := range texts {
				head, tail, wild := strings.Cut(text, "*")
				if !wild && text == s || wild && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail) {
					return true
				}
			}
			return false
		}
		protected := false
		for _, r := range rules {
			protected = protected || match(r.Cluster, q.Cluster) && match(r.Flow, q.Flow)
		}
		allow, deny := oracle(rules, q)
		if v := policy.Decide(q, compiled(t, rules)); v.Allow != (!deny && (allow || !protected)) || v.Open || v.Why() == "" {
			t.Fatalf("%+v of %+v: %+v; allow %v, deny %v, protected %v", q, rules, v, allow, deny, protected)
		}
	})
}

// manyClusters is a policy with so many entries for so many clusters.
func manyClusters(t testing.TB, clusters, entries int) *policy.Policy {
	ranges := randomRanges(clusters * entries)
	rules := make([]policy.Rule, clusters)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("r%d", i), Cluster: []string{fmt.Sprintf("c%d", i)}, Flow: []string{policy.FlowAPI},
			Source: ranges[i*entries : (i+1)*entries], Destination: []string{"*"}}
	}
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems[0])
	}
	return p
}

// BenchmarkDecideEdge decides for 100,000 clusters with 10 entries each.
func BenchmarkDecideEdge(b *testing.B) {
	before := heap()
	p := manyClusters(b, 100_000, 10)
	each := float64(heap()-before) / 1e6
	names := make([]string, 1024)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i*97)
	}
	q := policy.Request{Flow: policy.FlowAPI, Source: netip.MustParseAddr("203.0.113.9"), Name: "api.example.org", Port: 443}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		q.Cluster = names[n%len(names)]
		if n++; policy.Decide(q, p).Allow {
			b.Fatal("allowed")
		}
	}
	b.ReportMetric(each, "B/entry")
	runtime.KeepAlive(p)
}

// An agent's own list names no flows: it is about dials, and can be asked about the rest.
func TestAnAgentsListIsAboutDials(t *testing.T) {
	p, problems := policy.CompileAllow([]string{"a.example"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	q := policy.Request{Cluster: "c1", Name: "a.example", Addr: netip.MustParseAddr("192.0.2.1"), Port: 443, Protected: true}
	for flow, want := range map[string]bool{"": true, policy.FlowDial: true, policy.FlowAPI: false, policy.FlowVPN: false} {
		q.Flow = flow
		if v := policy.Decide(q, p); v.Allow != want {
			t.Errorf("flow %q: %v, %s", flow, v.Allow, v.Why())
		}
	}
	if problems := p.BetweenPeers("c1"); len(problems) != 1 {
		t.Errorf("a name has no meaning between peers: %v", problems)
	}
}
