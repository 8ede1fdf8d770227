// SPDX-License-Identifier: Apache-2.0

package gardener_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// TestRead: what the extension's validation and admission assert, and what they let through.
func TestRead(t *testing.T) {
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%q", fmt.Sprintf("192.0.2.%d/32", i)))
		}
		return `{"rule":{"action":"ALLOW","type":"remote_ip","cidrs":[` + strings.Join(all, ",") + `]}}`
	}
	rule := func(action, kind, cidrs string) string {
		return fmt.Sprintf(`{"rule":{"action":%q,"type":%q,"cidrs":[%s]}}`, action, kind, cidrs)
	}
	for name, tc := range map[string]struct {
		config string
		most   int
		deny   bool
		want   []string // parts of the error; none: it is good
	}{
		"deny by source_ip": {rule("DENY", "source_ip", `"192.0.2.0/24"`), 50, true, nil},
		"no rule":           {`{}`, 50, false, []string{"spec.providerConfig.rule: it is missing"}},
		"no providerConfig": {``, 50, false, []string{"spec.providerConfig.rule: it is missing"}},
		"bad type": {
			rule("ALLOW", "x", `"192.0.2.0/24"`), 50, false,
			[]string{`rule.type: "x" is not known`},
		},
		"bad action":                {rule("x", "remote_ip", `"192.0.2.0/24"`), 50, false, []string{`rule.action: "x" is`}},
		"no CIDRs":                  {rule("ALLOW", "remote_ip", ``), 50, false, []string{"rule.cidrs: the list is empty"}},
		"bad CIDR":                  {rule("ALLOW", "remote_ip", `"n"`), 50, false, []string{`rule.cidrs[0]: "n" is no CIDR`}},
		"below the maximum":         {many(50), 50, false, nil},
		"above it":                  {many(51), 50, false, []string{"rule.cidrs: they are 51 ranges, at most 50"}},
		"no maximum":                {many(200), 0, false, nil},
		"lower case means the same": {rule("deny", "remote_ip", `"2001:db8::/32"`), 50, true, nil},
		"mixed case":                {rule("Allow", "direct_remote_ip", `"2001:db8::/32"`), 50, false, nil},
		"host bits": {
			rule("ALLOW", "remote_ip", `"192.0.2.1/24"`), 50, false,
			[]string{"write 192.0.2.0/24"},
		},
		"IPv4-mapped": {
			rule("ALLOW", "remote_ip", `"::ffff:1.2.3.0/120"`), 50, false,
			[]string{"write 1.2.3.0/24"},
		},
		"a bare address": {
			rule("ALLOW", "remote_ip", `"192.0.2.1"`), 50, false,
			[]string{"write 192.0.2.1/32"},
		},
		"an unknown field": {
			`{"rule":{"action":"ALLOW","type":"remote_ip","cidrs":["192.0.2.0/24"],"x":1}}`, 50, false,
			[]string{"rule.x"},
		},
		"all problems at once": {
			rule("x", "y", `"n","192.0.2.1/8"`), 1, false,
			[]string{"rule.action", "rule.type", "they are 2", "cidrs[0]", "cidrs[1]"},
		},
		"what is no JSON":   {`{`, 50, false, []string{"Extension"}},
		"a second document": {"{}}\n---\n{", 50, false, []string{"Extension"}},
		"a zone":            {rule("ALLOW", "remote_ip", `"fe80::1%eth0"`), 50, false, []string{"is no CIDR"}},
		"the same range twice is no harm": {
			rule("ALLOW", "remote_ip", `"192.0.2.0/24","192.0.2.0/24"`), 50, false,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gardener.Read("Extension shoot--p--s/acl", []byte(tc.config), tc.most)
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("%v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
			if err == nil && (got.Deny != tc.deny || len(got.Ranges) == 0) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func decide(t *testing.T, rules []policy.Rule, flow, from string) bool {
	t.Helper()
	p, problems := policy.Compile(rules, nil)
	if p == nil {
		t.Fatal(problems)
	}
	w := policy.EdgeWay{Cluster: "shoot--p--s", Flow: flow, Port: 443}
	return policy.Decide(w.From(netip.MustParseAddr(from)), p).Allow
}

// TestRules: a list means in every flow what its author meant, and touches no other cluster.
func TestRules(t *testing.T) {
	platform := []gardener.Range{
		{Prefix: netip.MustParsePrefix("10.250.0.0/16"), Origin: gardener.OriginSeedNodes},
		{Prefix: netip.MustParsePrefix("fd00:10::/64"), Origin: gardener.OriginSeedNodes},
		{Prefix: netip.MustParsePrefix("198.51.100.7/32"), Origin: gardener.OriginInfrastructure},
	}
	list := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	allow := gardener.ACL{Ranges: list}.Rules("shoot--p--s", platform)
	deny := gardener.ACL{Deny: true, Ranges: list}.Rules("shoot--p--s", platform)
	for _, flow := range policy.EdgeFlows() {
		for from, want := range map[string][2]bool{ // by the allow list, by the deny list
			"192.0.2.1": {true, false}, "2001:db8::1": {true, false}, "10.250.3.4": {true, true},
			"fd00:10::5": {true, true}, "198.51.100.7": {true, true}, "203.0.113.9": {false, true}, "2001:db9::1": {false, true},
		} {
			if got := decide(t, allow, flow, from); got != want[0] {
				t.Errorf("allow list, %s from %s: %v", flow, from, got)
			}
			if got := decide(t, deny, flow, from); got != want[1] {
				t.Errorf("deny list, %s from %s: %v", flow, from, got)
			}
		}
	}
	for _, r := range slices.Concat(allow, deny) {
		if !slices.Equal(r.Cluster, []string{"shoot--p--s"}) {
			t.Errorf("rule %s is about %v", r.Name, r.Cluster)
		}
	}
	if allow[1].Name != "seed-nodes" || allow[1].Group != gardener.GroupPlatform || len(allow[1].Source) != 2 {
		t.Errorf("%+v", allow[1])
	}
}

// TestPlatform: which ranges are always allowed, and that none is dropped silently.
func TestPlatform(t *testing.T) {
	whole := gardener.Platform{
		SeedNodes: []string{"10.250.0.0/16", "fd00:10::/64"}, SeedPods: []string{"10.96.0.0/11"}, LoadBalancerProxies: true,
		ShootInfo: map[string]string{"egressCIDRs": "203.0.113.7/32, 203.0.113.4/32"}, ShootNodes: []string{"10.180.0.0/16"},
		Infrastructure: []string{"198.51.100.9/32", "198.51.100.7/32"}, HasInfrastructure: true,
		Additional: []string{"192.0.2.0/24"},
	}
	for name, tc := range map[string]struct {
		change func(*gardener.Platform)
		want   []string // prefix origin; nil: an error
		err    string
	}{
		"all": {func(*gardener.Platform) {}, []string{"10.250.0.0/16 seed-nodes", "fd00:10::/64 seed-nodes",
			"10.96.0.0/11 seed-pods", "203.0.113.4/32 seed-egress", "203.0.113.7/32 seed-egress", "10.180.0.0/16 shoot-nodes",
			"198.51.100.7/32 shoot-egress", "198.51.100.9/32 shoot-egress", "192.0.2.0/24 additional"}, ""},
		"a load balancer that proxies not": {func(p *gardener.Platform) {
			p.LoadBalancerProxies, p.SeedNodes, p.SeedPods, p.ShootNodes, p.Additional = false, nil, nil, nil, nil
		}, []string{"198.51.100.7/32 shoot-egress", "198.51.100.9/32 shoot-egress"}, ""},
		"no shoot-info": {func(p *gardener.Platform) {
			*p = gardener.Platform{LoadBalancerProxies: true, Workerless: true, Additional: []string{"192.0.2.0/24"}}
		}, []string{"192.0.2.0/24 additional"}, ""},
		"shoot-info without the key": {func(p *gardener.Platform) { p.ShootInfo = map[string]string{} }, nil,
			"ConfigMap kube-system/shoot-info: data.egressCIDRs: it is missing"},
		"bad egress": {func(p *gardener.Platform) { p.ShootInfo["egressCIDRs"] = "203.0.113.7/32,x" }, nil,
			`data.egressCIDRs[1]: "x" is no CIDR`},
		"workerless": {func(p *gardener.Platform) {
			p.Workerless, p.HasInfrastructure, p.LoadBalancerProxies, p.SeedPods, p.Additional = true, false, false, nil, nil
		}, []string{"10.250.0.0/16 seed-nodes", "fd00:10::/64 seed-nodes"}, ""},
		"no infrastructure": {func(p *gardener.Platform) { p.HasInfrastructure = false }, nil,
			"Infrastructure: it is missing"},
		"bad additional": {func(p *gardener.Platform) { p.Additional = []string{"192.0.2.0/24", "10.0.0.1/8"} }, nil,
			"additionalRanges[1]"},
		"bad seed": {func(p *gardener.Platform) { p.SeedNodes = []string{""} }, nil, "Seed: spec.networks.nodes[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			p := whole
			p.ShootInfo = map[string]string{"egressCIDRs": whole.ShootInfo["egressCIDRs"]}
			tc.change(&p)
			got, err := p.Ranges()
			if tc.want == nil {
				if err == nil || !strings.Contains(err.Error(), tc.err) || got != nil {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			var texts []string
			for _, r := range got {
				texts = append(texts, r.Prefix.String()+" "+r.Origin)
			}
			if err != nil || !slices.Equal(texts, tc.want) {
				t.Errorf("%v, %q", err, texts)
			}
		})
	}
}

// TestShoot: names and destinations of a shoot.
func TestShoot(t *testing.T) {
	for id, want := range map[string]string{"shoot-p--s": "p--s", "shoot--p--s": "p--s", "other": "other"} {
		if got := gardener.ShortID(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	if got := gardener.IngressSuffix("shoot--p--s", "ingress.seed.example"); got != "-p--s.ingress.seed.example" {
		t.Error(got)
	}
	vpn, api := gardener.Destinations("shoot--p--s")
	if len(vpn) != 6 || vpn[0] != "outbound|1194||vpn-seed-server.shoot--p--s.svc.cluster.local" ||
		vpn[5] != "outbound|1194||vpn-seed-server-4.shoot--p--s.svc.cluster.local" ||
		!slices.Equal(api, []string{"outbound|443||kube-apiserver.shoot--p--s.svc.cluster.local",
			"shoot--p--s--kube-apiserver-socket"}) {
		t.Errorf("%q %q", vpn, api)
	}
	for name, tc := range map[string]struct {
		in, want []string
		fails    bool
	}{
		"both addresses": {[]string{"https://api.s.p.example", "https://api.s.p.internal.example"},
			[]string{"api.s.p.example", "api.s.p.internal.example"}, false},
		"no scheme, a port, twice": {[]string{"api.example:443", "https://API.example/"}, []string{"api.example"}, false},
		"an address beside a name": {[]string{"https://192.0.2.1:443", "https://[2001:db8::1]", "https://a.example"},
			[]string{"a.example"}, false},
		"addresses alone": {[]string{"https://192.0.2.1"}, nil, true},
		"none":            {nil, nil, true},
		"nonsense":        {[]string{"//", "https://a.example"}, nil, true},
	} {
		got, err := gardener.Hosts(tc.in)
		if (err != nil) != tc.fails || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	same := gardener.SameEgress
	if !same([]string{"a", "b"}, []string{"b", "a"}) || same([]string{"a"}, []string{"a", "b"}) {
		t.Error("egress ranges are compared by their order")
	}
}

func TestConfigOf(t *testing.T) {
	for object, want := range map[string]string{
		`{"kind":"Extension","spec":{"type":"acl","providerConfig":{"rule":{}}}}`: `{"rule":{}}`,
		`{"kind":"Extension","spec":{"type":"acl"}}`:                              `null`,
		`{"kind":"Extension","spec":{"type":"dns"}}`:                              ``,
		`{"kind":"Secret"}`: ``,
		`x`:                 ``,
	} {
		if got := gardener.ConfigOf([]byte(object)); string(got) != want {
			t.Errorf("%s: %s", object, got)
		}
	}
}

// FuzzRead: whatever a shoot's owner writes, what is read is what was written, or nothing is.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"rule":{"action":"ALLOW","type":"remote_ip","cidrs":["192.0.2.0/24"]}}`))
	f.Add([]byte(`}}{"rule":`))
	f.Add([]byte(`{"rule":{"action":"DENY","type":"source_ip","cidrs":["::ffff:1.2.3.0/120"]}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		got, err := gardener.Read("Extension", config, gardener.DefaultMost)
		if err != nil {
			if got.Ranges != nil {
				t.Errorf("%v beside an error", got)
			}
			return
		}
		if len(got.Ranges) == 0 || len(got.Ranges) > gardener.DefaultMost {
			t.Errorf("%d ranges", len(got.Ranges))
		}
		var plain struct {
			Rule struct {
				CIDRs []string `json:"cidrs"`
			} `json:"rule"`
		}
		if json.Unmarshal(config, &plain) == nil && len(plain.Rule.CIDRs) != len(got.Ranges) {
			t.Errorf("%d ranges of %q", len(got.Ranges), plain.Rule.CIDRs)
		}
		if p, problems := policy.Compile(got.Rules("c1", nil), nil); p == nil {
			t.Error(problems)
		}
	})
}
