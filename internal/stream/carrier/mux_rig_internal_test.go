// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// patience is how long anything here may take; reaching it is a failure, never a wait.
const patience = runtest.Patience

// noLeak fails a test that leaves a goroutine behind. It is called first, so
// that its cleanup comes last.
func noLeak(t testing.TB) {
	t.Helper()
	now := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, now) })
}

// must gives v, or ends the test.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// done waits for c.
func done[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

// pair is two connected sockets without a network. What one of them writes
// waits in the kernel, of which small says that it holds little.
func pair(t testing.TB, small bool) (near, far net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		if small {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
				t.Fatal(err)
			}
		}
		f := os.NewFile(uintptr(fd), "socketpair")
		conns[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

// session makes one end over conn.
func session(t testing.TB, conn net.Conn, client bool, o Options) *muxSession {
	t.Helper()
	if o.Beside == 0 {
		o.Beside = mostConns // however few cores the machine has
	}
	s, err := newMux(conn, o, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if n := s.(*muxSession).owned.Load(); n != 0 {
			t.Errorf("Close has left %d goroutines", n)
		}
		for _, st := range unclosed(s.(*muxSession)) {
			t.Errorf("stream %d is left in the session after its end", st.id)
		}
	})
	return s.(*muxSession)
}

func unclosed(s *muxSession) (all []*muxStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		all = append(all, st)
	}
	return all
}

// rig makes sessions over TLS, on loopback unless sockets says otherwise.
type rig struct {
	t       testing.TB
	cert    tls.Certificate
	sockets func(ctx context.Context) (near, far net.Conn, err error)
}

func newRig(t testing.TB) *rig {
	t.Helper()
	ln := must[net.Listener](t)(listener.Listen(t.Context(), "", "127.0.0.1:0"))
	t.Cleanup(func() { ln.Close() })
	var mu sync.Mutex // pairs dials with accepts
	return &rig{t, runtest.Certificate(t), func(ctx context.Context) (near, far net.Conn, err error) {
		mu.Lock()
		defer mu.Unlock()
		near, err = Dialer().DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		if far, err = ln.Accept(); err != nil {
			near.Close()
			return nil, nil, err
		}
		t.Cleanup(func() {
			near.Close()
			far.Close()
		})
		return near, far, nil
	}}
}

// conns makes a pair of TLS connections.
func (r *rig) conns(ctx context.Context) (near, far net.Conn, err error) {
	a, b, err := r.sockets(ctx)
	if err != nil {
		return nil, nil, err
	}
	server := tls.Server(Wrap(b), &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{r.cert}, DynamicRecordSizingDisabled: true,
	})
	client := tls.Client(Wrap(a), &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, DynamicRecordSizingDisabled: true,
	})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		a.Close()
		<-shaken
		return nil, nil, err
	}
	return client, server, <-shaken
}

// sessions makes both ends; the agent dials further connections up to the bound.
func (r *rig) sessions(connections int) (agent, hub *muxSession) {
	r.t.Helper()
	near, far, err := r.conns(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		a, b, err := r.conns(ctx)
		if err != nil {
			return nil, err
		}
		if err := hub.Attach(b); err != nil {
			b.Close()
			return nil, err
		}
		return a, nil
	}
	hub = session(r.t, far, false, Options{Incoming: 20_000, Connections: connections})
	agent = session(r.t, near, true, Options{Incoming: 20_000, Connections: connections, Dial: dial})
	return agent, hub
}

// deadlineNow is the end of patience.
func deadlineNow() time.Time { return time.Now().Add(patience) }
