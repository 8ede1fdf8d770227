// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

const c1 = `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: c1}
spec:
  ways:
  - flow: api
    names: [API.c1.example.org., "*.c1.example.org"]
    upstreams: ["192.0.2.1:6443", "[2001:db8::1]:6443", "kube-apiserver.c1.svc:443"]
    proxyProtocol: v2
  - flow: vpn
    destinations:
    - outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local
  - flow: vpn
    names: [hub.c1.example.org]
    protocols: [tombolo-session/1]
    upstreams: ["hub:8443"]
`

func read(t testing.TB, text string) *tenant.Tenant {
	t.Helper()
	out, doc := tenant.Read("t.yaml", []byte(text))
	if out == nil {
		t.Fatal(doc.Err())
	}
	return out
}

func TestRead(t *testing.T) {
	c := read(t, c1)
	if c.Name != "c1" || len(c.Ways) != 3 || c.Protected || c.Ways[0].Proxy != tenant.ProxyV2 || c.Ways[1].Proxy != tenant.NoProxy ||
		!slices.Equal(c.Ways[0].Names, []string{"api.c1.example.org", ".c1.example.org"}) {
		t.Fatalf("%+v", c)
	}
}

func TestReadRefuses(t *testing.T) {
	file := func(way string) string {
		return "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c1}\nspec:\n  ways:\n  - " + way + "\n"
	}
	for name, c := range map[string]struct{ in, want string }{
		"no way":              {"apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c1}\nspec: {}\n", "t.yaml:4:7: spec.ways: there is no way"},
		"no name":             {strings.Replace(c1, "name: c1", "name: C_1", 1), "t.yaml:3:18: metadata.name: "},
		"another kind":        {strings.Replace(c1, "EdgeTenant", "HubConfig", 1), "t.yaml:2:7: kind: \"EdgeTenant\" is expected"},
		"unknown flow":        {file(`{flow: apis, names: [a], upstreams: ["b:1"]}`), `t.yaml:6:12: spec.ways[0].flow: "apis" is none of api, vpn, proxy, ingress; did you mean api?`},
		"a dial":              {file(`{flow: dial, names: [a], upstreams: ["b:1"]}`), `"dial" is none of`},
		"a bad name":          {file(`{flow: api, names: [a, "b c"], upstreams: ["b:1"]}`), "t.yaml:6:28: spec.ways[0].names[1]: name \"b c\" has the character ' '"},
		"a star before text":  {file(`{flow: api, names: ["*a.b"], upstreams: ["b:1"]}`), "names[0]"},
		"a star and a hyphen": {file(`{flow: api, names: ["*-"], upstreams: ["b:1"]}`), "names[0]"},
		"a star within":       {file(`{flow: api, names: ["a.*.b"], upstreams: ["b:1"]}`), "names[0]"},
		"an address":          {file(`{flow: api, names: [192.0.2.1], upstreams: ["b:1"]}`), "names[0]"},
		"an empty protocol":   {file(`{flow: api, protocols: [""], upstreams: ["b:1"]}`), "protocols[0]"},
		"a destination":       {file(`{flow: vpn, destinations: ["outbound|1194||x"]}`), "is none of the known forms"},
		"a socket":            {file(`{flow: proxy, destinations: [shoot--p--s--kube-apiserver-socket]}`), "name the upstreams"},
		"both":                {file(`{flow: vpn, names: [a], destinations: ["outbound|443||kube-apiserver.ns.svc.cluster.local"], upstreams: ["a:1"]}`), "write two ways"},
		"neither":             {file(`{flow: vpn, upstreams: ["a:1"]}`), "neither names, protocols nor destinations"},
		"no upstream":         {file(`{flow: api, names: [a]}`), "there is no upstream"},
		"no port":             {file(`{flow: api, names: [a], upstreams: [b]}`), `upstreams[0]: "b" is not host:port`},
		"port 0":              {file(`{flow: api, names: [a], upstreams: ["b:0"]}`), "is not host:port"},
		"an upstream twice":   {file(`{flow: api, names: [a], upstreams: ["b:1", "b:1"]}`), "is listed twice"},
		"a bad upstream":      {file(`{flow: api, names: [a], upstreams: ["b_-:1"]}`), "upstreams[0]"},
		"PROXY v3":            {file(`{flow: api, names: [a], upstreams: ["b:1"], proxyProtocol: v3}`), "none of none, v1, v2"},
		"a name twice":        {file("{flow: api, names: [a], upstreams: [\"b:1\"]}\n  - {flow: ingress, names: [b, A], upstreams: [\"b:1\"]}"), `spec.ways[1].names[1]: name "a" is claimed by another way of this tenant`},
		"too many upstreams":  {file(`{flow: api, names: [a], upstreams: ["b:1"` + strings.Repeat(`, "b:2"`, 20) + `]}`), "at most 16"},
		"too many names":      {file(`{flow: api, names: [a` + strings.Repeat(`, a`, 300) + `], upstreams: ["b:1"]}`), "at most 256"},
		"a hub's name":        {file(`{flow: api, names: [a], hubs: [{name: H1, target: "b:1"}]}`), "t.yaml:6:43: spec.ways[0].hubs[0].name"},
		"a hub's cluster":     {file(`{flow: api, names: [a], hubs: [{name: h1, cluster: C_1, target: "b:1"}]}`), "spec.ways[0].hubs[0].cluster"},
		"a hub's target":      {file(`{flow: api, names: [a], hubs: [{name: h1, target: b}]}`), "spec.ways[0].hubs[0].target"},
		"a stream twice":      {file(`{flow: api, names: [a], hubs: [{name: h1, target: "b:1"}, {name: h1, cluster: c1, target: "b:1"}]}`), "hub:h1/c1/b:1 is listed twice"},
		"an unknown field":    {file(`{flow: api, name: a, upstreams: ["b:1"]}`), `unknown key`},
		"several at one time": {file(`{flow: x, names: ["?"], upstreams: [b]}`), "upstreams[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, doc := tenant.Read("t.yaml", []byte(c.in))
			if got != nil || !strings.Contains(fmt.Sprint(doc.Err()), c.want) {
				t.Fatalf("%+v, %v; want %s", got, doc.Err(), c.want)
			}
		})
	}
}

