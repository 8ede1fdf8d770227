// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The oracle reads every rule in turn and knows no trie. Its addresses are none
// of the special ones, which have tests of their own.
func oracle(rules []policy.Rule, q policy.Request) (allow, deny bool) {
	any := func(texts []string, s string) bool {
		return texts == nil || slices.ContainsFunc(texts, func(p string) bool {
			head, tail, wild := strings.Cut(p, "*")
			return !wild && p == s || wild && len(s) >= len(p)-1 && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail)
		})
	}
	for _, r := range rules {
		from := r.Source == nil || !q.Source.IsValid() && r.Deny
		for _, s := range r.Source {
			from = from || q.Source.IsValid() && netip.MustParsePrefix(s).Contains(q.Source)
		}
		if r.UID != nil && (q.Local && !slices.Contains(r.UID, q.UID) || !q.Local && !r.Deny) {
			continue
		}
		caller := any(r.Caller, q.Caller)
		if r.Caller != nil && q.Caller == "" {
			caller = r.Deny
		}
		if r.Flow == nil {
			r.Flow = []string{policy.FlowDial}
		}
		if !from || !any(r.Cluster, q.Cluster) || !caller || !any(r.Egress, q.Egress) || !any(r.Flow, q.Flow) {
			continue
		}
		for _, d := range r.Destination {
			host, port, ok := strings.Cut(d, ":")
			if ok && port != "443" || ok && q.Port != 443 {
				continue
			}
			hit := host == "*"
			if p, err := netip.ParsePrefix(host); err == nil {
				hit = p.Contains(q.Addr)
			} else if suffix, wild := strings.CutPrefix(host, "*"); wild && suffix != "" {
				hit = len(q.Name) > len(suffix) && strings.HasSuffix(q.Name, suffix)
			} else if host == q.Name && q.Name != "" {
				hit = true
			}
			if hit && r.Deny {
				deny = true
			} else if hit {
				allow = true
			}
		}
	}
	return allow, deny
}

func someOf(t *rapid.T, label string, from ...string) []string {
	if rapid.Bool().Draw(t, label+" any") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 3, rapid.ID[string]).Draw(t, label)
}

func drawRule(t *rapid.T, i int) policy.Rule {
	return policy.Rule{
		Name:    "r" + string(rune('a'+i)),
		Deny:    rapid.IntRange(0, 3).Draw(t, "deny") == 0,
		Cluster: someOf(t, "clusters", "c1", "c2", "c*", "*2"),
		Caller:  someOf(t, "callers", "unix:c1/connect", "unix:*", "*"),
		Egress:  someOf(t, "egress", "cluster", "etcd", ""+"c*"),
		UID:     rapid.SampledFrom([][]uint32{nil, nil, {0}, {7}, {0, 7}}).Draw(t, "users"),
		Source:  someOf(t, "sources", "203.0.113.0/24", "203.0.113.7/32", "2001:db8::/32", "0.0.0.0/0"),
		Destination: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16:443", "10.1.2.0/24", "10.1.2.3/32:443",
			"*", "*:443", "a.example", "*.example:443", "*.b.example", "0.0.0.0/0", "10.1.2.0/24:443"}), 1, 5, rapid.ID[string]).Draw(t, "destinations"),
	}
}

func TestDecideAgainstTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]policy.Rule, rapid.IntRange(1, 8).Draw(t, "rules"))
		for i := range rules {
			rules[i] = drawRule(t, i)
		}
		q := policy.Request{
			Cluster: rapid.SampledFrom([]string{"c1", "c2", "d2", ""}).Draw(t, "cluster"),
			Caller:  rapid.SampledFrom([]string{"unix:c1/connect", "unix:c2/connect", ""}).Draw(t, "caller"),
			Egress:  rapid.SampledFrom([]string{"cluster", "etcd", ""}).Draw(t, "egress"),
			Flow:    policy.FlowDial,
			Local:   rapid.Bool().Draw(t, "local"),
			UID:     rapid.SampledFrom([]uint32{0, 7, 8}).Draw(t, "user"),
			Name:    rapid.SampledFrom([]string{"", "a.example", "x.b.example", "other"}).Draw(t, "name"),
			Addr:    netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.9.9.9", "8.8.8.8"}).Draw(t, "address")),
			Port:    rapid.SampledFrom([]uint16{443, 80}).Draw(t, "port"),
		}
		if s := rapid.SampledFrom([]string{"", "203.0.113.7", "203.0.113.8", "2001:db8::1"}).Draw(t, "source"); s != "" {
			q.Source = netip.MustParseAddr(s)
		}
		allow, deny := oracle(rules, q)
		whole := compiled(t, rules)
		v := policy.Decide(q, whole)
		if v.Allow != (allow && !deny) || v.Open {
			t.Fatalf("%+v of %+v: %+v, want allow=%v deny=%v", q, rules, v, allow, deny)
		}
		// Neither the order nor the number of policies counts, nor for the name of the rule.
		order := rapid.Permutation(rules).Draw(t, "order")
		cut := rapid.IntRange(0, len(order)).Draw(t, "cut")
		if w := policy.Decide(q, compiled(t, order[:cut]), compiled(t, order[cut:])); w.Allow != v.Allow || w.Rule != v.Rule {
			t.Fatalf("%+v in another order, %+v before", w, v)
		}
		// What is open without the address is the only thing that may be allowed with it.
		if q.Name == "" {
			return
		}
		unresolved := q
		unresolved.Addr = netip.Addr{}
		if u := policy.Decide(unresolved, whole); u.Allow || v.Allow && !u.Open {
			t.Fatalf("%+v without the address, %+v with it", u, v)
		}
	})
}

func compiled(t *rapid.T, rules []policy.Rule) *policy.Policy {
	if len(rules) == 0 {
		return nil
	}
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems)
	}
	return p
}
