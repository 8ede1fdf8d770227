// SPDX-License-Identifier: Apache-2.0

package extauthz_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/edge/extauthz"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

const rules = `apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules:
- {name: office, group: people, clusters: [foo], flows: [api], sources: [203.0.113.0/24, "2001:db8::/32"], allow: ["*"]}
- {name: laptop, clusters: [foo], flows: [api], sources: [203.0.113.7], deny: ["*"]}
- {name: nodes, clusters: [foo], flows: [vpn], sources: [198.51.100.0/24], allow: ["*"]}
- {name: other, clusters: [foo-bar], flows: [api, vpn], sources: [192.0.2.0/24], allow: ["*"]}
`

const (
	vpnFoo    = "outbound|1194||vpn-seed-server.foo.svc.cluster.local"
	vpnFooBar = "outbound|1194||vpn-seed-server.foo-bar.svc.cluster.local"
)

func compiled(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, findings := policy.Read("p.yaml", []byte(text), func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

func addTenant(t testing.TB, to *tenant.Table, name, more string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: %s}
spec:
  %s
  ways:
  - {flow: api, names: [%[1]s.example.org], upstreams: ["192.0.2.1:6443"]}
  - {flow: vpn, destinations: [outbound|1194||vpn-seed-server.%[1]s.svc.cluster.local]}
`, name, more)
	one, doc := tenant.Read("t.yaml", []byte(text))
	if one == nil {
		t.Fatal(doc.Err())
	}
	if claims := to.Put(one); claims != nil {
		t.Fatal(claims)
	}
}

type world struct {
	*extauthz.Server
	policy  *authz.Table
	tenants *tenant.Table
}

func newWorld(t testing.TB, records *audit.Writer) world {
	t.Helper()
	w := world{policy: authz.NewTable(), tenants: tenant.NewTable()}
	w.policy.Replace(true, map[string]*policy.Policy{"p": compiled(t, rules)})
	for _, name := range []string{"foo", "foo-bar", "open"} {
		addTenant(t, w.tenants, name, "")
	}
	addTenant(t, w.tenants, "closed", "protected: true")
	w.Server = extauthz.New(extauthz.Options{
		Policy: w.policy, Tenants: w.tenants, Audit: records, Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(),
	})
	return w
}

func address(ip string, port uint32) *authv3.AttributeContext_Peer {
	return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}},
	}}}
}

func network(source, sni string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: address(source, 40000), Destination: address("10.0.0.1", 9443),
		TlsSession: &authv3.AttributeContext_TLSSession{Sni: sni},
	}}
}

// http makes the request of an HTTP filter; each header is NAME: VALUE. raw: as a list.
func http(source string, raw bool, headers ...string) *authv3.CheckRequest {
	h := &authv3.AttributeContext_HttpRequest{Method: "CONNECT"}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if raw {
			if h.HeaderMap == nil {
				h.HeaderMap = &corev3.HeaderMap{}
			}
			h.HeaderMap.Headers = append(h.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
			continue
		}
		if h.Headers == nil {
			h.Headers = map[string]string{}
		}
		if old, twice := h.Headers[name]; twice { // as Envoy does
			value = old + "," + value
		}
		h.Headers[name] = value
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: address(source, 40000), Destination: address("10.0.0.1", 8132),
		Request: &authv3.AttributeContext_Request{Http: h},
	}}
}

// result is a verdict in short: allow, or the code of the refusal; and the rule.
func result(t testing.TB, r *authv3.CheckResponse) string {
	t.Helper()
	m := r.GetDynamicMetadata().GetFields()
	verdict, code, rule := m["verdict"].GetStringValue(), m["code"].GetStringValue(), m["rule"].GetStringValue()
	if allowed := r.GetStatus().GetCode() == int32(codes.OK); allowed != (verdict == "allow") || allowed != (code == "") {
		t.Fatalf("the status and the metadata differ: %v", r)
	}
	if r.GetOkResponse() != nil && verdict != "allow" || r.GetDeniedResponse() != nil && verdict != "deny" {
		t.Fatalf("the status and the HTTP answer differ: %v", r)
	}
	if code != "" {
		verdict = code
	}
	return strings.TrimSpace(verdict + " " + rule)
}

func TestCheck(t *testing.T) {
	w := newWorld(t, nil)
	const in, node = "203.0.113.1", "198.51.100.1"
	noSource, noPort, pipe := network(in, "foo.example.org"), network(in, "foo.example.org"), network(in, "foo.example.org")
	noSource.Attributes.Source = nil
	noPort.Attributes.Destination = nil
	pipe.Attributes.Source.Address.Address = &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/x"}}
	both := http(node, true, "reversed-vpn: "+vpnFoo)
	both.Attributes.Request.Http.Headers = map[string]string{"reversed-vpn": vpnFooBar}
	two := http(node, true, "reversed-vpn: "+vpnFoo)
	two.Attributes.Request.Http.HeaderMap.Headers[0].Value = vpnFooBar
	for name, c := range map[string]struct {
		in   *authv3.CheckRequest
		want string
	}{
		"allowed":                  {network(in, "foo.example.org"), "allow office"},
		"allowed, IPv6":            {network("2001:db8::9", "foo.example.org"), "allow office"},
		"allowed, mapped IPv4":     {network("::ffff:203.0.113.1", "foo.example.org"), "allow office"},
		"allowed, in capitals":     {network(in, "FOO.example.org"), "allow office"},
		"denied by a rule":         {network("203.0.113.7", "foo.example.org"), "policy_denied laptop"},
		"denied by a rule, mapped": {network("::ffff:203.0.113.7", "foo.example.org"), "policy_denied laptop"},
		"no rule":                  {network("192.0.2.1", "foo.example.org"), "policy_denied"},
		"no rule, IPv6":            {network("2001:db9::1", "foo.example.org"), "policy_denied"},
		"prefix name":              {network(in, "foo-bar.example.org"), "policy_denied"},
		"prefix name, its own":     {network("192.0.2.1", "foo-bar.example.org"), "allow other"},
		"unprotected":              {network("192.0.2.1", "open.example.org"), "allow"},
		"protected, no rule":       {network(in, "closed.example.org"), "policy_denied"},
		"unknown name":             {network(in, "food.example.org"), "name_unknown"},
		"a name below":             {network(in, "x.foo.example.org"), "name_unknown"},
		"no name":                  {network(in, ""), "name_missing"},
		"a malformed name":         {network(in, "foo.example.org\x00"), "request_malformed"},
		"no source":                {noSource, "request_malformed"},
		"a source without address": {pipe, "request_malformed"},
		"a source that is a name":  {network("localhost", "foo.example.org"), "request_malformed"},
		"a source with a zone":     {network("fe80::1%eth0", "foo.example.org"), "request_malformed"},
		"the unspecified source":   {network("0.0.0.0", "foo.example.org"), "request_malformed"},
		"no port":                  {noPort, "request_malformed"},
		"nothing":                  {&authv3.CheckRequest{}, "request_malformed"},
		"nil":                      {nil, "request_malformed"},
		"both forms of headers":    {both, "request_malformed"},
		"two values of a header":   {two, "request_malformed"},
	} {
		t.Run(name, func(t *testing.T) { w.judge(t, c.in, c.want) })
	}
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"vpn":                     {[]string{"reversed-vpn: " + vpnFoo, "host: x"}, "allow nodes"},
		"the new header":          {[]string{"x-gardener-destination: " + vpnFoo}, "allow nodes"},
		"in capitals":             {[]string{"Reversed-VPN: " + vpnFoo}, "allow nodes"},
		"prefix name":             {[]string{"reversed-vpn: " + vpnFooBar}, "policy_denied"},
		"no header":               {[]string{"host: foo.example.org"}, "name_missing"},
		"twice":                   {[]string{"reversed-vpn: " + vpnFoo, "reversed-vpn: " + vpnFoo}, "request_malformed"},
		"own and another's":       {[]string{"reversed-vpn: " + vpnFoo, "reversed-vpn: " + vpnFooBar}, "request_malformed"},
		"both names":              {[]string{"reversed-vpn: " + vpnFoo, "x-gardener-destination: " + vpnFoo}, "request_malformed"},
		"twice in other case":     {[]string{"reversed-vpn: " + vpnFoo, "Reversed-Vpn: " + vpnFooBar}, "request_malformed"},
		"empty":                   {[]string{"reversed-vpn: "}, "request_malformed"},
		"space before":            {[]string{"reversed-vpn:  " + vpnFoo}, "name_unknown"},
		"space behind":            {[]string{"reversed-vpn: " + vpnFoo + " "}, "name_unknown"},
		"in other case":           {[]string{"reversed-vpn: " + strings.ToUpper(vpnFoo)}, "name_unknown"},
		"contains a known one":    {[]string{"reversed-vpn: x" + vpnFoo}, "name_unknown"},
		"another replica":         {[]string{"reversed-vpn: outbound|1194||vpn-seed-server-0.foo.svc.cluster.local"}, "name_unknown"},
		"another service":         {[]string{"reversed-vpn: outbound|443||kube-apiserver.foo.svc.cluster.local"}, "name_unknown"},
		"another namespace":       {[]string{"reversed-vpn: outbound|1194||vpn-seed-server.fo.svc.cluster.local"}, "name_unknown"},
		"underscore in its place": {[]string{"reversed_vpn: " + vpnFoo}, "name_missing"},
	} {
		for _, raw := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, raw %v", name, raw), func(t *testing.T) { w.judge(t, http(node, raw, c.headers...), c.want) })
		}
	}
}

func (w world) judge(t *testing.T, in *authv3.CheckRequest, want string) {
	t.Helper()
	out, err := w.Check(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if got := result(t, out); got != want {
		t.Errorf("%s, want %s (%s)", got, want, out.Status.Message)
	}
}

// TestAnswers: a refused client learns the code and not the rule; Envoy learns both.
func TestAnswers(t *testing.T) {
	w := newWorld(t, nil)
	out, _ := w.Check(t.Context(), http("192.0.2.1", false, "reversed-vpn: "+vpnFoo))
	d := out.GetDeniedResponse()
	if d.GetStatus().GetCode() != 403 || d.GetHeaders()[0].GetHeader().GetKey() != "tombolo-fault" ||
		d.GetHeaders()[0].GetHeader().GetValue() != "policy_denied" || d.GetBody() != "the policy refuses the source (policy_denied)\n" {
		t.Errorf("%v", d)
	}
	if !strings.Contains(out.Status.Message, "192.0.2.1 for foo/vpn") {
		t.Errorf("%v", out.Status)
	}
	out, _ = w.Check(t.Context(), network("203.0.113.1", "foo.example.org"))
	if m := out.DynamicMetadata.Fields; out.HttpResponse != nil || m["group"].GetStringValue() != "people" ||
		m["cluster"].GetStringValue() != "foo" || m["flow"].GetStringValue() != "api" || out.Status.Message == "" {
		t.Errorf("%v", out)
	}
	for status, in := range map[int32]*authv3.CheckRequest{
		400: http("192.0.2.1", false), 404: http("192.0.2.1", false, "reversed-vpn: x"),
	} {
		if out, _ := w.Check(t.Context(), in); int32(out.GetDeniedResponse().GetStatus().GetCode()) != status {
			t.Errorf("%d: %v", status, out)
		}
	}
}

// TestSwap: a changed policy or tenant counts for the next request.
func TestSwap(t *testing.T) {
	w := newWorld(t, nil)
	foo := network("203.0.113.1", "foo.example.org")
	w.judge(t, foo, "allow office")
	w.policy.Replace(true, map[string]*policy.Policy{"p": compiled(t, strings.Replace(rules, "203.0.113.0/24", "192.0.2.0/24", 1))})
	w.judge(t, foo, "policy_denied")
	w.policy.Replace(true, map[string]*policy.Policy{"p": compiled(t, rules)})
	w.tenants.Remove("foo")
	w.judge(t, foo, "name_unknown")
	addTenant(t, w.tenants, "foo", "protected: true")
	w.judge(t, foo, "allow office")
	w.policy.Replace(false, map[string]*policy.Policy{"p": nil})
	w.judge(t, foo, "policy_denied") // it is protected, and there is no policy
}

// TestServe asks over a socket, as Envoy does, and reads the records.
func TestServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	log := slog.New(slog.DiscardHandler)
	records, err := audit.New(audit.Config{Path: file, MaxSize: 1 << 20, MaxAge: time.Hour, Keep: 1},
		audit.Options{Log: log, Reg: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, records)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- records.While(ctx, func() error { return w.Serve(ctx, ln) }) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || health.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(health, err)
	}
	client := authv3.NewAuthorizationClient(conn)
	for i := range 50 { // one source in a loop has a bounded number of records
		out, err := client.Check(t.Context(), network("192.0.2.1", "foo.example.org"))
		if err != nil || result(t, out) != "policy_denied" {
			t.Fatal(i, out, err)
		}
	}
	out, err := client.Check(t.Context(), http("198.51.100.1", true, "reversed-vpn: "+vpnFoo))
	if err != nil || result(t, out) != "allow nodes" {
		t.Fatal(out, err)
	}
	big := http("198.51.100.1", false, "a: "+strings.Repeat("a", 70_000))
	if _, err := client.Check(t.Context(), big); err == nil {
		t.Error("a request of 70 kB is read")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		`"at":"edge","cluster":"foo","frontend":"ext-authz-network","source":"192.0.2.1","egress":"api","asked":"foo.example.org","verdict":"deny"`:    5,
		`"cluster":"foo","frontend":"ext-authz-http","source":"198.51.100.1","egress":"vpn","asked":"` + vpnFoo + `","verdict":"allow","rule":"nodes"`: 1,
		`"reason":"45 more refusals"`: 1,
	} {
		if n := bytes.Count(text, []byte(want)); n != times {
			t.Errorf("%d records with %s, want %d:\n%s", n, want, times, text)
		}
	}
}

// TestManyClusters measures 100,000 clusters with an entry each, and decisions among them.
func TestManyClusters(t *testing.T) {
	const clusters = 100_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	w := newWorld(t, nil)
	before := heap()
	all := make([]policy.Rule, clusters)
	for i := range all {
		name := fmt.Sprintf("c%d", i)
		all[i] = policy.Rule{Name: name, Cluster: []string{name}, Flow: []string{policy.FlowAPI}, Destination: []string{"*"},
			Source: []string{fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255)}}
	}
	p, problems := policy.Compile(all, nil)
	if p == nil {
		t.Fatal(problems)
	}
	w.policy.Replace(true, map[string]*policy.Policy{"many": p})
	rulesBytes := heap() - before
	for i := range clusters {
		name := fmt.Sprintf("c%d", i)
		w.tenants.Put(&tenant.Tenant{Name: name, Ways: []tenant.Way{{Flow: policy.FlowAPI, Names: []string{name + ".example.org"}}}})
	}
	t.Logf("%d bytes for each entry, %d for each tenant", rulesBytes/clusters, (heap()-before-rulesBytes)/clusters)
	begun, n := time.Now(), 20_000
	for i := range n {
		c := i * 4099 % clusters
		source, want := fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255), fmt.Sprintf("allow c%d", c)
		if i%2 == 1 {
			source, want = "192.0.2.1", "policy_denied"
		}
		out, _ := w.Check(t.Context(), network(source, fmt.Sprintf("c%d.example.org", c)))
		if got := result(t, out); got != want {
			t.Fatalf("c%d: %s, want %s", c, got, want)
		}
	}
	t.Logf("%.0f decisions a second, with their answers", float64(n)/time.Since(begun).Seconds())
}

// FuzzCheck: no request is let in that does not name a tenant exactly, whatever else it says.
func FuzzCheck(f *testing.F) {
	for _, in := range []*authv3.CheckRequest{
		network("203.0.113.1", "foo.example.org"), http("198.51.100.1", true, "reversed-vpn: "+vpnFoo),
		http("198.51.100.1", false, "x-gardener-destination: "+vpnFoo),
	} {
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	w := newWorld(f, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		var in authv3.CheckRequest
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		out, err := w.Check(t.Context(), &in)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(result(t, out), "allow") {
			return
		}
		cluster := out.DynamicMetadata.Fields["cluster"].GetStringValue()
		if w.tenants.Get(cluster) == nil || in.Attributes.GetSource().GetAddress().GetSocketAddress() == nil {
			t.Fatalf("%v is let in", &in)
		}
	})
}
