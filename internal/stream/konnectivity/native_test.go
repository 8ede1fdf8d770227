// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// sessions is a server for agents of ours.
type sessions struct {
	*konnectivity.Agents
	t       *testing.T
	address string
	trust   *tls.Config
	unread  *carrier.Budget                                                      // of agents
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // of agents, if it is not nil
}

func newSessions(t *testing.T) *sessions {
	t.Helper()
	cert := runtest.Certificate(t)
	s := &sessions{t: t, unread: carrier.NewBudget(limit.AgentUnread),
		trust: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{konnectivity.ALPN, "h2"}}}
	s.Agents = konnectivity.NewAgents(konnectivity.AgentsOptions{
		Log: slog.New(slog.DiscardHandler), ServerID: "one", Count: func() int { return 1 },
		Strategies: []konnectivity.Strategy{konnectivity.ByDefault}, Keepalive: time.Minute,
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{konnectivity.ALPN, "h2"}},
		Authorize: func(_ context.Context, token string) (konnectivity.Holder, error) {
			if token != "good" {
				return konnectivity.Holder{}, fault.New(fault.CodeUnauthorized, "the token is bad")
			}
			return konnectivity.HolderOfToken("good's", ""), nil
		},
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := soon(t, "Serve returns", served); err != nil {
			t.Error(err)
		}
	})
	return s
}

// raw is a connection on which TLS has agreed on a session.
func (s *sessions) raw() *tls.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	secure := tls.Client(carrier.Wrap(conn), s.trust)
	if err := secure.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	if got := secure.ConnectionState().NegotiatedProtocol; got != konnectivity.ALPN {
		s.t.Fatalf("agreed on %q", got)
	}
	return secure
}

// agent is one of ours.
func (s *sessions) agent(token string) (*konnectivity.Upstream, error) {
	return konnectivity.ConnectNative(context.Background(), s.raw(), konnectivity.UpstreamOptions{
		Log: slog.New(slog.DiscardHandler), AgentID: "a", Token: token, Splicer: splice.New(), Dial: s.dial, Budget: s.unread})
}

// run serves an agent until the test ends.
func (s *sessions) run() *konnectivity.Upstream {
	s.t.Helper()
	u, err := s.agent("good")
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- u.Serve() }()
	s.t.Cleanup(func() {
		u.Close()
		soon(s.t, "the agent ends", ended)
	})
	s.ready(1)
	return u
}

func (s *sessions) ready(n int) {
	s.t.Helper()
	runtest.Eventually(s.t, "agents are ready", func() bool { return s.Ready(konnectivity.ByDefault) == n })
}

func (s *sessions) mustDial(address string) carrier.Stream {
	s.t.Helper()
	stream, err := s.Dial(within(s.t), wire.Dial{Network: wire.NetworkTCP, Address: address})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stream.Reset(1) })
	return stream
}

// echoed checks that bytes come back.
func echoed(t *testing.T, s carrier.Stream, n int) {
	t.Helper()
	sent, got := bytes.Repeat([]byte("echo"), n/4), make([]byte, n)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.Write(sent) })
	s.SetReadDeadline(time.Now().Add(bound))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(sent, got) {
		t.Fatalf("%d bytes did not come back: %v", n, err)
	}
}

