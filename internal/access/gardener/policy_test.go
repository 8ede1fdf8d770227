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

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

const cluster = `{"metadata": {"name": "shoot--p--s"}, "spec": {
"seed": {"metadata": {"name": "eu1"}, "spec": {"networks": {"nodes": "10.250.0.0/16", "pods": "10.96.0.0/11", "services": "100.64.0.0/13"},
  "ingress": {"domain": "ingress.eu1.example"}}},
"shoot": {"metadata": {"name": "s", "namespace": "garden-p"},
  "spec": {"networking": {"nodes": "10.180.0.0/16"}, "provider": {"workers": [{"name": "a"}]}},
  "status": {"technicalID": "shoot--p--s", "advertisedAddresses": [
    {"name": "external", "url": "https://api.s.p.example"}, {"name": "internal", "url": "https://api.s.p.internal.example:443"},
    {"name": "service-account-issuer", "url": "https://discovery.garden.example/projects/p/issuer"}]}}}}`

func decode[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func facts(t testing.TB) gardener.Facts {
	return gardener.Facts{
		Extension: decode[gardener.Extension](t, `{"metadata": {"name": "acl", "namespace": "shoot--p--s"}, "spec": {"type": "acl", "providerConfig": `+
			rule("cidrs", `["192.0.2.0/24", "2001:db8::/32"]`)+`}}`),
		Cluster: decode[gardener.Cluster](t, cluster),
		Infrastructure: decode[*gardener.Infrastructure](t, `{"metadata": {"name": "s", "namespace": "shoot--p--s"},
			"status": {"egressCIDRs": ["198.51.100.7/32", "198.51.100.6/32"], "providerStatus": {}}}`),
	}
}

func gateway(t testing.TB, ingress string) *gardener.Service {
	return decode[*gardener.Service](t, `{"metadata": {"name": "istio-ingressgateway"}, "status": {"loadBalancer": {"ingress": [`+ingress+`]}}}`)
}

func shootInfo(data map[string]string) *gardener.ConfigMap { return &gardener.ConfigMap{Data: data} }

// TestPlatform: numbers are those of the behaviours that Gardener's extension asserts.
func TestPlatform(t *testing.T) {
	usual := []string{
		"shoot-egress 198.51.100.6/32 Infrastructure shoot--p--s/s status.egressCIDRs",
		"shoot-egress 198.51.100.7/32 Infrastructure shoot--p--s/s status.egressCIDRs",
		"seed-nodes 10.250.0.0/16 Seed eu1 spec.networks.nodes",
		"seed-pods 10.96.0.0/11 Seed eu1 spec.networks.pods",
		"shoot-nodes 10.180.0.0/16 Shoot garden-p/s spec.networking.nodes",
	}
	seedOnly := usual[2:4]
	egress := func(list string) *gardener.ConfigMap { return shootInfo(map[string]string{"egressCIDRs": list}) }
	for name, c := range map[string]struct {
		change func(*gardener.Facts)
		more   []string // beside the usual ones
		only   []string // instead of them
		bad    string   // the one problem
	}{
		"47: seed's and shoot's own": {change: func(*gardener.Facts) {}},
		"14: a load balancer without ipMode": {change: func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ip": "192.0.2.1"}`), egress("203.0.113.1/32")
		}},
		"15: ipMode VIP": {change: func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ip": "192.0.2.1", "ipMode": "VIP"}`), egress("203.0.113.1/32")
		}},
		"16, 19, 20: ipMode Proxy, of one address": {change: func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ipMode": "VIP"}, {"ipMode": "Proxy"}`), egress("203.0.113.2/32, 2001:db8:7::1/128,203.0.113.1/32")
		}, more: []string{
			"seed-egress 203.0.113.1/32 ConfigMap kube-system/shoot-info data.egressCIDRs",
			"seed-egress 203.0.113.2/32 ConfigMap kube-system/shoot-info data.egressCIDRs",
			"seed-egress 2001:db8:7::1/128 ConfigMap kube-system/shoot-info data.egressCIDRs",
		}},
		"17: no shoot-info": {change: func(f *gardener.Facts) { f.Gateway = gateway(t, `{"ipMode": "Proxy"}`) }},
		"17: no gateway":    {change: func(f *gardener.Facts) { f.ShootInfo = egress("203.0.113.1/32") }},
		"18: an invalid range in shoot-info": {change: func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ipMode": "Proxy"}`), egress("203.0.113.1/32,x")
		}, bad: "data.egressCIDRs[1] FieldValueInvalid access_list_invalid"},
		"1.3: shoot-info lacks the key": {change: func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ipMode": "Proxy"}`), shootInfo(nil)
		}, bad: "data.egressCIDRs FieldValueNotFound not_found"},
		"shoot-info lacks the key, and nobody asks for it": {change: func(f *gardener.Facts) { f.ShootInfo = shootInfo(nil) }},
		"1.3: both families of a seed": {change: func(f *gardener.Facts) {
			f.ShootInfo = shootInfo(map[string]string{"nodeNetworks": "10.250.0.0/16,fd00:1::/64", "podNetworks": "fd00:2::/56"})
		}, more: []string{
			"seed-nodes fd00:1::/64 ConfigMap kube-system/shoot-info data.nodeNetworks",
			"seed-pods fd00:2::/56 ConfigMap kube-system/shoot-info data.podNetworks",
		}},
		"49: workerless": {change: func(f *gardener.Facts) {
			f.Cluster.Spec.Shoot.Spec.Provider.Workers, f.Infrastructure = nil, nil
		}, only: seedOnly},
		"1.3: no Infrastructure": {change: func(f *gardener.Facts) { f.Infrastructure = nil }, bad: " FieldValueNotFound not_found"},
		"48: the router's address is an egress": {change: func(f *gardener.Facts) {
			f.Infrastructure.Status.EgressCIDRs = append(f.Infrastructure.Status.EgressCIDRs, "198.51.100.99/32")
		}, more: []string{"shoot-egress 198.51.100.99/32 Infrastructure shoot--p--s/s status.egressCIDRs"}},
		"3.2: an invalid range of the operator": {change: func(f *gardener.Facts) { f.Additional = []string{"10.0.0.0/8", "oops"} },
			bad: "additionalRanges[1] FieldValueInvalid access_list_invalid"},
		"3.2: a mapped range of the infrastructure": {change: func(f *gardener.Facts) {
			f.Infrastructure.Status.EgressCIDRs = []string{"::ffff:1.2.3.4/120"}
		}, bad: "status.egressCIDRs[0] FieldValueInvalid access_list_invalid"},
		"the operator's": {change: func(f *gardener.Facts) { f.Additional = []string{"fd00::/8"} },
			more: []string{"additional fd00::/8 operator's configuration additionalRanges"}},
		"no nodes of the shoot":        {change: func(f *gardener.Facts) { f.Cluster.Spec.Shoot.Spec.Networking = nil }, only: usual[:4]},
		"an invalid range of the seed": {change: func(f *gardener.Facts) { f.Cluster.Spec.Seed.Spec.Networks.Nodes = "10.250.0.1/16" }, bad: "spec.networks.nodes FieldValueInvalid access_list_invalid"},
		"no pods of the seed":          {change: func(f *gardener.Facts) { f.Cluster.Spec.Seed.Spec.Networks.Pods = "" }, bad: "spec.networks.pods FieldValueNotFound not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			c.change(&f)
			got, found := f.Platform()
			if bad := strings.Join(brief(found), "\n"); bad != c.bad || (c.bad != "") != (got == nil) {
				t.Fatalf("%s, want %s; %v", bad, c.bad, got)
			}
			if c.bad != "" {
				if _, found := f.Read(gardener.Options{}); gardener.Usable(found) {
					t.Error("a policy lacks what cannot be read")
				}
				return
			}
			want := slices.Concat(usual, c.more)
			if c.only != nil {
				want = slices.Clone(c.only)
			}
			var have []string
			for _, r := range got {
				have = append(have, fmt.Sprint(r.Rule, " ", r.Prefix, " ", r.Origin))
			}
			slices.Sort(want)
			slices.Sort(have)
			if !slices.Equal(have, want) {
				t.Errorf("%q\nwant %q", have, want)
			}
		})
	}
}

