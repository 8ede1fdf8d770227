// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a client with hubs that the test plays. It lives in one bubble.
type scene struct {
	t       *testing.T
	client  *relay.Client
	certify func(role id.Role, name string) tls.Certificate
	dials   chan string    // addresses that were dialled
	conns   chan *tls.Conn // hub's ends, shaken
	broken  atomic.Int32   // handshakes that came to nothing
	changes atomic.Int32   // of names
	mu      sync.Mutex
	got     []string
	leads   map[string]string // address to the name of a hub; "h" if it is not there, nowhere if empty
	told    []string          // to Tried and Ended
	slow    atomic.Bool       // Tried takes a while
}

// lead has an address lead to another hub from now on.
func (s *scene) lead(address, hub string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads[address] = hub
}

func (s *scene) behind(address string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hub, said := s.leads[address]; said {
		return hub
	}
	return "h"
}

func (s *scene) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, fmt.Sprintf(format, args...))
}

// tell notes what Tried or Ended are told.
func (s *scene) tell(what string, f *fault.Fault) {
	if f != nil {
		what += " " + string(f.Code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

func (s *scene) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// play runs fn against a client of one hub with the addresses.
func play(t *testing.T, addresses []string, fn func(s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := trust.NewAuthority("example.org", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		certify := func(role id.Role, name string) tls.Certificate {
			key, err := trust.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			who := id.Identity{Role: role, Name: name}
			if role == id.RoleNode {
				who.Cluster, err = id.ParseCluster("c1")
			}
			leaf, err2 := ca.Issue(trust.Request{Identity: who, Key: key.Public(), Life: 24 * time.Hour}, time.Now())
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
		}
		node := certify(id.RoleNode, "n")
		s := &scene{t: t, dials: make(chan string, 10_000), conns: make(chan *tls.Conn, 1000), leads: map[string]string{}, certify: certify}
		var hubs sync.WaitGroup
		s.client = relay.New(relay.Config{
			Dial: func(_ context.Context, address string) (net.Conn, error) {
				s.dials <- address
				name := s.behind(address)
				if address == "away:1" || name == "" {
					return nil, net.ErrClosed
				}
				near, far := net.Pipe()
				conn := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certify(id.RoleHub, name)}, NextProtos: []string{trust.ALPNRelay}, ClientAuth: tls.RequireAnyClientCert})
				hubs.Add(1)
				go func() {
					defer hubs.Done()
					if conn.Handshake() == nil {
						s.conns <- conn
					} else {
						s.broken.Add(1)
					}
				}()
				return near, nil
			},
			TLS: func() (*tls.Config, error) {
				return trust.HubClientConfig(func() trust.Check { return trust.Check{Roots: ca.Roots(), Now: time.Now()} }, &node, trust.ALPNRelay), nil
			},
			Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0.5 },
			Changed: func() { s.changes.Add(1) },
			Tried: func(f *fault.Fault) {
				if s.slow.Load() {
					time.Sleep(time.Millisecond)
				}
				s.tell("tried", f)
			},
			Ended: func(f *fault.Fault) { s.tell("ended", f) },
		})
		to := relay.Handlers{
			Receive: func(hub, peer string, d []byte) { s.note("%s %s %d", hub, peer, len(d)) },
			Absent:  func(hub, peer string) { s.note("%s %s absent", hub, peer) },
		}
		s.client.Use(addresses)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.client.Run(ctx, to) }()
		fn(s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for len(s.conns) > 0 {
			(<-s.conns).NetConn().Close()
		}
		hubs.Wait()
	})
}

// welcome takes the next connection at the hub.
func (s *scene) welcome() *tls.Conn {
	s.t.Helper()
	conn := <-s.conns
	if _, err := conn.Write(relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: limit.RelayDatagram})); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
	if st := s.client.Status()[0]; !st.Connected || st.Fault != nil {
		s.t.Fatalf("after a welcome: %+v", st)
	}
	return conn
}

// drainOf reads all that comes, so that the client can write.
func drainOf(conn *tls.Conn) {
	go func() {
		b := make([]byte, 64<<10)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
		}
	}()
}

