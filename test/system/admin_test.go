// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestOperatorFromElsewhere(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	remote := h.operator(h.issue(admin.CertificateRequest{Role: "operator", Name: "alice"}))
	var st admin.Status
	if err := remote.Call(runtest.Within(t), "GET", "/v1/status", nil, &st); err != nil || len(st.Clusters) != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	if st.Hub.Version != "test" || st.Hub.CAPin == "" || st.Kind != "Status" || st.APIVersion == "" || st.Hub.Listen != h.listen {
		t.Errorf("status: %+v", st)
	}
	conn, err := remote.Stream(runtest.Within(t), "c1", to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, "remotely")
	conn.Close()
	var ping admin.PingResult
	if err := remote.Call(runtest.Within(t), "POST", "/v1/clusters/c1/ping", nil, &ping); err != nil || len(ping.Agents) != 1 || ping.Agents[0].Fault != nil || ping.Agents[0].RTTMillis <= 0 {
		t.Errorf("ping: %+v, %v", ping, err)
	}
	var backup bytes.Buffer
	if n, err := remote.Download(runtest.Within(t), "/v1/backup", &backup); err != nil || n == 0 {
		t.Errorf("backup: %d, %v", n, err)
	}
}

func TestAdminAPIRefusesBadInput(t *testing.T) {
	h := startHub(t, hubSpec{})
	h.token("c1")
	var none struct{}
	for _, c := range []struct {
		name, method, path string
		body               any
		code               fault.Code
	}{
		{"cluster name", "POST", "/v1/tokens", admin.TokenRequest{Cluster: "Not_A_Name", TTLSeconds: 60, Uses: 1}, fault.CodeRequest},
		{"no uses", "POST", "/v1/tokens", admin.TokenRequest{Cluster: "c1", TTLSeconds: 60}, fault.CodeRequest},
		{"too many uses", "POST", "/v1/tokens", admin.TokenRequest{Cluster: "c1", TTLSeconds: 60, Uses: 1 << 20}, fault.CodeRequest},
		{"no life", "POST", "/v1/tokens", admin.TokenRequest{Cluster: "c1", Uses: 1}, fault.CodeRequest},
		{"endless life", "POST", "/v1/tokens", admin.TokenRequest{Cluster: "c1", TTLSeconds: 1 << 40, Uses: 1}, fault.CodeRequest},
		{"unknown key", "POST", "/v1/tokens", map[string]any{"cluster": "c1", "admin": true}, fault.CodeRequest},
		{"large body", "POST", "/v1/tokens", map[string]any{"cluster": strings.Repeat("x", 100<<10)}, fault.CodeRequest},
		{"role", "POST", "/v1/certificates", admin.CertificateRequest{Role: "hub", Name: "x"}, fault.CodeRequest},
		{"agent's role", "POST", "/v1/certificates", admin.CertificateRequest{Role: "agent", Cluster: "c1", Name: "x"}, fault.CodeRequest},
		{"name with a slash", "POST", "/v1/certificates", admin.CertificateRequest{Role: "operator", Name: "a/../hub/x"}, fault.CodeRequest},
		{"no CSR", "POST", "/v1/certificates", admin.CertificateRequest{Role: "operator", Name: "x"}, fault.CodeRequest},
		{"client of nowhere", "POST", "/v1/certificates", admin.CertificateRequest{Role: "client", Cluster: "nope", Name: "x"}, fault.CodeClusterUnknown},
		{"protocol", "POST", "/v1/clusters/c1/sockets", admin.SocketRequest{Protocol: "smtp"}, fault.CodeRequest},
		{"token", "DELETE", "/v1/tokens/nope", nil, fault.CodeNotFound},
		{"serial", "POST", "/v1/revocations", admin.RevocationRequest{Role: "node", Serial: "nope"}, fault.CodeNotFound},
		{"name of an agent", "POST", "/v1/revocations", admin.RevocationRequest{Role: "agent", Cluster: "c1", Name: "agent-nope"}, fault.CodeNotFound},
		{"role", "POST", "/v1/revocations", admin.RevocationRequest{Role: "hub", Name: "h"}, fault.CodeRequest},
		{"nobody's name", "POST", "/v1/revocations", admin.RevocationRequest{Role: "operator"}, fault.CodeRequest},
		{"path", "GET", "/v1/everything", nil, fault.CodeNotFound},
		{"method", "PUT", "/v1/tokens", nil, fault.CodeNotFound},
		{"no upgrade", "GET", "/v1/clusters/c1/stream?target=10.0.0.1:80", nil, fault.CodeRequest},
	} {
		err := h.admin.Call(runtest.Within(t), c.method, c.path, c.body, &none)
		if !fault.Has(err, c.code) {
			t.Errorf("%s: %v, want %s", c.name, err, c.code)
		}
	}
	for _, target := range []string{"", "10.0.0.1", "10.0.0.1:0", "x y:1"} {
		_, err := h.admin.Stream(runtest.Within(t), "c1", target)
		wantFault(t, err, fault.CodeRequest)
	}
}