func TestShortID(t *testing.T) {
	for in, want := range map[string]string{"shoot-p--s": "p--s", "shoot--p--s": "p--s", "other": "other", "shoot": "shoot"} { // 43
		if got := gardener.ShortID(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestNames(t *testing.T) {
	got, found := facts(t).Names()
	want := gardener.Names{TechnicalID: "shoot--p--s", ShortID: "p--s",
		API:     []string{"api-p--s.ingress.eu1.example", "api.s.p.example", "api.s.p.internal.example"},
		Ingress: []string{"*-p--s.ingress.eu1.example"},
		VPN: []string{"outbound|1194||vpn-seed-server-0.shoot--p--s.svc.cluster.local", "outbound|1194||vpn-seed-server-1.shoot--p--s.svc.cluster.local",
			"outbound|1194||vpn-seed-server-2.shoot--p--s.svc.cluster.local", "outbound|1194||vpn-seed-server-3.shoot--p--s.svc.cluster.local",
			"outbound|1194||vpn-seed-server-4.shoot--p--s.svc.cluster.local", "outbound|1194||vpn-seed-server.shoot--p--s.svc.cluster.local"},
		Proxy: []string{"outbound|443||kube-apiserver.shoot--p--s.svc.cluster.local", "shoot--p--s--kube-apiserver-socket"},
	}
	if len(found) > 0 || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q, %v\nwant %q", got, found, want)
	}
	none := facts(t)
	none.Cluster.Spec.Seed.Spec.Ingress = nil
	if got, found := none.Names(); len(found) > 0 || len(got.Ingress) > 0 || len(got.API) != 2 { // 4
		t.Errorf("a seed without Ingresses: %q, %v", got, found)
	}
	app := facts(t)
	app.Cluster.Spec.Shoot.Status.AdvertisedAddresses = append(app.Cluster.Spec.Shoot.Status.AdvertisedAddresses,
		gardener.Address{Name: "ingress/plutono", URL: "https://gu-p--s.ingress.eu1.example"})
	if got, found := app.Names(); len(found) > 0 || !slices.Contains(got.Ingress, "gu-p--s.ingress.eu1.example") || len(got.API) != 3 {
		t.Errorf("%q, %v", got, found)
	}
	for in, bad := range map[string]bool{ // 3.2: parsed, not cut
		"https://API.Example.:6443/x?y": false, "api.example": false, "api.example:443": false,
		"": true, "https://": true, "https://u:p@api.example": true,
		"https://*.example": true, "https://a..b": true, "//": true, "%zz": true,
	} {
		f := facts(t)
		f.Cluster.Spec.Seed.Spec.Ingress = nil
		f.Cluster.Spec.Shoot.Status.AdvertisedAddresses = []gardener.Address{{Name: "external", URL: in}}
		got, found := f.Names()
		if bad != !gardener.Usable(found) || !bad && !slices.Equal(got.API, []string{"api.example"}) {
			t.Errorf("%q: %q, %v", in, got.API, found)
		}
		if bad && brief(found)[0] != "status.advertisedAddresses[0].url FieldValueInvalid access_list_invalid" {
			t.Errorf("%q: %v", in, brief(found))
		}
	}
	f := facts(t)
	f.Cluster.Spec.Shoot.Status.AdvertisedAddresses[0].URL = "https://192.0.2.1"
	if got, found := f.Names(); len(found) != 1 || !gardener.Usable(found) || len(got.API) != 2 {
		t.Errorf("an address beside a name: %q, %v", got.API, found)
	}
	f.Cluster.Spec.Shoot.Status.AdvertisedAddresses[1].URL = "https://[2001:db8::1]:443"
	if _, found := f.Names(); len(found) != 3 || brief(found)[2] != "status.advertisedAddresses FieldValueRequired not_found" {
		t.Errorf("addresses alone: %v", found)
	}
	f.Cluster.Spec.Shoot.Status.AdvertisedAddresses = nil // 2
	if _, found := f.Names(); fmt.Sprint(brief(found)) != "[status.advertisedAddresses FieldValueRequired not_found]" {
		t.Errorf("%v", found)
	}
	f.Cluster.Spec.Shoot.Status.TechnicalID = "Shoot.x"
	if _, found := f.Names(); fmt.Sprint(brief(found)) != "[status.technicalID FieldValueInvalid access_list_invalid]" {
		t.Errorf("%v", found)
	}
}

// FuzzAddress: an advertised address never panics, and gives a name or a problem.
func FuzzAddress(f *testing.F) {
	f.Add("https://api.example:443")
	f.Add("api.example//x")
	of := facts(f)
	f.Fuzz(func(t *testing.T, url string) {
		g := of
		g.Cluster.Spec.Shoot.Status.AdvertisedAddresses = []gardener.Address{{Name: "external", URL: url}}
		got, found := g.Names()
		if len(got.API) > 0 && !gardener.Usable(found) || len(got.API) == 0 && gardener.Usable(found) || slices.ContainsFunc(got.API, func(s string) bool { return strings.ContainsAny(s, ":/ *") }) {
			t.Fatalf("%q: %q, %v", url, got.API, found)
		}
	})
}

// with has another rule.
func with(f gardener.Facts, raw string) gardener.Facts {
	f.Extension.Spec.ProviderConfig = []byte(raw)
	return f
}

// TestVerdicts: what a list decides in each flow, and what explains it.
func TestVerdicts(t *testing.T) {
	allow, deny := facts(t), with(facts(t), rule("action", `"deny"`))
	for _, c := range []struct {
		facts      gardener.Facts
		from, rule string
		allow      bool
	}{
		{allow, "192.0.2.7", `allowed by rule "acl-allow"`, true},
		{allow, "2001:db8::7", `allowed by rule "acl-allow"`, true},
		{allow, "203.0.113.7", `no rule allows 203.0.113.7 for shoot--p--s/`, false},
		{allow, "10.250.0.1", `allowed by rule "seed-nodes" of group "platform"`, true}, // 47
		{allow, "198.51.100.7", `allowed by rule "shoot-egress" of group "platform"`, true},
		{with(allow, rule("action", `"allow"`)), "10.180.0.1", `allowed by rule "shoot-nodes" of group "platform"`, true}, // 3.2
		{deny, "192.0.2.7", `192.0.2.7 is denied for shoot--p--s/`, false},                                                // 46
		{deny, "::ffff:192.0.2.7", `192.0.2.7 is denied for shoot--p--s/`, false},
		{deny, "203.0.113.7", `allowed by rule "acl-others"`, true},
		{deny, "10.250.0.1", `allowed by rule "acl-others"`, true},
		{deny, "2001:db8::7", `allowed by rule "acl-others"`, true},
	} {
		got, found := c.facts.Read(gardener.Options{Most: gardener.DefaultMostRanges})
		p, problems := policy.Of(got.Policy.AccessContent)
		if p == nil || len(problems) > 0 || len(found) > 0 {
			t.Fatal(found, problems)
		}
		for _, flow := range policy.EdgeFlows() {
			v := policy.Decide(policy.Request{Cluster: "shoot--p--s", Flow: flow, Source: netip.MustParseAddr(c.from), Protected: true}, p)
			if v.Allow != c.allow || !strings.Contains(v.Why(), c.rule) {
				t.Errorf("%s from %s: %v, %s", flow, c.from, v.Allow, v.Why())
			}
			other := policy.Request{Cluster: "shoot--p--s2", Flow: flow, Source: netip.MustParseAddr(c.from)}
			if v := policy.Decide(other, p); !v.Allow || v.Rule != "" {
				t.Errorf("the list of a shoot with a shorter name counts: %s", v.Why())
			}
		}
	}
}

// TestListsDecideAsTheyAreMeant: both actions, all three types, random ranges of both families.
func TestListsDecideAsTheyAreMeant(t *testing.T) {
	pool := []string{"192.0.2.0/24", "192.0.2.128/25", "203.0.113.7/32", "0.0.0.0/1", "2001:db8::/32", "2001:db8:1::/48", "::/0", "10.250.3.0/24"}
	of := facts(t)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 1, 4, rapid.ID[string]).Draw(t, "ranges")
		action := rapid.SampledFrom([]string{"ALLOW", "allow", "DENY", "Deny"}).Draw(t, "action")
		typ := rapid.SampledFrom([]string{"direct_remote_ip", "remote_ip", "source_ip"}).Draw(t, "type")
		raw, _ := json.Marshal(map[string]any{"rule": map[string]any{"action": action, "type": typ, "cidrs": list}})
		got, found := with(of, string(raw)).Read(gardener.Options{Force: true})
		p, _ := policy.Of(got.Policy.AccessContent)
		if p == nil {
			t.Fatal(found)
		}
		in := func(a netip.Addr) bool {
			return slices.ContainsFunc(list, func(s string) bool { return netip.MustParsePrefix(s).Contains(a) })
		}
		for _, text := range []string{"192.0.2.1", "192.0.2.200", "203.0.113.7", "203.0.113.8", "10.250.3.4", "10.180.0.1", "198.51.100.7", "2001:db8:1::1", "2001:db9::1"} {
			a := netip.MustParseAddr(text)
			platform := slices.ContainsFunc(got.Platform, func(r gardener.Range) bool { return r.Prefix.Contains(a) })
			want := in(a) || platform
			if strings.EqualFold(action, "DENY") {
				want = !in(a)
			}
			for _, flow := range policy.EdgeFlows() {
				w := policy.EdgeWay{Cluster: "shoot--p--s", Flow: flow, Name: "*-p--s.ingress.eu1.example"}
				v := policy.Decide(policy.Request{Cluster: w.Cluster, Flow: flow, Source: a, Protected: true}, p)
				if listed := policy.NewEdgeRules(p).Sources(w, true).Admits(a); v.Allow != want || listed != want {
					t.Fatalf("%s %v from %s in %s: %v, listed %v: %s", action, list, a, flow, v.Allow, listed, v.Why())
				}
			}
		}
	})
}