func TestASilentHub(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		conn := s.welcome()
		drainOf(conn)
		begun := time.Now()
		for s.client.Status()[0].Connected {
			time.Sleep(time.Second)
		}
		if after := time.Since(begun); after < limit.RelayDead || after > limit.RelayDead+2*time.Second {
			t.Errorf("noticed after %v", after)
		}
		if st := s.client.Status()[0]; !fault.Has(st.Fault, fault.CodeHubAway) {
			t.Errorf("%+v", st.Fault)
		}
		drainOf(s.welcome()) // it comes back
	})
}

func TestAHubThatAnswersPings(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		conn := s.welcome()
		s.t.Cleanup(func() { time.Sleep(time.Second) }) // until the hub has ended, which answers in its own time
		go pong(conn, 30*time.Millisecond)
		time.Sleep(time.Hour)
		if st := s.client.Status()[0]; !st.Connected || st.RTT != 30*time.Millisecond || time.Since(st.Since) < 59*time.Minute {
			t.Errorf("%+v", st)
		}
		if len(s.dials) != 1 {
			t.Errorf("%d dials", len(s.dials))
		}
	})
}

// TestNoOtherWayAfterARefusal: two addresses lead to one hub, which is asked by one of
// them at a time, also after it has refused.
func TestNoOtherWayAfterARefusal(t *testing.T) {
	play(t, []string{"away:1", "b:1", "c:1"}, func(s *scene) {
		conn := <-s.conns
		end := relayproto.AppendEnd(nil, relayproto.Reason{Code: string(fault.CodeCertRevoked), What: "revoked\x1b[2J"})
		if _, err := conn.Write(end); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		st := s.client.Status()
		if len(st) != 2 || st[0].Hub != "h" || st[0].Connected || !fault.Has(st[0].Fault, fault.CodeCertRevoked) || st[0].Fault.What == "revoked\x1b[2J" ||
			len(st[0].Others) != 1 || st[1].Hub != "" || st[1].Address != "away:1" || !fault.Has(st[1].Fault, fault.CodeHubAway) {
			t.Errorf("%+v", st)
		}
		stop := make(chan struct{})
		var answering sync.WaitGroup
		asked := 1
		answering.Go(func() {
			for {
				select {
				case conn := <-s.conns:
					asked++
					conn.Write(end)
				case <-stop:
					return
				}
			}
		})
		time.Sleep(3 * time.Minute)
		close(stop)
		answering.Wait()
		if asked < 10 || asked > 60 { // two that do not heed each other ask twice as often
			t.Errorf("it was asked %d times in three minutes", asked)
		}
		if names := s.client.Names(); len(names) != 0 {
			t.Error(names)
		}
	})
}

// TestAnEndIsToldAfterItsBegin: of a hub that welcomes the node and ends the connection at once, the end is told last.
func TestAnEndIsToldAfterItsBegin(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		s.slow.Store(true)
		conn := <-s.conns
		drainOf(conn)
		b := relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: limit.RelayDatagram})
		b = relayproto.AppendEnd(b, relayproto.Reason{Code: string(fault.CodeCertRevoked), What: "revoked"})
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := strings.Join(s.told, ", "); got != "tried, ended "+string(fault.CodeCertRevoked) {
			t.Error(got)
		}
	})
}

func TestFramesOfAHub(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		conn := s.welcome()
		drainOf(conn)
		b := relayproto.AppendPacket(nil, "p", make([]byte, 9000))
		b = append(b, 99, 0, 0, 3, 1, 2, 3) // of a type to come
		b = relayproto.AppendAbsent(relayproto.AppendPacket(b, "q", nil), "r")
		for len(b) > 0 { // in pieces of every size
			n := min(len(b), 1+len(b)%977)
			if _, err := conn.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		synctest.Wait()
		if got := fmt.Sprint(s.notes()); got != "[h p 9000 h q 0 h r absent]" {
			t.Error(got)
		}
		conn.Write([]byte{2, 0xff, 0xff, 0xff})
		synctest.Wait()
		if st := s.client.Status()[0]; st.Connected || !fault.Has(st.Fault, fault.CodeFrameInvalid) || st.Received != 2 {
			t.Errorf("%+v", st)
		}
		drainOf(s.welcome())
	})
}