func TestRouting(t *testing.T) {
	table := tenant.NewTable()
	c2 := read(t, strings.NewReplacer("c1", "c2", "API.", "").Replace(c1))
	rest := read(t, `apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: hub}
spec:
  ways:
  - {flow: vpn, protocols: [tombolo-session/1, tombolo-join/1], upstreams: ["hub:8443"]}
  - {flow: ingress, names: ["*-p--s.ingress.example", "*.ingress.example"], upstreams: ["x:1"]}
  - {flow: ingress, names: ["*-x-p--s.ingress.example"], upstreams: ["y:1"]}
`)
	for _, c := range []*tenant.Tenant{read(t, c1), c2, rest} {
		if claims := table.Put(c); claims != nil {
			t.Fatal(claims)
		}
	}
	for _, c := range []struct{ name, protocols, want string }{
		{"api.c1.example.org", "", "c1/0"},
		{"api.c1.example.org", "h2", "c1/0"},
		{"x.y.c1.example.org", "", "c1/0"},
		{"c1.example.org", "", ""},
		{"c2.example.org", "h2", "c2/0"}, // named exactly
		{"hub.c1.example.org", "", "c1/0"},
		{"hub.c1.example.org", "h2 tombolo-session/1", "c1/2"},
		{"hub.c1.example.org", "tombolo-join/1", "c1/0"},
		{"au-p--s.ingress.example", "", "hub/1"},
		{"au-x-p--s.ingress.example", "", "hub/2"}, // the longest end
		{"x-p--s.ingress.example", "", "hub/1"},
		{"a.b-p--s.ingress.example", "", "hub/1"},
		{"p--s.ingress.example", "", "hub/1"}, // below ingress.example
		{"-p--s.else.example", "", ""},
		{"", "", ""},
		{"", "h2", ""},
		{"", "h2 tombolo-join/1", "hub/0"},
		{"else.example", "tombolo-session/1", "hub/0"},
	} {
		r, ok := table.ByName(c.name, strings.Fields(c.protocols))
		if got := where(r); got != c.want || ok != (c.want != "") {
			t.Errorf("%q with %q: %s, want %s", c.name, c.protocols, got, c.want)
		}
	}
	d, err := connecthead.ParseDestination("outbound|1194||vpn-seed-server.shoot--p--c2.svc.cluster.local")
	if r, ok := table.ByDestination(d); err != nil || !ok || where(r) != "c2/1" {
		t.Errorf("%v, %v", r, err)
	}
	d.Replica = 0
	if r, ok := table.ByDestination(d); ok {
		t.Errorf("%+v", r)
	}
}

func where(r tenant.Route) string {
	if r.Tenant == nil {
		return ""
	}
	for i := range r.Tenant.Ways {
		if r.Way == &r.Tenant.Ways[i] {
			return fmt.Sprintf("%s/%d", r.Tenant.Name, i)
		}
	}
	return "?"
}

// Who came first stays, and a tenant that is refused changes nothing.
func TestPutOfATakenName(t *testing.T) {
	table := tenant.NewTable()
	table.Put(read(t, c1))
	other := read(t, strings.NewReplacer("name: c1", "name: c3", "hub.c1", "hub.c3", "--c1", "--c3").Replace(c1))
	claims := table.Put(other)
	want := []tenant.Claim{{"spec.ways[0].names[0]", `name "api.c1.example.org"`, "c1"}, {"spec.ways[0].names[1]", `name "*.c1.example.org"`, "c1"}}
	if !slices.Equal(claims, want) {
		t.Fatal(claims)
	}
	if _, ok := table.ByName("hub.c3.example.org", []string{"tombolo-session/1"}); ok || table.Get("c3") != nil || len(table.All()) != 1 {
		t.Error("a part of a refused tenant is there")
	}
	table.Remove("c1")
	if claims := table.Put(other); claims != nil || table.Get("c3") != other {
		t.Error(claims)
	}
	// In the place of the one that has them, under another name.
	first := read(t, c1)
	if claims := table.Replace("c3", first); claims != nil || table.Get("c1") != first || len(table.All()) != 1 {
		t.Error(claims)
	}
}

