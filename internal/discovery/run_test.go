// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestDrain: members are told, whoever watches the older protocol is sent away, and
// the service ends when the last one has left.
func TestDrain(t *testing.T) {
	r := serve(t, nil)
	r.cfg.Etcd = &EtcdConfig{} // as if there were others
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, m)
	r.soft()
	a.until("a drain", func(m *pb.FromService) bool { return m.GetDrain().GetReason() != "" })
	_, err := w.Recv()
	wantCode(t, err, codes.Unavailable, "draining")
	if status, _, head := get(t, r.connect("tcp", r.Admin()), "/readyz"); status != 503 || head.Get("Tombolo-Fault") != "draining" {
		t.Errorf("/readyz answers %d, %v", status, head)
	}
	if status, _, _ := get(t, r.connect("tcp", r.Admin()), "/livez"); status != 200 {
		t.Errorf("/livez answers %d", status)
	}
	// What is there goes on until it leaves by itself.
	a.put(entry(t, k, m, 7))
	a.wantAck(7)
	if err := a.CloseSend(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "the port is closed", func() bool {
		conn, err := net.Dial("tcp", r.Listen())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	r.hard() // as the second signal does
	a.wantEnd(codes.Unavailable, "")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

func TestMembersSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	edit := func(c *v1alpha1.DiscoveryConfig) {
		c.StateDir, c.Settle = filepath.Join(dir, "state"), v1alpha1.Duration{Duration: time.Minute}
	}
	r := serve(t, edit)
	mustUpdate(t, r.older(), affiliateUpdate("a", "sealed", "e"))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	again := serve(t, edit)
	if !again.store.State().Settled {
		t.Fatal("a service that was ended in order begins without its state")
	}
	wantTold(t, mustWatch(t, again.older()), "a=sealed[e]")
}

func TestStatus(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	mustUpdate(t, c, affiliateUpdate("a", "sealed-by-a", "e"))
	wantTold(t, mustWatch(t, c), "a=sealed-by-a[e]")
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, m)
	a.put(entry(t, k, m, 1))
	a.wantAck(1)
	a.put(k.Remove(*m, 2, time.Minute))
	a.wantAck(2)

	client := admin.OverSocket(AdminSocket(r.cfg.RunDir))
	ask := func(query string) (st admin.DiscoveryStatus, err error) {
		return st, client.Call(runtest.Within(t), "GET", "/v1/status"+query, nil, &st)
	}
	st, err := ask("")
	if err != nil || st.Kind != "DiscoveryStatus" || st.Members != 1 || st.Clusters != 2 || st.Watchers != 2 || st.Bytes == 0 || st.Connections == 0 ||
		st.Store.Kind != "memory" || st.Listen != r.Listen() || st.TLS != "none" || st.Limits.Members != 1024 || st.Cluster != nil {
		t.Errorf("%+v, %v", st, err)
	}
	st, err = ask("?cluster=c")
	if err != nil || *st.Cluster != (admin.DiscoveryCluster{ID: "c", Protocol: "sidero", Members: 1, Bytes: costMember + 12 + costEndpoint + 1, Watchers: 1}) {
		t.Errorf("%+v, %v", st.Cluster, err)
	}
	id := k.Cluster()
	st, err = ask("?cluster=" + id.String())
	if err != nil || st.Cluster.Protocol != "native" || st.Cluster.Members != 0 || st.Cluster.Removals != 1 || st.Cluster.Watchers != 1 {
		t.Errorf("%+v, %v", st.Cluster, err)
	}
	if text, _ := json.Marshal(st); strings.Contains(string(text), "sealed-by-a") {
		t.Errorf("the status shows what a member said: %s", text)
	}
	if _, err := ask("?cluster=unknown"); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("an unknown cluster: %v", err)
	}
	info, err := os.Stat(filepath.Dir(AdminSocket(r.cfg.RunDir)))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the socket: %v, %v", info, err)
	}
}

