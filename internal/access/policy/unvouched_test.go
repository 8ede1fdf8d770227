// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// TestADenyRuleMatchesWhoIsNotVouchedFor: a member chooses whether a hub can vouch for it, so
// a source without a name could be the one that is denied. Only a source that is known as
// somebody else passes.
func TestADenyRuleMatchesWhoIsNotVouchedFor(t *testing.T) {
	evil := policy.Party{Caller: "spiffe://t/cluster/c1/node/evil", Ranges: prefixes("10.0.0.0/29", "fd00::/126")}
	good := policy.Party{Caller: "spiffe://t/cluster/c1/node/good", Ranges: prefixes("10.0.0.8/29", "fd00::8/126")}
	both := []policy.Party{evil, good}
	all := policy.Rule{Name: "all", Destination: []string{"*"}}
	deny := func(callers, sources []string, to ...string) policy.Rule {
		return policy.Rule{Name: "deny", Deny: true, Caller: callers, Source: sources, Destination: to}
	}
	for name, c := range map[string]struct {
		rule    policy.Rule
		vouched []policy.Party
		src     string
		want    string
	}{
		"it is vouched for":                {deny([]string{"evil"}, nil, "*"), both, "10.0.0.1", "drop"},
		"it is not":                        {deny([]string{"evil"}, nil, "*"), []policy.Party{good}, "10.0.0.1", "drop"},
		"it is not, of IPv6":               {deny([]string{"evil"}, nil, "*"), []policy.Party{good}, "fd00::1", "drop"},
		"it is not, by its whole identity": {deny([]string{evil.Caller}, nil, "*"), []policy.Party{good}, "10.0.0.1", "drop"},
		"it is not, by a pattern":          {deny([]string{"e*"}, nil, "*"), []policy.Party{good}, "10.0.0.1", "drop"},
		"nobody is":                        {deny([]string{"evil"}, nil, "*"), nil, "10.0.0.9", "drop"},
		"somebody else is":                 {deny([]string{"evil"}, nil, "*"), []policy.Party{good}, "10.0.0.9", "accept"},
		"somebody else is, of IPv6":        {deny([]string{"evil"}, nil, "*"), []policy.Party{good}, "fd00::9", "accept"},
		"a range":                          {deny([]string{"evil"}, nil, "10.0.9.0/24:80"), []policy.Party{good}, "10.0.0.1", "drop"},
		"another range":                    {deny([]string{"evil"}, nil, "10.0.8.0/24"), []policy.Party{good}, "10.0.0.1", "accept"},
		"another port":                     {deny([]string{"evil"}, nil, "*:81"), []policy.Party{good}, "10.0.0.1", "accept"},
		"from a source":                    {deny([]string{"evil"}, []string{"10.0.0.0/24"}, "*"), []policy.Party{good}, "10.0.0.1", "drop"},
		"from another source":              {deny([]string{"evil"}, []string{"10.0.0.2"}, "*"), []policy.Party{good}, "10.0.0.1", "accept"},
		"from a source of somebody else":   {deny([]string{"evil"}, []string{"10.0.0.0/24"}, "*"), []policy.Party{good}, "10.0.0.9", "accept"},
		"callers at sockets are no peers":  {deny([]string{"unix:c1/connect", "unix:c2/*"}, nil, "*"), nil, "10.0.0.1", "accept"},
		"but one of several may be one":    {deny([]string{"unix:c1/connect", "evil"}, nil, "*"), nil, "10.0.0.1", "drop"},
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := policy.Compile([]policy.Rule{all, c.rule}, nil)
			if p == nil {
				t.Fatal(problems)
			}
			l, problems := policy.Lower("c1", c.vouched, p)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			packet := plan.Packet{Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr("10.0.9.1"), Proto: 6, Port: 80}
			if packet.Src.Is6() {
				packet.Dst = netip.MustParseAddr("fd00:9::1")
			}
			if v := access(l).Walk("access", &packet); v.Do != c.want {
				t.Errorf("%s: %v, want %s; lines %v, sets %+v", c.src, v, c.want, l.Lines, l.Sets)
			}
		})
	}
}

// TestWhereTheClusterIsNotKnown, as on a node without a certificate, deny rules that name one
// hold all the same, and allow rules do not.
func TestWhereTheClusterIsNotKnown(t *testing.T) {
	all := policy.Rule{Name: "all", Destination: []string{"*"}}
	for name, c := range map[string]struct {
		rules []policy.Rule
		want  string
	}{
		"denied in one":           {[]policy.Rule{all, {Name: "deny", Deny: true, Cluster: []string{"c1"}, Destination: []string{"*:80"}}}, "drop"},
		"denied in two, a range":  {[]policy.Rule{all, {Name: "deny", Deny: true, Cluster: []string{"c1", "c2"}, Destination: []string{"10.0.9.0/24"}}}, "drop"},
		"denied by a pattern":     {[]policy.Rule{all, {Name: "deny", Deny: true, Cluster: []string{"c*"}, Caller: []string{"evil"}, Destination: []string{"*"}}}, "drop"},
		"denied elsewhere":        {[]policy.Rule{all, {Name: "deny", Deny: true, Cluster: []string{"c1"}, Destination: []string{"10.0.8.0/24"}}}, "accept"},
		"of no meaning to a peer": {[]policy.Rule{all, {Name: "deny", Deny: true, Cluster: []string{"c2"}, Egress: []string{"etcd"}, Destination: []string{"*"}}}, "accept"},
		"allowed in one":          {[]policy.Rule{{Name: "allow", Cluster: []string{"c1"}, Destination: []string{"*"}}}, "drop"},
	} {
		p, problems := policy.Compile(c.rules, nil)
		if p == nil {
			t.Fatal(name, problems)
		}
		l, problems := policy.Lower("", nil, p)
		if len(problems) > 0 {
			t.Fatal(name, problems)
		}
		packet := plan.Packet{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.9.1"), Proto: 6, Port: 80}
		if v := access(l).Walk("access", &packet); v.Do != c.want {
			t.Errorf("%s: %v, want %s; lines %v, sets %+v", name, v, c.want, l.Lines, l.Sets)
		}
	}
}