// Any order of changes leads to the routes of the tenants that are there.
func TestTableAgainstAList(t *testing.T) {
	names := []string{"a.example", "b.example", "*.example", "*.b.example", "*-b.example", "*-y.b.example"}
	rapid.Check(t, func(t *rapid.T) {
		table, list := tenant.NewTable(), map[string]*tenant.Tenant{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(t, "tenant")
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				table.Remove(who)
				delete(list, who)
				continue
			}
			text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: " + who + "}\nspec:\n  ways:\n"
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID[string]).Draw(t, "names") {
				text += "  - {flow: api, names: [\"" + n + "\"], upstreams: [\"u:1\"]}\n"
			}
			c, doc := tenant.Read("t.yaml", []byte(text))
			if c == nil {
				t.Fatal(doc.Err())
			}
			taken := false
			for _, other := range list {
				taken = taken || other.Name != who && slices.ContainsFunc(other.Ways, func(w tenant.Way) bool {
					return slices.ContainsFunc(c.Ways, func(v tenant.Way) bool { return v.Names[0] == w.Names[0] })
				})
			}
			if claims := table.Put(c); (claims != nil) != taken {
				t.Fatalf("%+v of %+v: %v", c, list, claims)
			}
			if !taken {
				list[who] = c
			}
		}
		for _, asked := range []string{"a.example", "b.example", "x.b.example", "example", "x.y.example", "x-b.example", "x-y.b.example", "x-y.x-b.example"} {
			want, most := "", -1
			for _, c := range list {
				for i, w := range c.Ways {
					n := w.Names[0]
					if n == asked || strings.ContainsAny(n[:1], ".-") && strings.HasSuffix(asked, n) {
						if exact := len(n) + map[bool]int{true: 100}[n == asked]; exact > most {
							want, most = fmt.Sprintf("%s/%d", c.Name, i), exact
						}
					}
				}
			}
			if r, _ := table.ByName(asked, nil); where(r) != want {
				t.Fatalf("%s: %s, want %s of %+v", asked, where(r), want, list)
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(c1))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, doc := tenant.Read("t.yaml", data)
		if (c == nil) != (doc.Err() != nil) {
			t.Fatal(doc.Err())
		}
		if c == nil {
			return
		}
		table := tenant.NewTable()
		if claims := table.Put(c); claims != nil {
			t.Fatal(claims)
		}
		if table.Remove(c.Name); len(table.All()) > 0 {
			t.Fatal("something stays")
		}
	})
}

// BenchmarkChange changes one tenant of so many.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := tenant.NewTable()
			for i := range n {
				table.Put(read(b, strings.ReplaceAll(c1, "c1", fmt.Sprintf("c%d", i))))
			}
			c := read(b, strings.ReplaceAll(c1, "c1", "c7"))
			b.ReportAllocs()
			for b.Loop() {
				if claims := table.Put(c); claims != nil {
					b.Fatal(claims)
				}
			}
		})
	}
}

func TestClaims(t *testing.T) {
	got := read(t, c1).Claims()
	for claim, want := range map[string]string{
		`name "api.c1.example.org"`:                                                   "spec.ways[0].names[0]",
		`name "hub.c1.example.org" with protocol "tombolo-session/1"`:                 "spec.ways[2].names[0]",
		`destination "outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local"`: "spec.ways[1].destinations[0]",
		`namespace "shoot--p--c1" of destinations`:                                    "spec.ways[1].destinations[0]",
	} {
		if got[claim] != want {
			t.Errorf("%s: %q of %v", claim, got[claim], got)
		}
	}
	if len(got) != 5 {
		t.Error(got)
	}
}

func TestReadable(t *testing.T) {
	of := func(flow string, names ...string) v1alpha1.EdgeWay { return v1alpha1.EdgeWay{Flow: flow, Names: names} }
	vpn := "outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local"
	spec := v1alpha1.EdgeTenantSpec{Protected: true, Ways: []v1alpha1.EdgeWay{of("api", "API.c1.example", "b c", "*-x.example"),
		of("apis", "x.example"), of("vpn", "?"), {Flow: "vpn", Destinations: []string{vpn, "outbound|1194||x"}}}}
	got := tenant.Readable("c1", spec)
	if got == nil || !got.Protected || len(got.Ways) != 2 || !slices.Equal(got.Ways[0].Names, []string{"api.c1.example", "-x.example"}) ||
		len(got.Ways[1].Destinations) != 1 || got.Ways[1].Destinations[0].String() != vpn {
		t.Errorf("%+v", got)
	}
	for name, spec := range map[string]v1alpha1.EdgeTenantSpec{"c1": {Ways: []v1alpha1.EdgeWay{of("vpn", "?")}}, "C_1": spec} {
		if got := tenant.Readable(name, spec); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
