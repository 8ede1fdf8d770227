// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// backendRig is a hub whose clusters go by a proxy, which leads to an echo.
type backendRig struct {
	*Hub
	t     *testing.T
	proxy *httptest.Server
	ca    string
}

func newBackendRig(t *testing.T) *backendRig {
	t.Helper()
	r := &backendRig{Hub: bareHub(t), t: t, ca: filepath.Join(t.TempDir(), "ca.crt")}
	r.proxy = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n\r\nby %s: ", q.Host)
		_, _ = io.Copy(conn, conn) // until the hub ends it
	}))
	r.proxy.StartTLS()
	t.Cleanup(r.proxy.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.proxy.Certificate().Raw})
	must(t, os.WriteFile(r.ca, text, 0o600))
	_, port, err := net.SplitHostPort(r.proxy.Listener.Addr().String())
	must(t, err)
	r.configure(v1alpha1.BackendConfig{Name: "vpn", Proxy: "127.0.0.1:" + port, ServerName: "example.com", CA: r.ca})
	r.clusters.add(clusterOf(t, "c1"))
	return r
}

// configure puts backends into force, whatever uses them.
func (r *backendRig) configure(all ...v1alpha1.BackendConfig) {
	next := *r.settings.Load()
	next.backends = backend.Parse(all, "", func(path, format string, args ...any) { r.t.Errorf(path+": "+format, args...) })
	r.settings.Store(&next)
}

func (r *backendRig) dial(target, network string) (carrier.Stream, error) {
	who := record.Party{Cluster: clusterOf(r.t, "c1"), Frontend: policy.FlowDial, Caller: "me"}
	return r.dials.forCaller(who)(runtest.Within(r.t), wire.Dial{Network: network, Address: target})
}

// call asks the admin API.
func (r *backendRig) call(method, path, body string, into any) *fault.Fault {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.api.apiHandler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if w.Code != http.StatusOK {
		var b admin.FaultBody
		must(r.t, json.Unmarshal(w.Body.Bytes(), &b))
		return fault.From(b.Fault())
	}
	must(r.t, json.Unmarshal(w.Body.Bytes(), into))
	return nil
}

func (r *backendRig) move(to string, force bool) (out admin.ClusterBackend, f *fault.Fault) {
	r.t.Helper()
	f = r.call(http.MethodPut, "/v1/clusters/c1/backend", fmt.Sprintf(`{"backend": %q, "force": %v}`, to, force), &out)
	return out, f
}

// agent gives the cluster a session that takes streams.
func (r *backendRig) agent() {
	e := eat(r.t, r.Hub, "c1")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions[e.session] = struct{}{}
}

// echoed sends a text, and wants it back.
func echoed(t *testing.T, s carrier.Stream, before, text string) {
	t.Helper()
	_, err := io.WriteString(s, text)
	must(t, err)
	got := make([]byte, len(before)+len(text))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != before+text {
		t.Fatalf("%q, %v", got, err)
	}
}

// A cluster moves under traffic: what is open stays, and a backend is in use for as long as something is.
func TestAClusterMovesToAnotherBackend(t *testing.T) {
	r := newBackendRig(t)
	if _, err := r.dial("10.0.0.1:443", wire.NetworkTCP); !fault.Has(err, fault.CodeNoAgent) {
		t.Fatal(err)
	}
	if got, f := r.move("vpn", false); f != nil || got.Backend != "vpn" || !got.Own {
		t.Fatalf("%+v, %v", got, f)
	}
	open, err := r.dial("10.0.0.1:443", wire.NetworkTCP)
	must(t, err)
	defer open.Close()
	echoed(t, open, "by 10.0.0.1:443: ", "before")

	if _, f := r.move("agents", false); f == nil || f.Code != fault.CodeNoAgent {
		t.Errorf("it moved to no agent: %v", f)
	}
	r.agent()
	got, f := r.move("agents", false)
	if f != nil || got.Backend != "agents" || got.Open["vpn"] != 1 || !got.Constraints[0].Status ||
		got.Constraints[1].Reason != "OpenStreams" {
		t.Errorf("%+v, %v", got, f)
	}
	echoed(t, open, "", "after")

	var list admin.BackendList
	if f := r.call(http.MethodGet, "/v1/backends", "", &list); f != nil || len(list.Backends) != 2 || list.Backends[1].Clusters != 1 {
		t.Errorf("%+v, %v", list, f)
	}
	none := Config{Reloadable: *r.settings.Load()}
	none.backends = backend.Table{}
	if err := none.backends.Replaces(r.clusters.backendUses(r.settings.Load().backends)); !fault.Has(err, fault.CodeBackendInUse) {
		t.Errorf("it may be removed: %v", err)
	}
	must(t, open.Close())
	if err := none.backends.Replaces(r.clusters.backendUses(r.settings.Load().backends)); err != nil {
		t.Errorf("it may not be removed: %v", err)
	}
	if _, f := r.move("vpn", false); f != nil { // and back
		t.Error(f)
	}
	r.proxy.Close()
	if _, err := r.dial("10.0.0.1:443", wire.NetworkTCP); !fault.Has(err, fault.CodeBackendAway) {
		t.Error(err)
	}
	if _, f := r.move("", false); f != nil { // the default is agents
		t.Error(f)
	}
	if _, f := r.move("vpn", false); f == nil || f.Code != fault.CodeBackendAway {
		t.Errorf("it moved to a proxy that is away: %v", f)
	}
	if _, f := r.move("vpn", true); f != nil {
		t.Errorf("it was forced: %v", f)
	}
	if _, f := r.move("other", true); f == nil || f.Code != fault.CodeBackendUnknown {
		t.Errorf("there is no such backend: %v", f)
	}
	c, err := r.clusters.get(clusterOf(t, "c1"))
	must(t, err)
	if n, m := c.backendStreams(), c.accounts.Cluster.Streams(); n != 0 || m != 0 || c.accounts.Cluster.Pending() != 0 {
		t.Errorf("%d streams by backends, %d of the cluster are left", n, m)
	}
	if up, down := c.traffic(); up != int64(len("beforeafter")) || down < up {
		t.Errorf("%d bytes in, %d out are counted", up, down)
	}
}