func TestAdminPortServesProbesAndMetricsOnly(t *testing.T) {
	h := startHub(t, hubSpec{})
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/metrics": 200, "/v1/status": 404, "/v1/tokens": 404, "/v1/backup": 404,
		"/debug/pprof/": 404, "/debug/pprof/heap": 404, "/": 404,
	} {
		if status, _ := httpGet(t, h.adminURL+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		if status, _ := httpDo(t, method, h.adminURL+"/metrics", nil); status != 405 {
			t.Errorf("%s: %d", method, status)
		}
	}
	// The certificate is the hub's own: a scraper checks it with <state-dir>/ca.crt.
	cfg := certificate{ca: parseCert(t, string(read(t, h.cfg.StateDir+"/ca.crt")))}.clientTLS("127.0.0.1:0")
	cfg.Certificates, cfg.ServerName = nil, "localhost"
	if status, _ := httpDo(t, "GET", h.adminURL+"/livez", cfg); status != 200 {
		t.Errorf("with the CA: %d", status)
	}
	profiled := startHub(t, hubSpec{extra: "admin: {listen: \"ADMIN\", pprof: true}"})
	if status, _ := httpGet(t, profiled.adminURL+"/debug/pprof/goroutine?debug=1"); status != 200 {
		t.Errorf("pprof where it is on: %d", status)
	}
}

// described collects the names and help texts that a part registers.
type described struct {
	prometheus.Registerer
	help map[string]bool
}

func (d described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		ch := make(chan *prometheus.Desc, 8)
		c.Describe(ch)
		close(ch)
		for desc := range ch {
			_, rest, _ := strings.Cut(desc.String(), `fqName: "`)
			name, rest, _ := strings.Cut(rest, `"`)
			_, rest, _ = strings.Cut(rest, `help: "`)
			help, _, _ := strings.Cut(rest, `"`)
			d.help[name] = len(help) > 10
		}
	}
}

// Every metric of internal/base/telemetry is in a scrape, with its help.
func TestEveryMetricIsScraped(t *testing.T) {
	port := runtest.Address(5000)
	h, a := pair(t, hubSpec{extra: "certificates: {agentLife: 2s}"}, agentSpec{extra: agentPort("registry", port)})
	to := runtest.Echo(t)
	wantReset(t, port)
	for _, w := range h.ways("c1") {
		runtest.Eventually(t, "a dial by "+w.name, func() bool { // one may meet a certificate that has just ended
			conn, err := w.dial(runtest.Within(t), to.Addr())
			if err == nil {
				conn.Close()
			}
			return err == nil // the ways tell in different words why not
		})
	}
	h.CountReload(nil)
	h.dialTCP().Close()
	raw, _ := h.rawSession(h.enrol(h.token("c1").Join), "brief")
	runtest.Eventually(t, "a session begins", func() bool { return h.connected("c1") >= 2 })
	raw.Close()
	runtest.Eventually(t, "the agent has renewed", func() bool { return len(a.log.records("certificate renewed")) > 0 })
	nothing := func() float64 { return 0 }
	for url, names := range map[string]map[string]bool{
		h.adminURL + "/metrics":           describe(func(r prometheus.Registerer) { telemetry.NewHub(r, telemetry.HubReadings{}) }),
		"http://" + a.health + "/metrics": describe(func(r prometheus.Registerer) { telemetry.NewAgent(r, telemetry.AgentReadings{Sessions: nothing}) }),
	} {
		if len(names) < 8 {
			t.Fatalf("only %d names", len(names))
		}
		var missing []string
		runtest.Eventually(t, "every metric is in "+url, func() bool {
			_, body := httpGet(t, url)
			missing = nil
			for name, helped := range names {
				if !helped {
					t.Fatalf("%s has no help", name)
				}
				if !strings.Contains(body, "# HELP "+name+" ") || !strings.Contains(body, "\n"+name) {
					missing = append(missing, name)
				}
			}
			return len(missing) == 0
		})
	}
}

