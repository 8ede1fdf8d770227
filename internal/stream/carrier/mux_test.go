// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/carrier/carriertest"
)

func TestMux(t *testing.T) {
	t.Run("pipe", func(t *testing.T) { carriertest.Run(t, pipes) })
	t.Run("tls", func(t *testing.T) { carriertest.Run(t, overTLS(1)) })
	t.Run("tls, 2 connections", func(t *testing.T) { carriertest.Run(t, overTLS(2)) })
	t.Run("tls, 4 connections", func(t *testing.T) { carriertest.Run(t, overTLS(4)) })
	t.Run("deaths", func(t *testing.T) { carriertest.Deaths(t, wires) })
	t.Run("slow", func(t *testing.T) { carriertest.Slow(t, wires) })
	t.Run("stuck pipe", func(t *testing.T) {
		carriertest.Stuck(t, unread(func(*testing.T) (near, far net.Conn) { return net.Pipe() }))
	})
	t.Run("stuck tls", func(t *testing.T) {
		carriertest.Stuck(t, unread(func(t *testing.T) (near, far net.Conn) { return newPlant(t).pair() }))
	})
	t.Run("lanes", func(t *testing.T) { carriertest.RunLanes(t, lanes, false) })
}

// unread makes a session whose peer is a connection that nobody reads.
func unread(pair func(*testing.T) (near, far net.Conn)) func(*testing.T) carrier.Session {
	return func(t *testing.T) carrier.Session {
		near, far := pair(t)
		t.Cleanup(func() { far.Close() })
		s, err := carrier.Client(near, carrier.Options{Incoming: 100})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func lanes(t *testing.T, connections int, o carrier.Options) carriertest.Lanes {
	p, f := grown(t, connections, o)
	return carriertest.Lanes{
		Pair: p, Lose: f.lose, Carried: f.carried, Refuse: f.refuse, Dialled: f.dialled,
		Another: func() net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close() })
			return far
		},
	}
}

// TestMuxOpensInOneWrite: the opening and its first bytes leave together.
func TestMuxOpensInOneWrite(t *testing.T) {
	a, b := net.Pipe()
	watched := &watchedWrites{Conn: a}
	o := carrier.Options{Incoming: 10}
	p := sessions(t, end{watched, o}, end{b, o})
	defer p.A.Close()
	defer p.B.Close()
	for id := byte(1); id < 8; id += 2 {
		request := fmt.Appendf(nil, "request %d", id)
		s, err := p.A.OpenStream(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		far, err := p.B.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		far.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(far, make([]byte, len(request))); err != nil {
			t.Fatal(err)
		}
		open := []byte{2, 0, 0, 8, 0, 0, 0, id} // docs/reference/mux.md
		if !watched.together(open, request) {
			t.Errorf("no write has both the opening of stream %d and its first bytes", id)
		}
		s.Close()
		far.Close()
	}
}

// watchedWrites keeps what is written, write by write.
type watchedWrites struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
}

func (c *watchedWrites) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, bytes.Clone(b))
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *watchedWrites) together(parts ...[]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.writes, func(b []byte) bool {
		return !slices.ContainsFunc(parts, func(part []byte) bool { return !bytes.Contains(b, part) })
	})
}

// TestMuxCloseEndsADial: a connection that is being dialled does not outlive the session.
func TestMuxCloseEndsADial(t *testing.T) {
	dialling, ended := make(chan struct{}, 100), make(chan error, 100)
	f := newPlant(t)
	agent, hub := f.pair()
	p := sessions(t, end{agent, carrier.Options{
		Incoming: 10, Connections: 2,
		Dial: func(ctx context.Context) (net.Conn, error) {
			dialling <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		},
	}}, end{hub, carrier.Options{Incoming: 10, Connections: 2}})
	defer p.B.Close()
	defer p.A.Close()
	s, err := p.A.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	far, err := p.B.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { _, err := io.Copy(io.Discard, far); done <- err }()
	go func() {
		for block := make([]byte, 1<<20); ; {
			if _, err := s.Write(block); err != nil {
				done <- err
				return
			}
		}
	}()
	select {
	case <-dialling:
	case <-time.After(30 * time.Second):
		t.Error("bulk did not ask for a second connection")
	}
	p.A.Close()
	for range 2 {
		if err := <-done; !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("a stream of the closed session: %v", err)
		}
	}
	if !t.Failed() {
		<-ended
	}
}