// TestDrain: another connection is in use before the old one is left.
func TestDrain(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		old := s.welcome()
		drainOf(old)
		if _, err := old.Write(relayproto.AppendDrain(nil)); err != nil {
			t.Fatal(err)
		}
		next := <-s.conns
		if st := s.client.Status()[0]; !st.Connected || !st.Draining {
			t.Errorf("while it drains: %+v", st)
		}
		if _, err := old.Write(relayproto.AppendPacket(nil, "p", []byte("1"))); err != nil {
			t.Error(err)
		}
		if _, err := next.Write(relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: 1})); err != nil {
			t.Fatal(err)
		}
		drainOf(next)
		synctest.Wait()
		if st := s.client.Status()[0]; !st.Connected || st.Draining {
			t.Errorf("after it: %+v", st)
		}
		if _, err := old.Write(relayproto.AppendPacket(nil, "p", []byte("12"))); err != nil { // on its way still
			t.Error(err)
		}
		synctest.Wait()
		if got := fmt.Sprint(s.notes()); got != "[h p 1 h p 2]" {
			t.Error(got)
		}
		time.Sleep(2 * relay.RelayLeave)
		if _, err := old.Write([]byte{6, 0, 0, 0}); err == nil {
			t.Error("the old connection is open still")
		}
		if st := s.client.Status()[0]; !st.Connected || st.Fault != nil {
			t.Errorf("%+v", st)
		}
	})
}

// TestNothingIsLostBesideANewerConnection: the hub ends a connection for the sake of the one that is being
// made, and says so before it is there. What is sent in between goes by the new one. If that does not
// come about, there is none.
func TestNothingIsLostBesideANewerConnection(t *testing.T) {
	for _, comes := range []bool{true, false} {
		play(t, []string{"a:1"}, func(s *scene) {
			old := s.welcome()
			drainOf(old)
			s.client.Renew()
			next := <-s.conns
			if _, err := old.Write(relayproto.AppendEnd(nil, relayproto.Reason{Code: string(fault.CodeSessionLost), What: "a newer one"})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if st := s.client.Status()[0]; !st.Connected || s.client.Send("h", "p", []byte("between")) != 1 {
				t.Fatalf("between the two it is not connected: %+v", st)
			}
			if !comes {
				next.NetConn().Close()
				synctest.Wait()
				if st := s.client.Status()[0]; st.Connected || st.Fault == nil || s.client.Send("h", "p", []byte("late")) != 0 {
					t.Errorf("without either it is connected: %+v", st)
				}
				drainOf(s.welcome())
				return
			}
			if _, err := next.Write(relayproto.AppendWelcome(nil, relayproto.Greeting{Largest: 100})); err != nil {
				t.Fatal(err)
			}
			b, want := make([]byte, 1000), "between"
			for have := 0; !strings.Contains(string(b[:have]), want); {
				n, err := next.Read(b[have:])
				if have += n; err != nil {
					t.Fatalf("%q came: %v", b[:have], err)
				}
			}
			drainOf(next)
			synctest.Wait()
			if st := s.client.Status()[0]; !st.Connected || st.Fault != nil || st.Dropped != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestSendNeverWaits: a hub that does not read fills one queue and no more.
func TestSendNeverWaits(t *testing.T) {
	play(t, []string{"a:1"}, func(s *scene) {
		if s.client.Send("h", "p", make([]byte, 100)) != 0 {
			t.Error("taken without a connection")
		}
		s.welcome()
		away := s.client.Status()[0].Dropped // 1 if the hub was known by then
		taken := 0
		for range 10_000 {
			taken += s.client.Send("h", "p", make([]byte, 1000))
		}
		synctest.Wait() // until the writer hangs in its write: then no count changes
		st := s.client.Status()[0]
		if taken < 200 || taken > 600 || st.Queued > limit.RelayQueue || st.Dropped != away+int64(10_000-taken) || st.Sent != int64(taken) || st.SentBytes != int64(taken)*1000 {
			t.Errorf("%d taken, %+v", taken, st)
		}
		if n := s.client.Totals(); n.DroppedAway != 1 || n.DroppedQueue != int64(10_000-taken) || n.DroppedOdd != 0 || n.Sent != st.Sent || n.SentBytes != st.SentBytes || n.Connected != 1 {
			t.Errorf("%+v", n)
		}
		if s.client.Send("h", "", []byte{1}) != 0 || s.client.Send("x", "p", []byte{1}) != 0 {
			t.Error("nonsense was taken")
		}
		time.Sleep(2 * limit.RelayDead)
		if st := s.client.Status()[0]; st.Connected || st.Fault == nil {
			t.Errorf("a write that does not end: %+v", st)
		}
	})
}