func describe(register func(prometheus.Registerer)) map[string]bool {
	d := described{help: map[string]bool{}}
	register(d)
	return d.help
}

// Clusters make no series: a hub of ten thousand is scraped like one of one.
func TestClustersMakeNoSeries(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	socket := h.socket("c1", hub.ProtocolConnect)
	touch := func(cluster string) {
		conn, err := h.admin.Stream(runtest.Within(t), cluster, to.Addr())
		if err == nil {
			conn.Close()
		}
	}
	touch("c1")
	touch("c2-unknown")
	h.token("c3")
	touch("c3")
	dialConnect(runtest.Within(t), socket, "10.0.0.1:bad")
	series := func() (n int) {
		for _, m := range mustGather(t, h.reg) {
			n += len(m.GetMetric())
		}
		return n
	}
	before := series()
	var clusters strings.Builder
	clusters.WriteString("clusters:\n")
	for i := range 300 {
		clusters.WriteString("- name: many-" + itoa(i) + "\n")
	}
	if err := h.reload(clusters.String()); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		touch("many-" + itoa(i))
	}
	h.CountReload(nil)
	if n := gauge(t, h.reg, "tombolo_hub_clusters"); n < 300 {
		t.Errorf("%v clusters", n)
	}
	if after := series(); after > before+2 { // the reload's outcome is new
		t.Errorf("%d series became %d with 300 clusters", before, after)
	}
}

// Neither log nor answer ever shows a token's secret or a private key.
func TestSecretsStaySecret(t *testing.T) {
	h := startHub(t, hubSpec{extra: "certificates: {agentLife: 6s}"})
	tok := h.token("c1")
	j, err := trust.ParseJoin(tok.Join)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, agentSpec{join: tok.Join})
	to := runtest.Echo(t)
	for _, w := range h.ways("c1") {
		conn, err := w.dial(runtest.Within(t), to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, conn, "some bytes")
		conn.Close()
	}
	second := runAgent(t, agentSpec{join: tok.Join})
	refusal := mustEnd(t, second, fault.CodeTokenUsed)
	runtest.Eventually(t, "a renewal", func() bool { return len(a.log.records("certificate renewed")) > 0 })
	var all bytes.Buffer
	for _, path := range []string{"/v1/status", "/v1/tokens", "/v1/certificates"} {
		var v json.RawMessage
		h.call("GET", path, nil, &v)
		all.Write(v)
	}
	_, metrics := httpGet(t, h.adminURL+"/metrics")
	_, agentMetrics := httpGet(t, "http://"+a.health+"/metrics")
	for _, s := range []string{metrics, agentMetrics, h.log.String(), a.log.String(), second.log.String(), refusal.Explain()} {
		all.WriteString(s)
	}
	for name, secret := range map[string]string{"the token's secret": j.Secret, "a private key": "PRIVATE KEY"} {
		if at := strings.Index(all.String(), secret); at >= 0 {
			t.Errorf("%s is shown: ...%s", name, all.String()[max(0, at-200):at])
		}
	}
	// At rest there is a hash, and the secret nowhere.
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(read(t, h.cfg.StateDir+"/hub.db"), []byte(j.Secret)) {
		t.Error("the state holds the secret in clear")
	}
}

// What a hub knows outlives it: clusters, sockets asked for, tokens.
func TestStateOutlivesTheHub(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	socket := h.socket("c1", hub.ProtocolConnect)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if exists(socket) {
		t.Error("the socket outlived the hub")
	}
	next := startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	if !exists(socket) {
		t.Error("the socket that was asked for is not there again")
	}
	startAgent(t, agentSpec{join: line})
	conn, err := dialConnect(runtest.Within(t), socket, runtest.Echo(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, conn, "after the restart")
	conn.Close()
	if status, _ := httpGet(t, next.adminURL+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d", status)
	}
}