// The choice outlives the hub, and one that starts without the backend refuses to, and says who has it.
func TestAChoiceOutlivesTheHub(t *testing.T) {
	r := newBackendRig(t)
	if _, f := r.move("vpn", false); f != nil {
		t.Fatal(f)
	}
	must(t, r.clusters.add(clusterOf(t, "c2")).startsAs(r.Hub, ""))
	restarted := func(t backend.Table) (map[string]backend.Use, error) {
		p := &parts{cfg: r.cfg, state: r.state, now: r.now, clusters: newRegistry(nil, r.clusters.counted)}
		p.cfg.backends = t
		p.settings.Store(&p.cfg.Reloadable)
		err := p.loadState()
		return p.clusters.backendUses(t), err
	}
	if got, err := restarted(r.settings.Load().backends); err != nil || got["c1"].Own != "vpn" || got["c2"].Own != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := restarted(backend.Table{}); !fault.Has(err, fault.CodeBackendInUse) ||
		!strings.Contains(err.Error(), "cluster c1 has vpn") {
		t.Errorf("it starts: %v", err)
	}
}

// startsAs stores a choice.
func (c *cluster) startsAs(h *Hub, backend string) error {
	return h.state.SetBackend(c.name, backend, time.Now())
}

// What a proxy cannot carry, or the policy cannot see, is refused before it is asked.
func TestWhatNoProxyCarries(t *testing.T) {
	r := newBackendRig(t)
	if _, f := r.move("vpn", false); f != nil {
		t.Fatal(f)
	}
	if _, err := r.dial("10.0.0.1:53", wire.NetworkUDP); !fault.Has(err, fault.CodeRequest) {
		t.Errorf("datagrams: %v", err)
	}
	for _, target := range []string{"db.svc:443", "169.254.169.254:80", "127.0.0.1:9901", "[::ffff:127.0.0.1]:9901", "0.0.0.0:1"} {
		if _, err := r.dial(target, wire.NetworkTCP); !fault.Has(err, fault.CodePolicyDenied) {
			t.Errorf("%s: %v", target, err)
		}
	}
	p, _ := policy.Compile([]policy.Rule{{Name: "all", Destination: []string{"*"}}}, nil)
	r.access.Replace(true, map[string]*policy.Policy{"f": p})
	s, err := r.dial("10.0.0.1:443", wire.NetworkTCP)
	must(t, err)
	s.Close()
}

// A removed cluster takes with it what its backend carries.
func TestARemovedClusterEndsWhatItsBackendCarries(t *testing.T) {
	r := newBackendRig(t)
	if _, f := r.move("vpn", false); f != nil {
		t.Fatal(f)
	}
	s, err := r.dial("10.0.0.1:443", wire.NetworkTCP)
	must(t, err)
	defer s.Close()
	echoed(t, s, "by 10.0.0.1:443: ", "x")
	c, err := r.clusters.get(clusterOf(t, "c1"))
	must(t, err)
	if f := inUse(admin.ClusterInfo{Name: "c1"}, c.backendStreams()); f == nil || f.Code != fault.CodeClusterInUse {
		t.Errorf("it may be removed under a stream: %v", f)
	}
	if f := inUse(admin.ClusterInfo{Name: "c1", WireGuard: "192.168.128.16"}, 0); f == nil || !strings.Contains(f.Why, "192.168.128.16") {
		t.Errorf("it may be removed while it is on in the WireGuard network: %v", f)
	}
	r.clusters.remove(c.name)
	if n := r.dials.endGone(c); n != 1 {
		t.Errorf("%d streams ended", n)
	}
	if f := r.dials.gone(s.(*hubStream)); f == nil { // as one that was dialled meanwhile
		t.Error("one that came later would stay")
	}
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("it lives on")
	}
}
