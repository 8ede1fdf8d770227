// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// runningHub is a hub on loopback with cores enough for several connections,
// whatever this machine has.
func runningHub(t *testing.T) *Hub {
	t.Helper()
	return runningHubWith(t, func(*Hub) {})
}

// runningHubWith is runningHub with something changed before it runs.
func runningHubWith(t *testing.T, change func(*Hub)) *Hub {
	t.Helper()
	h := bareHub(t)
	change(h)
	h.cfg.RunDir, h.cfg.Listen, h.cfg.AdminListen = runtest.Dir(t), "127.0.0.1:0", "127.0.0.1:0"
	h.cores = 8
	set := *h.settings.Load()
	set.connections = 3
	h.settings.Store(&set)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-h.ready
	return h
}

// agentTLS is the TLS of an agent of cluster c1.
func (h *Hub) agentTLS(t *testing.T, name string) *tls.Config {
	t.Helper()
	cluster, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	h.clusters.add(cluster)
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := h.credentials.CA().Issue(trust.Request{
		Identity: id.Identity{Role: id.RoleAgent, Cluster: cluster, Name: name}, Key: key.Public(), Life: time.Hour,
	}, h.now())
	if err != nil {
		t.Fatal(err)
	}
	check := func() trust.Check { return trust.Check{Roots: h.credentials.Roots(), Now: h.now()} }
	cert := &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	return trust.HubClientConfig(check, cert, trust.ALPNSession)
}