// TestLockouts: a list that refuses its author or the platform is refused, unless forced.
func TestLockouts(t *testing.T) {
	const at = "spec.providerConfig.rule.cidrs FieldValueForbidden access_list_lockout"
	for name, c := range map[string]struct {
		raw    string
		author string
		want   []string
		what   string
	}{
		"the author is in the list":       {rule("", ""), "192.0.2.7", nil, ""},
		"the author is not":               {rule("", ""), "203.0.113.7", []string{at}, "the author of the list, at 203.0.113.7 is locked out: "},
		"the author came by IPv4 in IPv6": {rule("", ""), "::ffff:192.0.2.7", nil, ""},
		"nobody knows the author":         {rule("", ""), "", nil, ""},
		"the author is denied":            {`{"rule":{"action":"DENY","type":"remote_ip","cidrs":["203.0.113.0/24"]}}`, "203.0.113.7", []string{at}, "203.0.113.7 is locked out"},
		"a denied part of the nodes":      {`{"rule":{"action":"deny","type":"remote_ip","cidrs":["10.180.7.0/24"]}}`, "", []string{at}, "Shoot garden-p/s spec.networking.nodes: 10.180.0.0/16 is locked out: 10.180.7.0 is denied for shoot--p--s/api by rule \"acl-deny\""},
		"denied egress":                   {`{"rule":{"action":"deny","type":"remote_ip","cidrs":["198.51.100.7/32"]}}`, "", []string{at}, "Infrastructure shoot--p--s/s status.egressCIDRs: 198.51.100.7"},
	} {
		o := gardener.Options{}
		if c.author != "" {
			o.Author = netip.MustParseAddr(c.author)
		}
		f := with(facts(t), c.raw)
		got, found := f.Read(o)
		if !slices.Equal(brief(found), c.want) || len(found) > 0 && !strings.Contains(found[0].What, c.what) {
			t.Errorf("%s: %v", name, found)
		}
		if len(c.want) == 0 {
			continue
		}
		if len(got.Policy.Rules) > 0 || !strings.Contains(found[0].Next, `tombolo.dev/force: "true"`) || !fault.Has(found[0].Fault(), fault.CodeLockout) {
			t.Errorf("%s: %+v, %v", name, got, found[0])
		}
		f.Extension.Metadata.Annotations = map[string]string{gardener.AnnotationForce: "true"}
		got, found = f.Read(o)
		if len(got.Policy.Rules) == 0 || len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].What, c.what) {
			t.Errorf("%s, forced: %v", name, found)
		}
		f.Extension.Metadata.Annotations[gardener.AnnotationForce] = "yes"
		if _, found = f.Read(o); gardener.Usable(found) {
			t.Errorf("%s: forced by another value", name)
		}
	}
}

