// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

func covered(t testing.TB, files ...string) *authz.Table {
	t.Helper()
	table := authz.NewTable()
	changed := map[string]*policy.Policy{}
	for i, rules := range files {
		p, findings := policy.Read("p.yaml", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n"+rules), nil)
		if p == nil {
			t.Fatal(findings)
		}
		changed[fmt.Sprint(i)] = p
	}
	table.Replace(len(files) > 0, changed)
	return table
}

func tenantOf(t testing.TB, name string, protected bool) *tenant.Tenant {
	t.Helper()
	out, doc := tenant.Read("t.yaml", fmt.Appendf(nil, `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: %[1]s}
spec:
  protected: %[2]v
  ways:
  - {flow: api, names: [api.%[1]s.example, "*.%[1]s.example"], upstreams: ["u:443"]}
  - {flow: vpn, destinations: ["outbound|1194||vpn-seed-server.%[1]s.svc.cluster.local"]}
`, name, protected))
	if out == nil {
		t.Fatal(doc.Err())
	}
	return out
}

func TestCoverage(t *testing.T) {
	const api = "- {name: office, clusters: [c1], flows: [api], sources: [203.0.113.0/24], allow: ['*']}\n"
	for name, c := range map[string]struct {
		rules     []string
		protected bool
		want      string // guards of api and vpn
		count     int
	}{
		"no policy":                     {nil, false, "open open", 0},
		"no policy, protected":          {nil, true, "tenant tenant", 0},
		"a rule for one flow":           {[]string{api}, false, "rules:office unguarded", 1},
		"and a protected tenant":        {[]string{api}, true, "rules:office tenant", 0},
		"rules for both":                {[]string{api + "- {name: vpn, group: platform, clusters: [c1], flows: [vpn], sources: [198.51.100.1], allow: ['*']}\n"}, false, "rules:office rules:platform/vpn", 0},
		"in two files":                  {[]string{api, "- {name: a, clusters: ['c*'], flows: ['*'], sources: [192.0.2.66], deny: ['*']}\n"}, false, "rules:-a,office rules:-a", 0},
		"for some names":                {[]string{"- {name: n, clusters: [c1], flows: [api], sources: [192.0.2.66], allow: [api.c1.example]}\n"}, false, "rules:n unguarded", 1},
		"a rule for a flow with no way": {[]string{"- {name: i, clusters: [c1], flows: [ingress], sources: [192.0.2.66], allow: ['*']}\n"}, false, "unguarded unguarded", 2},
		"a pattern":                     {[]string{"- {name: i, clusters: ['c*'], flows: [vpn], sources: [192.0.2.66], deny: ['*']}\n"}, false, "unguarded rules:-i", 1},
		"a rule for all clusters":       {[]string{"- {name: i, clusters: ['*'], flows: [vpn], sources: [192.0.2.66], deny: ['*']}\n"}, false, "open rules:-i", 0},
		"a rule that names no cluster":  {[]string{"- {name: i, flows: [vpn, api], sources: [192.0.2.66], deny: ['*']}\n"}, false, "open open", 0},
		"another cluster":               {[]string{strings.Replace(api, "c1", "c1-x", 1)}, false, "open open", 0},
		"dials":                         {[]string{"- {name: i, clusters: [c1], allow: ['*']}\n"}, false, "open open", 0},
	} {
		t.Run(name, func(t *testing.T) {
			table, c1 := covered(t, c.rules...), tenantOf(t, "c1", c.protected)
			got := map[string]string{}
			out := Coverage([]*tenant.Tenant{c1}, table, "")
			for _, w := range out.Ways {
				text := w.Guard
				for i, r := range w.Rules {
					text += map[bool]string{true: ":", false: ","}[i == 0]
					if r.Deny {
						text += "-"
					}
					if r.Group != "" {
						text += r.Group + "/"
					}
					text += r.Rule
				}
				got[w.Flow] = text
			}
			n, clusters := unguarded([]*tenant.Tenant{c1}, table)
			if g := got["api"] + " " + got["vpn"]; g != c.want || n != c.count || out.Guards[admin.GuardUnguarded] != n || (n > 0) != slices.Equal(clusters, []string{"c1"}) {
				t.Errorf("%s, %d unguarded, %v; want %s, %d", g, n, clusters, c.want, c.count)
			}
			// What is called open is what the policy lets anybody do.
			for i, flow := range []string{"api", "vpn"} {
				v := table.Decide(policy.Request{Cluster: "c1", Flow: flow, Name: "x.c1.example", Source: netip.MustParseAddr("198.51.100.77"), Protected: c.protected})
				open := strings.HasPrefix(strings.Fields(c.want)[i], "open") || strings.HasPrefix(strings.Fields(c.want)[i], "unguarded")
				if v.Judged && v.Allow != open {
					t.Errorf("%s: the policy says %v", flow, v.Allow)
				}
			}
		})
	}
}

func TestCoverageListsWhatMattersFirst(t *testing.T) {
	table := covered(t, "- {name: r, clusters: [c1, c3], flows: [api], sources: [203.0.113.0/24], allow: ['*']}\n")
	all := []*tenant.Tenant{tenantOf(t, "c1", false), tenantOf(t, "c2", false), tenantOf(t, "c3", true)}
	var got []string
	for _, w := range Coverage(all, table, "").Ways {
		got = append(got, w.Cluster+"/"+w.Flow+":"+w.Guard)
	}
	want := "c1/vpn:unguarded c2/api:open c2/vpn:open c3/vpn:tenant c1/api:rules c3/api:rules"
	if strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	one := Coverage(all, table, "c3")
	if len(one.Ways) != 2 || one.Tenants != 1 || fmt.Sprint(one.Ways[1].Names) != "[api.c3.example *.c3.example]" ||
		fmt.Sprint(one.Ways[0].Destinations) != "[outbound|1194||vpn-seed-server.c3.svc.cluster.local]" {
		t.Errorf("%+v", one)
	}
	var many []*tenant.Tenant
	for i := range 6_000 {
		many = append(many, tenantOf(t, fmt.Sprintf("d%d", i), false))
	}
	if c := Coverage(append(many, all...), table, ""); len(c.Ways) != waysListed || c.More != 2_006 || c.Ways[0].Guard != admin.GuardUnguarded {
		t.Errorf("%d and %d more", len(c.Ways), c.More)
	}
}

// BenchmarkUnguarded counts them once, as it is done every 30 s.
func BenchmarkUnguarded(b *testing.B) {
	files := make([]string, 10)
	var all []*tenant.Tenant
	for i := range 100_000 {
		files[i%10] += fmt.Sprintf("- {name: r%d, clusters: [c%d], flows: [api], sources: [203.0.113.0/24], allow: ['*']}\n", i, i)
		all = append(all, tenantOf(b, fmt.Sprintf("c%d", i), false))
	}
	table := covered(b, files...)
	b.ReportAllocs()
	for b.Loop() {
		if n, _ := unguarded(all, table); n != len(all) {
			b.Fatal(n)
		}
	}
}