// meet opens a connection for sessions and exchanges Hello.
func (h *Hub) meet(t *testing.T, cfg *tls.Config, hello *pb.Hello) (*tls.Conn, *pb.Welcome) {
	t.Helper()
	raw, err := net.Dial("tcp", h.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn := tls.Client(carrier.Wrap(raw), cfg)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	hello.VersionMin, hello.VersionMax, hello.Instance = wire.Version, wire.Version, "i1"
	hello.Capabilities = []string{wire.CapabilityMux}
	if err := wire.Write(conn, &pb.Control{Frame: &pb.Control_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	var m pb.Control
	if err := wire.Read(conn, limit.ControlFrame, &m); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Time{})
	return conn, m.GetWelcome()
}

// held is an agent's end of a session.
type held struct {
	carrier.Session
	control carrier.Stream
	secret  []byte
	first   *tls.Conn
}

// hold begins a session and waits until the hub has it.
func (h *Hub) hold(t *testing.T, cfg *tls.Config) held {
	t.Helper()
	conn, w := h.meet(t, cfg, &pb.Hello{})
	if w.GetRefusal() != nil || len(w.GetSecret()) != limit.SessionSecret || w.GetConnections() != 3 {
		t.Fatalf("welcomed with %v", w)
	}
	link, err := carrier.Client(conn, carrier.Options{Incoming: 10, Connections: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	control, err := link.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	control.SetDeadline(time.Now().Add(20 * time.Second))
	var m pb.Control
	if err := wire.Read(control, limit.ControlFrame, &m); err != nil { // its first ping
		t.Fatal(err)
	}
	return held{link, control, w.GetSecret(), conn}
}

func (h *Hub) only(t *testing.T) *session {
	t.Helper()
	all := h.clusters.all()[0].live()
	if len(all) != 1 {
		t.Fatalf("%d sessions", len(all))
	}
	return all[0]
}

func refusedWith(w *pb.Welcome) fault.Code {
	if f := wire.FromFault(w.GetRefusal()); f != nil {
		return f.Code
	}
	return ""
}

// revokeAgent does what POST /v1/revocations does with an agent of cluster c1.
func (h *Hub) revokeAgent(t *testing.T, name string) admin.Revocation {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"role":"agent","cluster":"c1","name":%q,"unknown":true}`, name))
	out, err := h.api.apiRevoke(httptest.NewRequest(http.MethodPost, "/v1/revocations", body))
	if err != nil {
		t.Error(err)
		return admin.Revocation{}
	}
	return out.(admin.Revocation)
}

// TestRevocationReachesEveryConnection: a revoked agent loses its sessions with all of
// their connections and adds none, with none of its certificates; others stay.
func TestRevocationReachesEveryConnection(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	h := runningHub(t)
	first, second := h.agentTLS(t, "a1"), h.agentTLS(t, "a1") // after a renewal
	link := h.hold(t, first)
	control, secret := link.control, link.secret
	conn, w := h.meet(t, second, &pb.Hello{Attach: secret})
	if w.GetRefusal() != nil || len(w.GetSecret()) > 0 {
		t.Fatalf("a further connection: %v", w)
	}
	if err := link.Attach(conn); err != nil {
		t.Fatal(err)
	}
	s := h.only(t)
	for s.link.Info().Connections != 2 {
		if t.Context().Err() != nil {
			t.Fatal("the hub did not take the connection")
		}
	}
	if gone := h.revokeAgent(t, "a2"); gone.Connections != 0 {
		t.Errorf("%d sessions end of an agent that has none", gone.Connections)
	}
	ended := make(chan int, 1)
	go func() { ended <- h.revokeAgent(t, "a1").Connections }()
	for {
		var m pb.Control
		if err := wire.Read(control, limit.ControlFrame, &m); err != nil {
			t.Fatalf("no farewell: %v", err)
		}
		if g := m.GetGoodbye(); g != nil {
			if g.GetReason().GetCode() != string(fault.CodeCertRevoked) {
				t.Errorf("farewell: %v", g)
			}
			break
		}
	}
	if n := <-ended; n != 1 {
		t.Errorf("%d sessions ended", n)
	}
	<-link.Done() // which both connections have left
	<-s.link.Done()
	for _, cfg := range []*tls.Config{first, second} {
		for _, secret := range [][]byte{nil, secret} {
			if _, w := h.meet(t, cfg, &pb.Hello{Attach: secret}); refusedWith(w) != fault.CodeCertRevoked {
				t.Errorf("a revoked agent: %v", w)
			}
		}
	}
	if _, w := h.meet(t, h.agentTLS(t, "a3"), &pb.Hello{}); w.GetRefusal() != nil {
		t.Errorf("another agent: %v", w)
	}
}

// TestADialIsAskedAgain: a dial whose connection was lost is asked again of the
// same session over the other one.
func TestADialIsAskedAgain(t *testing.T) {
	h := runningHub(t)
	cfg := h.agentTLS(t, "a1")
	link := h.hold(t, cfg)
	conn, w := h.meet(t, cfg, &pb.Hello{Attach: link.secret})
	if w.GetRefusal() != nil {
		t.Fatal(w)
	}
	if err := link.Attach(conn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for h.only(t).link.Info().Connections < 2 { // the hub adds it after it has said so
		if ctx.Err() != nil {
			t.Fatal("the hub does not add the connection")
		}
	}
	for _, times := range []int{1, 2} {
		dialled := make(chan error, 1)
		go func() {
			stream, err := h.Dial(ctx, h.only(t).cluster.name, wire.Dial{Network: "tcp", Address: "10.0.0.1:1"})
			if err == nil {
				stream.Close()
			}
			dialled <- err
		}()
		for i := range times {
			stream, err := link.AcceptStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ReadDial(stream); err != nil {
				t.Fatal(err)
			}
			if times == 2 && i == 0 {
				link.first.NetConn().Close()
				continue
			}
			if err := wire.Write(stream, wire.Reply("10.0.0.1:1", nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-dialled; err != nil {
			t.Errorf("the dial that is asked %d times: %v", times, err)
		}
	}
}

// TestARevocationBetweenHelloAndSession: whoever was identified before, and
// became a session after the revocation, is ended.
func TestARevocationBetweenHelloAndSession(t *testing.T) {
	h := runningHub(t)
	cfg := h.agentTLS(t, "a1")
	conn, w := h.meet(t, cfg, &pb.Hello{})
	if w.GetRefusal() != nil {
		t.Fatal(w)
	}
	h.revokeAgent(t, "a1")
	link, err := carrier.Client(conn, carrier.Options{Incoming: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if _, err := link.OpenStream(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-link.Done()
	for len(h.clusters.all()[0].live()) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("the session lives")
		}
	}
	gone := h.clusters.all()[0].agents()
	if len(gone) != 1 || gone[0].LastDisconnect.Code != string(fault.CodeCertRevoked) || gone[0].Connections != 0 {
		t.Errorf("%+v", gone)
	}
}

// TestFewDescriptorsAllowOneConnection: the budget is looked at for each session
// and again for each further connection.
func TestFewDescriptorsAllowOneConnection(t *testing.T) {
	var used atomic.Int64
	h := runningHubWith(t, func(h *Hub) {
		h.descriptors = conns.NewDescriptorsOf(100, func() (int, error) { return int(used.Load()), nil })
	})
	cfg := h.agentTLS(t, "a1")
	secret := h.hold(t, cfg).secret
	count := func(n int64, may int) {
		used.Store(n)
		runtest.Eventually(t, "the descriptors are counted", func() bool { return h.agents.connections(h.settings.Load()) == may })
	}
	count(51, 1)
	if _, w := h.meet(t, cfg, &pb.Hello{Attach: secret}); refusedWith(w) != fault.CodeLimit {
		t.Errorf("a further connection: %v", w)
	}
	if _, w := h.meet(t, cfg, &pb.Hello{}); w.GetRefusal() != nil || w.GetConnections() > 1 || len(w.GetSecret()) > 0 {
		t.Errorf("another session: %v", w)
	}
	count(10, 3)
	if _, w := h.meet(t, cfg, &pb.Hello{Attach: secret}); w.GetRefusal() != nil {
		t.Errorf("with descriptors again: %v", w)
	}
}

// TestPlacesAreGivenBack: connections that are announced and never come, or go
// before they are added, cost no place for good, and none is counted twice while it is added.
func TestPlacesAreGivenBack(t *testing.T) {
	h := runningHub(t)
	cfg := h.agentTLS(t, "a1")
	link := h.hold(t, cfg)
	s := h.only(t)
	for range 20 {
		conn, w := h.meet(t, cfg, &pb.Hello{Attach: link.secret})
		if w.GetRefusal() != nil {
			t.Fatalf("refused: %v", w)
		}
		conn.Close()
		runtest.Eventually(t, "the place is given back", func() bool {
			s.places.Lock()
			defer s.places.Unlock()
			return s.coming == 0 && s.link.Info().Connections == 1
		})
	}
	for range 2 {
		conn, w := h.meet(t, cfg, &pb.Hello{Attach: link.secret})
		if w.GetRefusal() != nil {
			t.Fatalf("after all that: %v", w)
		}
		if err := link.Attach(conn); err != nil { // one that answers no ping is lost soon, with its place
			t.Fatal(err)
		}
	}
	if _, w := h.meet(t, cfg, &pb.Hello{Attach: link.secret}); refusedWith(w) != fault.CodeLimit {
		t.Errorf("a fourth connection: %v", w)
	}
}
