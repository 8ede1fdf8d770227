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
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func parties() []policy.Party {
	return []policy.Party{
		{Caller: "spiffe://t/cluster/c1/node/a", Ranges: prefixes("10.0.0.0/29", "fd00::/126")},
		{Caller: "spiffe://t/cluster/c1/node/b", Ranges: prefixes("10.0.0.8/29")},
	}
}

// access is the chain as the mesh puts it into force.
func access(l policy.Lowered) plan.Table {
	lines := append(slices.Clone(l.Lines), plan.Line{plan.Do("drop")})
	return plan.Table{Sets: l.Sets, Chains: []plan.Chain{{Name: "access", Lines: lines}}}
}

// whole is a caller of a rule as the identity that it means: between peers a node's name will do.
func whole(caller string) string {
	if strings.Contains(caller, "/") || caller == "*" {
		return caller
	}
	return "spiffe://t/cluster/c1/node/" + caller
}

// The lines let through what Decide allows, and nothing else, whoever is vouched for: who is
// not has no caller, which Decide does not know then.
func TestLinesDecideAsDecideDoes(t *testing.T) {
	some := func(t *rapid.T, what string, of []string) []string {
		if rapid.Bool().Draw(t, "any "+what) {
			return nil
		}
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, 2, rapid.ID[string]).Draw(t, what)
	}
	hosts := []string{"*", "@l", "10.0.0.0/28", "10.0.0.3", "10.0.0.8/30", "100.64.0.0/10", "100.100.100.200", "169.254.0.0/16",
		"169.254.169.254", "fd00::/120", "fd00::2", "fd00:ec2::254", "fd00::/16"}
	rapid.Check(t, func(t *rapid.T) {
		var rules []policy.Rule
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			r := policy.Rule{Name: fmt.Sprint("r", i), Deny: rapid.IntRange(0, 2).Draw(t, "deny") == 0,
				Cluster: some(t, "clusters", []string{"c1", "c2", "c*"}),
				Caller:  some(t, "callers", []string{"spiffe://t/cluster/c1/node/a", "spiffe://*", "spiffe://t/cluster/c1/node/z", "a", "b*", "*", "z"}),
				Source:  some(t, "sources", []string{"10.0.0.4/30", "10.0.0.0/24", "fd00::1", "10.0.0.1", "@l"}),
			}
			for range rapid.IntRange(1, 3).Draw(t, "destinations") {
				host := rapid.SampledFrom(hosts).Draw(t, "host")
				if port := rapid.SampledFrom([]string{"", ":80", ":80,443", ":79-81"}).Draw(t, "ports"); port != "" {
					if strings.Contains(host, ":") {
						host = "[" + host + "]"
					}
					host += port
				}
				r.Destination = append(r.Destination, host)
			}
			rules = append(rules, r)
		}
		lists := []policy.List{{Name: "l", Ranges: []string{"10.0.0.2", "10.0.0.12/30", "10.0.0.17", "fd00::1"}}}
		p, problems := policy.Compile(rules, lists)
		if p == nil {
			t.Fatal(problems)
		}
		vouched := slices.DeleteFunc(parties(), func(policy.Party) bool { return rapid.IntRange(0, 2).Draw(t, "unvouched") == 0 })
		lowered, problems := policy.Lower("c1", vouched, p)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		table := access(lowered)
		spelt := slices.Clone(rules)
		for i := range spelt {
			spelt[i].Caller = slices.Clone(spelt[i].Caller)
			for k, c := range spelt[i].Caller {
				spelt[i].Caller[k] = whole(c)
			}
		}
		if p, problems = policy.Compile(spelt, lists); p == nil {
			t.Fatal(problems)
		}
		for _, src := range []string{"10.0.0.1", "10.0.0.5", "10.0.0.12", "10.0.0.17", "fd00::1", "fd00::7"} {
			from := netip.MustParseAddr(src)
			caller := ""
			for _, party := range vouched {
				if slices.ContainsFunc(party.Ranges, func(r netip.Prefix) bool { return r.Contains(from) }) {
					caller = party.Caller
				}
			}
			for _, dst := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.9", "100.64.0.1", "100.100.100.200", "169.254.1.1", "169.254.169.254",
				"fd00::2", "fd00::70", "fd00:ec2::254", "8.8.8.8", "127.0.0.1", "224.0.0.1"} {
				to := netip.MustParseAddr(dst)
				if from.Is4() != to.Is4() {
					continue
				}
				for _, port := range []uint16{79, 80, 443, 8080} {
					verdict := policy.Decide(policy.Request{Cluster: "c1", Caller: caller, Source: from, Addr: to, Port: port, Flow: policy.FlowDial}, p)
					for _, proto := range []uint8{6, 17, 132} {
						got := table.Walk("access", &plan.Packet{Src: from, Dst: to, Proto: proto, Port: port})
						if (got.Do == "accept") != verdict.Allow {
							t.Fatalf("%s to %s port %d: %v, and %s (%v)\nof %+v\nas %v", src, dst, port, got, verdict.Why(), verdict.Allow, rules, lowered.Lines)
						}
					}
				}
			}
		}
	})
}

