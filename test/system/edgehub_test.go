// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/store"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// hubEdge is an edge with one TLS port.
type hubEdge struct {
	*edge.Edge
	*process
	dir, listen string
	log         *journal
}

// edgeFile issues an edge's certificate and writes it as 'tombolo certificate issue' does.
func (h *testHub) edgeFile(name string) string {
	h.t.Helper()
	c := h.issue(admin.CertificateRequest{Role: "edge", Name: name})
	key, err := trust.EncodeKey(c.PrivateKey)
	if err != nil {
		h.t.Fatal(err)
	}
	text := append(append(key, trust.EncodeCertificate(c.Leaf.Raw)...), trust.EncodeCertificate(c.ca.Raw)...)
	file := filepath.Join(runtest.Dir(h.t), "edge.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		h.t.Fatal(err)
	}
	return file
}

// startHubEdge runs an edge in dir, with a folder of tenants in it; more is added to the configuration.
func startHubEdge(t *testing.T, dir, more string) *hubEdge {
	t.Helper()
	if err := os.MkdirAll(dir+"/tenants", 0o700); err != nil {
		t.Fatal(err)
	}
	e := &hubEdge{dir: dir, listen: runtest.Address(8443), log: &journal{}}
	text := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\nhealthListen: %q\nrunDir: %s/run\ntenants: [%s/tenants]\n"+
		"audit: {path: %s/audit.jsonl}\ndrainTimeout: 1s\nlisteners: [{name: tls, listen: %q, protocol: tls}]\n%s\n",
		runtest.Address(8447), dir, dir, dir, e.listen, more)
	cfg, err := edge.ParseConfig("edge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	records, err := audit.New(cfg.Audit, audit.Options{Log: e.log.logger(), Reg: reg})
	if err != nil {
		t.Fatal(err)
	}
	e.Edge = edge.New(cfg, edge.Options{Log: e.log.logger(), Reg: reg, Audit: records})
	e.process = start(func(soft, hard context.Context) error {
		return records.While(hard, func() error { return e.Run(soft, hard) })
	})
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			t.Logf("edge's log:\n%s", tail(e.log.String()))
		}
	})
	return e
}

// tenants is what its status says of them; nothing before it runs.
func (e *hubEdge) tenants(t *testing.T) admin.EdgeTenants {
	t.Helper()
	var st admin.EdgeStatus
	if err := admin.OverSocket(edge.AdminSocket(e.dir+"/run")).Call(runtest.Within(t), "GET", "/v1/status", nil, &st); err != nil {
		return admin.EdgeTenants{}
	}
	return st.Tenants
}

// tenant writes the file of a tenant.
func (e *hubEdge) tenant(t *testing.T, name, ways string) {
	t.Helper()
	text := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: " + name + "}\nspec:\n  ways:\n" + ways
	if err := store.Write(e.dir+"/tenants/"+name+".yaml", []byte(text)); err != nil { // whole, or not at all
		t.Fatal(err)
	}
}

// through connects to a name at the edge, whoever has the certificate there.
func (e *hubEdge) through(t *testing.T, name string) (*tls.Conn, error) {
	t.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: runtest.Patience}, Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}}
	c, err := d.DialContext(runtest.Within(t), "tcp", e.listen)
	if err != nil {
		return nil, err
	}
	return closing(t, c).(*tls.Conn), nil
}

// audited ends the edge and gives its records.
func (e *hubEdge) audited(t *testing.T) (out []audit.Record) {
	t.Helper()
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(read(t, e.dir+"/audit.jsonl"))) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// secureEcho is a TLS server, as an API server is; first gets what comes before TLS, up to a line end, if wanted.
func secureEcho(t *testing.T, first chan<- string) *runtest.Target {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{runtest.Certificate(t)}}
	return runtest.Serve(t, func(c *net.TCPConn) {
		var raw net.Conn = c
		if first != nil {
			b := bufio.NewReader(c)
			line, err := b.ReadString('\n')
			if err != nil {
				return
			}
			first <- line
			raw = behind{c, b}
		}
		s := tls.Server(raw, cfg)
		io.Copy(s, s)
		s.CloseWrite()
	})
}

// behind reads what a buffer has first.
type behind struct {
	*net.TCPConn
	b *bufio.Reader
}

func (c behind) Read(p []byte) (int, error) { return c.b.Read(p) }

