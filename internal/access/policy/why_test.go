// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestWhyOfEveryVerdict: each way to decide names its rule, if one decided, and says
// why in one sentence with the destination in it.
func TestWhyOfEveryVerdict(t *testing.T) {
	p := accessOf(t,
		policy.Rule{Name: "pods", Destination: []string{"10.0.0.0/8", "*.example"}},
		policy.Rule{Name: "not-these", Deny: true, Destination: []string{"10.9.0.0/16", "db.example"}})
	empty, _ := policy.CompileAllow([]string{})
	list, _ := policy.CompileAllow([]string{"10.0.0.0/8", "a.example"})
	own := []policy.Listener{{At: netip.MustParseAddrPort("10.0.0.5:8443"), Of: policy.ListenerOfHub}}
	addr := func(s string) policy.Request {
		at := netip.MustParseAddrPort(s)
		return policy.Request{Cluster: "c1", Addr: at.Addr(), Port: at.Port(), Own: own}
	}
	as := func(q policy.Request, caller string) policy.Request { q.Caller = caller; return q }
	name := func(s string, q policy.Request) policy.Request { q.Name = s; return q }
	for what, c := range map[string]struct {
		q    policy.Request
		by   []*policy.Policy
		rule string
		why  string
	}{
		"allowed":              {addr("10.1.0.1:443"), []*policy.Policy{p}, "pods", `allowed by "pods"`},
		"denied":               {addr("10.9.0.1:443"), []*policy.Policy{p}, "not-these", `10.9.0.1:443 is denied by rule "not-these"`},
		"denied by name":       {name("db.example", policy.Request{Port: 5432}), []*policy.Policy{p}, "not-these", `db.example port 5432 is denied by rule "not-these"`},
		"a name's address":     {name("a.example", addr("10.9.0.1:443")), []*policy.Policy{p}, "not-these", `a.example (10.9.0.1:443) is denied by rule "not-these"`},
		"open":                 {name("a.example", policy.Request{Port: 443}), []*policy.Policy{p}, "", "the address of a.example decides"},
		"no rule":              {addr("192.0.2.1:443"), []*policy.Policy{p}, "", "no rule allows 192.0.2.1:443"},
		"no rule for a caller": {as(addr("192.0.2.1:443"), "unix:c1/connect"), []*policy.Policy{p}, "", "no rule allows unix:c1/connect to reach 192.0.2.1:443"},
		"no rules":             {addr("10.1.0.1:443"), nil, "", "there is no rule, so nothing is allowed"},
		"an empty list":        {addr("10.1.0.1:443"), []*policy.Policy{empty}, "", "no destination is allowed: the agent was started without --allow"},
		"not in the list":      {addr("192.0.2.1:443"), []*policy.Policy{list}, "", "192.0.2.1:443 is in none of the 2 allowed ranges"},
		"no destination":       {policy.Request{Cluster: "c1", Port: 443}, []*policy.Policy{p}, "", "the destination has no address or no port"},
		"a listener":           {addr("10.0.0.5:8443"), []*policy.Policy{p}, "", "10.0.0.5:8443 is a listener of the hub; only a rule with exactly this address and port opens it"},
		"special":              {addr("169.254.169.254:80"), []*policy.Policy{p}, "", "169.254.169.254:80 is a cloud metadata service; only a rule inside 169.254.169.254/32 opens it"},
		"special in a form":    {addr("[64:ff9b::7f00:1]:80"), []*policy.Policy{p}, "", "[64:ff9b::7f00:1]:80 is a loopback address in an IPv6 form (127.0.0.1); only a rule inside 64:ff9b::7f00:1/128 opens it"},
	} {
		v := policy.Decide(c.q, c.by...)
		if v.Rule != c.rule || v.Why() != c.why || v.Allow != (what == "allowed") || v.Open != (what == "open") {
			t.Errorf("%s: %+v %q, want rule %q, %q", what, v, v.Why(), c.rule, c.why)
		}
		if oneSentence.MatchString(v.Why()) || strings.Contains(v.Why(), "\n") {
			t.Errorf("%s: %q is more than one sentence", what, v.Why())
		}
	}
	var zero policy.Verdict
	if zero.Why() == "" {
		t.Error("the zero verdict says nothing")
	}
}

var oneSentence = regexp.MustCompile(`[.!?] [A-Z]|\.$`)

// TestDigests: the same rules have the same digest, whatever the order of their files;
// everything that is written counts.
func TestDigests(t *testing.T) {
	a := policy.Rule{Name: "a", Destination: []string{"10.0.0.0/8"}}
	one, two := accessOf(t, a).Digest(), accessOf(t, policy.Rule{Name: "b", Destination: []string{"*"}}).Digest()
	if one.Plus(two) != two.Plus(one) || one.Plus(two).Minus(one) != two || one == two || one == (policy.Digest{}) || one != accessOf(t, a).Digest() {
		t.Errorf("%v %v", one, two)
	}
	seen := []string{one.String()}
	for what, change := range map[string]func(*policy.Rule){
		"name":         func(r *policy.Rule) { r.Name = "x" },
		"comment":      func(r *policy.Rule) { r.Comment = "x" },
		"deny":         func(r *policy.Rule) { r.Deny = true },
		"cluster":      func(r *policy.Rule) { r.Cluster = []string{"c"} },
		"caller":       func(r *policy.Rule) { r.Caller = []string{"c"} },
		"uid":          func(r *policy.Rule) { r.UID = []uint32{1} },
		"egress":       func(r *policy.Rule) { r.Egress = []string{"c"} },
		"flow":         func(r *policy.Rule) { r.Flow = []string{"dial"} },
		"source":       func(r *policy.Rule) { r.Source = []string{"10.0.0.0/8"} },
		"destinations": func(r *policy.Rule) { r.Destination = []string{"10.0.0.0/8", "10.0.0.0/9"} },
	} {
		r := a
		change(&r)
		d := accessOf(t, r).Digest().String()
		if slices.Contains(seen, d) {
			t.Errorf("%s does not show in %s", what, d)
		}
		seen = append(seen, d)
	}
	lists := func(ranges ...string) policy.Digest {
		p, _ := policy.Compile([]policy.Rule{{Name: "a", Destination: []string{"@l"}}}, []policy.List{{Name: "l", Ranges: ranges}})
		return p.Digest()
	}
	if eight, again := lists("10.0.0.0/8"), lists("10.0.0.0/8"); eight != again || eight == lists("10.0.0.0/9") {
		t.Error("a list does not show")
	}
	x, _ := policy.CompileAllow([]string{"10.0.0.0/8", "a.example"})
	y, _ := policy.CompileAllow([]string{"10.0.0.0/8a.example"})
	z, _ := policy.CompileAllow([]string{"10.0.0.0/8"})
	if x.Digest() == y.Digest() || y.Digest() == z.Digest() || x.Digest() == z.Digest() {
		t.Error("an agent's list does not show")
	}
}