func TestLinesOfAPolicy(t *testing.T) {
	p, problems := policy.Compile([]policy.Rule{
		{Name: "web", Caller: []string{"spiffe://t/cluster/c1/node/a"}, Destination: []string{"10.0.0.8/29:80,8000-8010"}},
		{Name: "all-but", Destination: []string{"*"}, Source: []string{"10.0.0.8/29"}},
		{Name: "not-those", Deny: true, Destination: []string{"10.0.0.9", "10.0.0.3"}},
		{Name: "elsewhere", Cluster: []string{"c2"}, UID: []uint32{1}, Destination: []string{"example.com:80"}},
		{Name: "meta", Destination: []string{"169.254.169.254:80"}},
	}, nil)
	if p == nil {
		t.Fatal(problems)
	}
	l, problems := policy.Lower("c1", parties(), p)
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	var b strings.Builder
	for _, line := range l.Lines {
		fmt.Fprintln(&b, line)
	}
	const want = `daddr4 @d2_0_4 count packets do drop
daddr4 @d3_0_x0_4 proto 6 dport 80 do accept
daddr4 @d3_0_x0_4 proto 17 dport 80 do accept
daddr4 @d3_0_x0_4 proto 132 dport 80 do accept
`
	if got := b.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "saddr4 @s1_4 family 4 do accept\ndaddr4 @d3_0_4 proto 6 dport 80 do accept\n"+
		"daddr4 @d3_0_4 proto 17 dport 80 do accept\ndaddr4 @d3_0_4 proto 132 dport 80 do accept\n") {
		t.Errorf("lines\n%s", got)
	}
	ping := plan.Packet{Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.1"), Proto: 1}
	if v := access(l).Walk("access", &ping); v.Do != "accept" {
		t.Errorf("a ping to any destination: %v", v)
	}
	carried := plan.Packet{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("64:ff9b::a00:3"), Proto: 6, Port: 80}
	if v := access(l).Walk("access", &carried); v.Do != "drop" {
		t.Errorf("an address that carries another: %v", v)
	}
}

func TestRulesWithoutAMeaningBetweenPeers(t *testing.T) {
	const file = `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules:
- name: user
  uids: [1000]
  allow: ["10.0.0.0/8"]
- name: egress
  egress: [cluster]
  allow: ["10.0.0.0/8"]
- name: flow
  flows: [dial]
  deny: ["10.0.0.0/8"]
- name: named
  allow: ["10.0.0.0/8", "*.svc.cluster.local:443"]
- name: of-another
  clusters: [c2]
  uids: [1000]
  deny: ["example.com:80"]
`
	if p, findings := policy.Read("p.yaml", []byte(file), nil); p == nil {
		t.Fatalf("a hub does not take it: %v", findings)
	}
	p, findings := policy.ReadBetweenPeers("c1", "p.yaml", []byte(file), nil)
	var got []string
	for _, f := range findings {
		if !f.Warning {
			got = append(got, fmt.Sprintf("%d: %s", f.Line, f.Message))
		}
	}
	want := []string{"5", "8", "11", "14"}
	if p != nil || len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i, line := range want {
		if !strings.HasPrefix(got[i], line+": ") || !strings.Contains(got[i], "packets between peers") {
			t.Errorf("%q, want line %s", got[i], line)
		}
	}
	if p, findings := policy.ReadBetweenPeers("c3", "p.yaml", []byte(strings.ReplaceAll(file, "c2", "c3")), nil); p != nil || len(findings) < 6 {
		t.Errorf("%v", findings)
	}
}

func TestAPolicyOfTooManyLines(t *testing.T) {
	var rules []policy.Rule
	for i := range 2000 {
		rules = append(rules, policy.Rule{Name: fmt.Sprint("r", i), Destination: []string{fmt.Sprintf("10.0.%d.%d:80", i/256, i%256)}})
	}
	p, _ := policy.Compile(rules, nil)
	if _, problems := policy.Lower("c1", nil, p); len(problems) != 1 || !strings.Contains(problems[0].Message, "4096") {
		t.Errorf("%v", problems)
	}
}

// What somebody's coming makes too large is known before.
func TestLinesThatAnybodyMakes(t *testing.T) {
	var rules []policy.Rule
	for i := range 1000 {
		rules = append(rules, policy.Rule{Name: fmt.Sprint("r", i), Caller: []string{fmt.Sprintf("spiffe://t/cluster/c1/node/n%d", i)}, Destination: []string{fmt.Sprintf("*:%d", i+1)}})
	}
	all, _ := policy.Compile(rules, nil)
	if _, problems := policy.Lower("c1", parties(), all); len(problems) != 0 {
		t.Errorf("nobody is there: %v", problems)
	}
	if problems := policy.LowerAny("c1", all); len(problems) != 1 || !strings.Contains(problems[0].Message, "at most 4096") {
		t.Errorf("anybody: %v", problems)
	}
	few, _ := policy.Compile(rules[:600], nil)
	if problems := policy.LowerAny("c1", few); len(problems) != 0 {
		t.Errorf("600 of them: %v", problems)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1000).Draw(t, "rules")
		p, _ := policy.Compile(rules[:n], nil)
		var there []policy.Party
		for range rapid.IntRange(0, 1000).Draw(t, "parties") {
			i := rapid.IntRange(0, 999).Draw(t, "party")
			there = append(there, policy.Party{Caller: fmt.Sprintf("spiffe://t/cluster/c1/node/n%d", i), Ranges: prefixes("10.0.0.0/24", "fd00::/64")})
		}
		_, problems := policy.Lower("c1", there, p)
		if len(problems) > 0 && len(policy.LowerAny("c1", p)) == 0 {
			t.Fatalf("it is known only when they come: %v", problems)
		}
	})
}