// TestStoppedStreamsOfASession: a caller and a target that do not read stop only themselves, at both ends, and all that
// was sent arrives once they do.
func TestStoppedStreamsOfASession(t *testing.T) {
	s := newSessions(t)
	s.run()
	const size = 32 << 20
	source := runtest.Serve(t, func(c *net.TCPConn) {
		io.Copy(c, io.LimitReader(zeros{}, size))
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	release, sum := make(chan struct{}), make(chan int64, 1)
	sink := runtest.Serve(t, func(c *net.TCPConn) {
		<-release
		n, _ := io.Copy(io.Discard, c)
		sum <- n
	})
	deaf := s.mustDial(source.Addr())
	stuck := s.mustDial(sink.Addr())
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{stuck}, io.LimitReader(zeros{}, size))
		wrote <- errors.Join(err, stuck.CloseWrite())
	}()
	other := s.mustDial(runtest.Echo(t).Addr())
	for range 300 { // more than both have before they stop
		echoed(t, other, 64<<10)
	}
	select {
	case err := <-wrote:
		t.Fatalf("the upload did not stop: %v", err)
	default:
	}
	if s.Budget.Unread() == 0 || s.unread.Unread() == 0 {
		t.Errorf("%d bytes are unread at the server, and %d at the agent", s.Budget.Unread(), s.unread.Unread())
	}
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{deaf}); n != size || err != nil {
		t.Errorf("%d bytes came of %d: %v", n, size, err)
	}
	close(release)
	if err := soon(t, "the upload ends", wrote); err != nil {
		t.Error(err)
	}
	if n := soon(t, "the target has it", sum); n != size {
		t.Errorf("%d bytes arrived of %d", n, size)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestDialsOfASession: what can become of them, and that nothing stays open.
func TestDialsOfASession(t *testing.T) {
	s := newSessions(t)
	u := s.run()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
	_, err = s.Dial(within(t), wire.Dial{Network: wire.NetworkTCP, Address: nobody})
	if !fault.Has(err, fault.CodeDialUnreachable) {
		t.Errorf("a port where nobody listens: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dial(gone, wire.Dial{Network: wire.NetworkTCP, Address: nobody}); !fault.Has(err, fault.CodeDialCanceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	echo := runtest.Echo(t).Addr()
	if _, err := s.Dial(within(t), wire.Dial{Network: wire.NetworkUDP, Address: echo}); !fault.Has(err, fault.CodeRequest) {
		t.Errorf("another network: %v", err)
	}
	stream := s.mustDial(echo)
	echoed(t, stream, 1000)
	if _, _, open := s.Counts(); open != 1 || u.Open() != 1 {
		t.Errorf("%d connections are open at the server, and %d at the agent", open, u.Open())
	}
	stream.CloseWrite()
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{stream}); n != 0 || err != nil {
		t.Errorf("behind a half-close: %d bytes, %v", n, err)
	}
	stream.Close()
	runtest.Eventually(t, "nothing is open", func() bool {
		_, pending, open := s.Counts()
		return pending+open == 0 && u.Open() == 0
	})
	u.Drain()
	u.Drain()
	echoed(t, s.mustDial(runtest.Echo(t).Addr()), 1000) // the last resort
	u.Close()
	s.ready(0)
	if _, err := s.Dial(within(t), wire.Dial{Network: wire.NetworkTCP, Address: nobody}); !fault.Has(err, fault.CodeNoAgent) {
		t.Errorf("without an agent: %v", err)
	}
}

// TestADialOfASessionWhoseCallerLeaves ends while its agent still dials.
func TestADialOfASessionWhoseCallerLeaves(t *testing.T) {
	s := newSessions(t)
	dialling, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s.dial = func(context.Context, string, string) (net.Conn, error) {
		close(dialling)
		<-release
		return nil, errors.New("released")
	}
	s.run()
	ctx, leave := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Dial(ctx, wire.Dial{Network: wire.NetworkTCP, Address: "192.0.2.1:1"})
		ended <- err
	}()
	<-dialling
	leave()
	if err := soon(t, "the dial", ended); !fault.Has(err, fault.CodeDialCanceled) {
		t.Errorf("it ends with %v", err)
	}
}

// TestASessionThatIsRefused: the agent learns why, and the server keeps nothing.
func TestASessionThatIsRefused(t *testing.T) {
	s := newSessions(t)
	if _, err := s.agent("bad"); err == nil || !errors.Is(err, fault.New(fault.CodeUnauthorized, "")) {
		t.Errorf("a bad token: %v", err)
	}
	u, err := s.agent("good") // and is not served: the agent has this server already
	if err != nil {
		t.Fatal(err)
	}
	if u.ServerID != "one" || u.Count != 1 {
		t.Errorf("the server is %q of %d", u.ServerID, u.Count)
	}
	s.ready(0)
	u.Close()
}

// TestHostileAgents: frames that cannot be end their connection and no other.
func TestHostileAgents(t *testing.T) {
	s := newSessions(t)
	s.run()
	other := s.mustDial(runtest.Echo(t).Addr())
	hello := func(t *testing.T) *tls.Conn {
		conn := s.raw()
		if err := wire.Write(conn, &pb.Greeting{Metadata: []*pb.Pair{{Key: "agentid", Value: "h"},
			{Key: "authorization", Value: "Bearer good"}}}); err != nil {
			t.Fatal(err)
		}
		var g pb.Greeting
		if err := wire.Read(conn, 1<<16, &g); err != nil || g.GetRefusal() != nil {
			t.Fatal(err, g.GetRefusal())
		}
		return conn
	}
	for name, attack := range map[string]func(t *testing.T) *tls.Conn{
		"a greeting of 4 GiB": func(*testing.T) *tls.Conn {
			conn := s.raw()
			conn.Write(binary.BigEndian.AppendUint32(nil, 1<<32-1))
			return conn
		},
		"a greeting that is none": func(*testing.T) *tls.Conn {
			conn := s.raw()
			conn.Write([]byte{0, 0, 0, 2, 0xff, 0xff})
			return conn
		},
		"without an id": func(t *testing.T) *tls.Conn {
			conn := s.raw()
			wire.Write(conn, &pb.Greeting{})
			var g pb.Greeting
			if err := wire.Read(conn, 1<<16, &g); err != nil || g.GetRefusal().GetCode() != string(fault.CodeRequest) {
				t.Errorf("the answer is %v, %v", &g, err)
			}
			return conn
		},
		"a frame of the mux that is too large": func(t *testing.T) *tls.Conn {
			conn := hello(t)
			conn.Write([]byte{1, 0xff, 0xff, 0xff, 0, 0, 0, 1})
			return conn
		},
		"a control frame that is too large": func(t *testing.T) *tls.Conn {
			conn := hello(t)
			session, err := carrier.Client(conn, carrier.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { session.Close() })
			session.OpenStream(t.Context(), binary.BigEndian.AppendUint32(nil, 1<<30))
			soon(t, "the session ends", session.Done())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if conn := attack(t); conn != nil {
				conn.SetReadDeadline(time.Now().Add(bound))
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
					t.Error("the connection stays open")
				}
			}
			echoed(t, other, 1000)
		})
	}
	s.ready(1)
}