func TestMetrics(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	_, err := c.Hello(runtest.Within(t), &sdr.HelloRequest{})
	wantCode(t, err, codes.InvalidArgument, "")
	k, m := newKeys(t), newMember(t)
	a := r.attend()
	a.enter(k, m)
	a.put(entry(t, k, m, 1))
	a.wantAck(1)
	a.put(entry(t, k, m, 1))
	a.wantRefusal("entry_stale", "")
	_, body, _ := get(t, r.connect("tcp", r.Admin()), "/metrics")
	for _, want := range []string{
		"tombolo_discovery_members 2", "tombolo_discovery_clusters 2", "tombolo_discovery_watchers 1", "tombolo_discovery_store_degraded 0",
		`tombolo_discovery_calls_total{method="AffiliateUpdate",outcome="ok"} 1`, `tombolo_discovery_calls_total{method="Hello",outcome="entry_invalid"} 1`,
		`tombolo_discovery_calls_total{method="Put",outcome="ok"} 1`, `tombolo_discovery_calls_total{method="Put",outcome="entry_stale"} 1`,
		`tombolo_discovery_calls_total{method="Watch",outcome="watch_lost"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestReload(t *testing.T) {
	r := serve(t, nil)
	c := r.older()
	w := mustWatch(t, c)
	wantTold(t, w, "")
	next := r.raw
	one := 1
	next.Limits.Members, next.TrustedProxies, next.Log.Level = &one, []string{"127.0.0.0/8"}, "warn"
	r.Reload(r.valid(next))
	mustUpdate(t, c, affiliateUpdate("a", "x"))
	wantTold(t, w, "a=x[]") // the stream lives
	_, err := c.AffiliateUpdate(runtest.Within(t), affiliateUpdate("b", "x"))
	wantCode(t, err, codes.ResourceExhausted, "limits.members")
	if !within(r.settings.Load().proxies, addrOf(&net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}).Addr()) {
		t.Error("the proxies are the old ones")
	}
	if !strings.Contains(r.log.String(), "need a restart") || !strings.Contains(r.log.String(), "[log]") {
		t.Errorf("the log does not name what needs a restart:\n%s", r.log)
	}
}

func TestStartsThatFail(t *testing.T) {
	r := serve(t, nil)
	for name, c := range map[string]struct {
		edit func(*v1alpha1.DiscoveryConfig)
		code fault.Code
	}{
		"the port is taken":       {func(c *v1alpha1.DiscoveryConfig) { c.Listen = r.Listen() }, fault.CodeAddressBusy},
		"the admin port is taken": {func(c *v1alpha1.DiscoveryConfig) { c.Admin.Listen = r.Admin() }, fault.CodeAddressBusy},
		"the state is taken":      {func(c *v1alpha1.DiscoveryConfig) { c.StateDir = r.cfg.StateDir }, fault.CodeStateBusy},
		"the socket is served":    {func(c *v1alpha1.DiscoveryConfig) { c.RunDir = r.cfg.RunDir }, fault.CodeSocketBusy},
		"a socket path too long":  {func(c *v1alpha1.DiscoveryConfig) { c.RunDir = "/" + strings.Repeat("x", 120) }, fault.CodeSocketPath},
		"no certificate": {func(c *v1alpha1.DiscoveryConfig) {
			c.TLS = v1alpha1.DiscoveryTLSConfig{CertFile: "/none", KeyFile: "/none"}
		}, fault.CodeCertInvalid},
		"etcd, which is not built": {func(c *v1alpha1.DiscoveryConfig) {
			c.Store.Etcd = &v1alpha1.DiscoveryEtcdConfig{Endpoints: []string{"http://x"}}
		}, fault.CodeConfig},
	} {
		raw := r.raw
		dir := t.TempDir()
		raw.StateDir, raw.RunDir = filepath.Join(dir, "state"), filepath.Join(dir, "run")
		c.edit(&raw)
		s := New(r.valid(raw), Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
		err := s.Run(t.Context(), t.Context())
		if !fault.Has(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if strings.HasPrefix(raw.StateDir, dir) && raw.Store.Etcd == nil {
			held, err := hold(raw.StateDir)
			if err != nil {
				t.Errorf("%s: the state directory is still held: %v", name, err)
				continue
			}
			held.Close()
		}
	}
}

// TestAStoreOfTheProgram: another one than memory comes from around.
func TestAStoreOfTheProgram(t *testing.T) {
	raw := v1alpha1.DiscoveryConfig{
		Listen: "127.0.0.1:0", Admin: v1alpha1.AdminConfig{Listen: "127.0.0.1:0"}, RunDir: filepath.Join(t.TempDir(), "run"),
		TLS: v1alpha1.DiscoveryTLSConfig{None: true}, Store: v1alpha1.DiscoveryStoreConfig{Etcd: &v1alpha1.DiscoveryEtcdConfig{Endpoints: []string{"http://x"}}},
	}
	var got EtcdConfig
	s := New((&rig{t: t}).valid(raw), Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(), Etcd: func(_ context.Context, c EtcdConfig, _ *Board, _ *telemetry.DiscoveryStore) (Store, error) {
		got = c
		return &away{}, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(t.Context())
	g.Go("service", func(context.Context) error { return s.Run(ctx, ctx) })
	select {
	case <-s.Ready():
	case <-g.Context().Done():
		t.Fatal(g.Wait())
	}
	r := &rig{Service: s, t: t}
	c := r.older()
	short, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	_, err := c.AffiliateUpdate(short, affiliateUpdate("a", "x"))
	wantCode(t, err, codes.Unavailable, "store_unavailable")
	if w := mustWatch(t, c); told(t, w) != "" {
		t.Error("what is known is not served")
	}
	if _, body, _ := get(t, r.connect("tcp", s.Admin()), "/readyz"); !strings.Contains(body, "degraded: gone") {
		t.Errorf("/readyz says %q", body)
	}
	cancel()
	if err := g.Wait(); err == nil || !strings.Contains(err.Error(), "closed") || got.Prefix != "/tombolo/discovery" {
		t.Errorf("the store was not closed: %v; %+v", err, got)
	}
}

// away is a store that does not answer.
type away struct{}

func (*away) gone() error { return fault.New(fault.CodeStoreAway, "the store is away") }

func (a *away) Update(context.Context, Place, roster.Update) error { return a.gone() }
func (a *away) Delete(context.Context, Place) error                { return a.gone() }
func (*away) Run(ctx context.Context) error                        { <-ctx.Done(); return nil }
func (*away) State() StoreState                                    { return StoreState{Kind: "etcd", Settled: true, Degraded: "gone"} }
func (*away) Close() error                                         { return errors.New("closed") }