// TestBudget: what nobody reads counts, whatever becomes of it, and a session that is
// at its bound takes no new streams until some is gone.
func TestBudget(t *testing.T) {
	each := func(do func(carrier.Stream)) func(carriertest.Pair, []carrier.Stream) {
		return func(_ carriertest.Pair, far []carrier.Stream) {
			for _, s := range far {
				do(s)
			}
		}
	}
	for name, ends := range map[string]func(p carriertest.Pair, far []carrier.Stream){
		"read":   each(func(s carrier.Stream) { io.Copy(io.Discard, s) }),
		"reset":  each(func(s carrier.Stream) { s.Reset(1) }),
		"closed": each(func(s carrier.Stream) { s.Close() }),
		// What has come can be read after the end of the session, until the stream is closed.
		"session closed": func(p carriertest.Pair, far []carrier.Stream) {
			p.B.Close()
			each(func(s carrier.Stream) { s.Close() })(p, far)
		},
		"cut": func(p carriertest.Pair, far []carrier.Stream) {
			p.Cut()
			<-p.B.Done()
			each(func(s carrier.Stream) { s.Close() })(p, far)
		},
	} {
		t.Run(name, func(t *testing.T) { budgetKept(t, ends) })
	}
}

func budgetKept(t *testing.T, ends func(carriertest.Pair, []carrier.Stream)) {
	const most = 1 << 20
	budget := carrier.NewBudget(most)
	a, b := net.Pipe()
	p := sessions(t, end{a, carrier.Options{Incoming: 100}}, end{b, carrier.Options{Incoming: 100, Budget: budget}})
	p.Cut = func() { a.Close() }
	defer p.A.Close()
	defer p.B.Close()
	far := overfill(t, p, budget)
	if got := budget.Unread(); got < most || got > most+most/4 || int64(p.B.Info().Unread) != got {
		t.Errorf("%d bytes of %d are unread, the session tells of %d", got, most, p.B.Info().Unread)
	}
	if len(far) < 6 {
		t.Errorf("%d streams fill the budget; it should get smaller ones before it refuses", len(far))
	}
	ends(p, far)
	runtest.Eventually(t, "the budget counts what is unread", func() bool { return budget.Unread() == 0 })
	select {
	case <-p.B.Done():
	default:
		if _, _, err := knock(t, p); err != nil {
			t.Errorf("a stream after the others have ended: %v", err)
		}
	}
}

// overfill opens streams and leaves bytes in each until one is refused.
func overfill(t *testing.T, p carriertest.Pair, budget *carrier.Budget) (far []carrier.Stream) {
	t.Helper()
	total := int64(0)
	for range 50 {
		near, f, err := knock(t, p)
		var reset *carrier.ResetError
		if errors.As(err, &reset) && reset.Code == carrier.ResetRefused {
			return far
		}
		if err != nil {
			t.Fatal(err)
		}
		far = append(far, f)
		near.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) // a small first window takes less
		n, _ := near.Write(make([]byte, 200<<10))
		near.CloseWrite()
		total += int64(n)
		runtest.Eventually(t, "the budget counts what is unread", func() bool { return budget.Unread() == total })
	}
	t.Fatalf("%d bytes are unread and nothing is refused", total)
	return nil
}

// knock opens a stream and has it answered with one byte.
func knock(t *testing.T, p carriertest.Pair) (near, far carrier.Stream, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var accepted error
		if far, accepted = p.B.AcceptStream(ctx); accepted == nil {
			far.Write([]byte{1})
		}
	}()
	near, err = p.A.OpenStream(ctx, nil)
	if err == nil {
		near.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadFull(near, make([]byte, 1))
	}
	cancel()
	<-answered
	return near, far, err
}