// TestAnAPIServerBehindAnAgent: TLS passes the edge, the hub and the agent to a server that only the agent reaches,
// with a PROXY header where the tenant wants one; failures keep the code of whoever failed.
func TestAnAPIServerBehindAnAgent(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	h.token("c2")
	first := make(chan string, 1)
	to, proxied := secureEcho(t, nil), secureEcho(t, first)
	dead := runtest.Echo(t)
	dead.Stop()
	e := startHubEdge(t, runtest.Dir(t), "hubs: [{name: h1, address: \""+h.listen+"\", certificate: "+h.edgeFile("e1")+"},"+
		" {name: gone, address: \""+runtest.Address(8443)+"\", certificate: "+h.edgeFile("e2")+"}]")
	hub := func(hub, cluster, target string) string {
		return fmt.Sprintf("{name: %s, cluster: %s, target: %q}", hub, cluster, target)
	}
	e.tenant(t, "c1", "  - {flow: api, names: [api.c1], hubs: [{name: h1, target: \""+to.Addr()+"\"}]}\n"+
		"  - {flow: api, names: [proxied.c1], proxyProtocol: v1, hubs: ["+hub("h1", "c1", proxied.Addr())+"]}\n"+
		"  - {flow: api, names: [second.c1], hubs: ["+hub("gone", "c1", to.Addr())+", "+hub("h1", "c1", to.Addr())+"]}\n")
	e.tenant(t, "bad", "  - {flow: api, names: [noagent], hubs: ["+hub("h1", "c2", "a:443")+"]}\n"+
		"  - {flow: api, names: [nocluster], hubs: ["+hub("h1", "c9", "a:443")+"]}\n"+
		"  - {flow: api, names: [forbidden], hubs: ["+hub("h1", "c1", "10.0.0.1:443")+"]}\n"+
		"  - {flow: api, names: [refused], hubs: ["+hub("h1", "c1", dead.Addr())+"]}\n"+
		"  - {flow: api, names: [nohub], hubs: ["+hub("gone", "c1", "a:443")+"]}\n")
	e.tenant(t, "unknown", "  - {flow: api, names: [x], hubs: ["+hub("h2", "c1", "a:443")+"]}\n")
	runtest.Eventually(t, "the tenant is served", func() bool {
		c, err := e.through(t, "api.c1")
		if err == nil {
			mustEcho(t, c, "over an agent")
		}
		return err == nil
	})
	c, err := e.through(t, "proxied.c1")
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, c, "with a header")
	if line := <-first; !strings.HasPrefix(line, "PROXY TCP4 127.0.0.1 ") {
		t.Errorf("the header is %q", line)
	}
	for range 4 { // the hub that is away is tried, fails, and is ejected
		c, err := e.through(t, "second.c1")
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, c, "by the other hub")
	}
	want := map[string]string{
		"noagent": "no_agent", "nocluster": "cluster_unknown", "forbidden": "policy_denied", "refused": "dial_refused",
		"nohub": "hub_unreachable",
	}
	for name := range want {
		if c, err := e.through(t, name); err == nil {
			t.Errorf("%s: connected to %v", name, c.RemoteAddr())
		}
	}
	runtest.Eventually(t, "the tenant with an unknown hub is refused with its place", func() bool {
		for _, r := range e.log.records("a tenant is refused; it was never good, and nothing of it is in force") {
			if strings.Contains(fmt.Sprint(r["reason"]), "spec.ways[0].hubs[0].name: the edge's configuration has no hub \"h2\"") {
				return true
			}
		}
		return false
	})
	seen := map[string]audit.Record{}
	for _, r := range e.audited(t) {
		seen[r.Asked] = r
	}
	for name, code := range want {
		if r := seen[name]; r.Code != code || r.Kind != audit.KindDial || !strings.HasPrefix(r.Resolved, "hub:") || r.Reason == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := seen["api.c1"]; r.Resolved != "hub:h1/c1/"+to.Addr() || r.Up == 0 || r.Down == 0 {
		t.Errorf("%+v", r)
	}
}

// TestTenantsFedByAHub: each cluster of the hub is a tenant without a file. They come and go one by one, a claim of
// a file stays with the file until that is gone, and a hub that is away takes no tenant with it.
func TestTenantsFedByAHub(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := secureEcho(t, nil)
	e := startHubEdge(t, runtest.Dir(t), "hubs: [{name: h1, address: \""+h.listen+"\", certificate: "+h.edgeFile("e1")+
		", tenants: {names: [\"{cluster}.k8s\", \"api.{cluster}.k8s\"], target: \""+to.Addr()+"\"}}]")
	e.tenant(t, "taken", "  - {flow: ingress, names: [c2.k8s], upstreams: [\""+to.Addr()+"\"]}\n")
	inForce := func(want int) {
		t.Helper()
		runtest.Eventually(t, itoa(want)+" tenants are in force", func() bool { return e.tenants(t).InForce == want })
	}
	inForce(2)
	c, err := e.through(t, "api.c1.k8s")
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, c, "by the hub's tenant")
	h.token("c2")
	h.token("c3")
	inForce(3)
	st := e.tenants(t)
	if st.Refused != 1 || st.Refusals[0].File != "hub h1 c2" || !strings.Contains(st.Refusals[0].Reason, e.dir+"/tenants/taken.yaml") ||
		!strings.Contains(st.Refusals[0].Reason, `spec.ways[0].names[0]: name "c2.k8s" is claimed by tenant "taken"`) {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(e.dir + "/tenants/taken.yaml"); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the hub's c2 has the name", func() bool {
		st := e.tenants(t)
		return st.InForce == 3 && st.Refused == 0
	})
	e.tenant(t, "late", "  - {flow: ingress, names: [c3.k8s], upstreams: [\""+to.Addr()+"\"]}\n")
	runtest.Eventually(t, "the file that comes second is refused", func() bool {
		st := e.tenants(t)
		return st.Refused == 1 && strings.Contains(st.Refusals[0].Reason, "of hub h1 c3")
	})
	h.call("DELETE", "/v1/clusters/c3?force=true", nil, &struct{}{})
	runtest.Eventually(t, "the file has the name", func() bool {
		st := e.tenants(t)
		return st.InForce == 3 && st.Refused == 0
	})
	mustEcho(t, c, "while others came and went")
	h.stop()
	runtest.Eventually(t, "the edge notices that the hub is away", func() bool {
		return len(e.log.records("a hub does not say which clusters it has; the last known tenants stay")) > 0
	})
	inForce(3)
	if _, err := e.through(t, "c1.k8s"); err == nil {
		t.Error("connected without a hub")
	}
	for _, r := range e.audited(t) {
		if r.Asked == "c1.k8s" && r.Code != "hub_unreachable" {
			t.Errorf("%+v", r)
		}
	}
}