// TestWhatAPolicyDependsOn: which changes give another one. 39 does not hold here: an object that comes or goes matters, if it
// changes what follows; there is no watch of events that could be missed.
func TestWhatAPolicyDependsOn(t *testing.T) {
	differs := func(after gardener.Facts) bool {
		a, was := facts(t).Read(gardener.Options{})
		b, is := after.Read(gardener.Options{})
		return !reflect.DeepEqual(a, b) || !reflect.DeepEqual(was, is)
	}
	for name, c := range map[string]struct {
		change func(*gardener.Facts)
		want   bool
	}{
		"39: nothing":                 {func(*gardener.Facts) {}, false},
		"39: the Infrastructure goes": {func(f *gardener.Facts) { f.Infrastructure = nil }, true},
		"40: other egress":            {func(f *gardener.Facts) { f.Infrastructure.Status.EgressCIDRs = []string{"198.51.100.9/32"} }, true},
		"42: another field of the status": {func(f *gardener.Facts) {
			f.Infrastructure = decode[*gardener.Infrastructure](t, `{"metadata": {"name": "s", "namespace": "shoot--p--s", "generation": 7},
				"status": {"egressCIDRs": ["198.51.100.7/32", "198.51.100.6/32"], "providerStatus": {"x": 1}, "nodesCIDR": "10.0.0.0/8"}}`)
		}, false},
		"1.8: additional ranges":   {func(f *gardener.Facts) { f.Additional = []string{"10.0.0.0/8"} }, true},
		"1.1: the seed's networks": {func(f *gardener.Facts) { f.Cluster.Spec.Seed.Spec.Networks.Pods = "10.64.0.0/11" }, true},
		"1.1: a new host":          {func(f *gardener.Facts) { f.Cluster.Spec.Shoot.Status.AdvertisedAddresses[0].URL = "https://x.example" }, true},
		"1.1: ipMode": {func(f *gardener.Facts) {
			f.Gateway, f.ShootInfo = gateway(t, `{"ipMode": "Proxy"}`), shootInfo(map[string]string{"egressCIDRs": "203.0.113.1/32"})
		}, true},
		"the list": {func(f *gardener.Facts) { f.Extension.Spec.ProviderConfig = []byte(rule("action", `"DENY"`)) }, true},
	} {
		after := facts(t)
		c.change(&after)
		if got := differs(after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	reordered := facts(t) // 41
	slices.Reverse(reordered.Infrastructure.Status.EgressCIDRs)
	if differs(reordered) {
		t.Error("41: the order matters")
	}
}
