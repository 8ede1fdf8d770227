// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// wirePair is a stream in memory, from one end to the other.
type wirePair struct {
	out chan<- packet
	in  <-chan packet
	end <-chan struct{}
}

func (w wirePair) SendMsg(m any) error {
	p := *m.(*packet)
	p.payload = bytes.Clone(p.payload)
	select {
	case w.out <- p:
		return nil
	case <-w.end:
		return io.EOF
	}
}

func (w wirePair) RecvMsg(m any) error {
	select {
	case p := <-w.in:
		*m.(*packet) = p
		return nil
	case <-w.end:
		return io.EOF
	}
}

func newTestTunnel(s messages) *tunnel {
	a := NewAgents(AgentsOptions{Log: slog.New(slog.DiscardHandler), Strategies: []Strategy{ByDefault}})
	t, err := a.attach(agentIdentity{agent: "a"}, s)
	if err != nil {
		panic(err) // nobody else is there
	}
	a.arrived(t)
	return t
}

func newTestUpstream(ctx context.Context, s messages, dial func(context.Context, string, string) (net.Conn, error),
) *Upstream {
	ctx, cancel := context.WithCancel(ctx)
	return &Upstream{link: newLink(s, nil, true), group: run.NewGroup(ctx), waiting: run.NewLimiter(100), stop: cancel,
		UpstreamOptions: UpstreamOptions{Log: slog.New(slog.DiscardHandler), Dial: dial, Splicer: splice.New()},
		dialing:         map[int64]context.CancelFunc{}}
}

// both runs a tunnel between a server's end and an agent's, in a bubble.
func both(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), test func(t *testing.T, a *Agents, end func())) {
	synctest.Test(t, func(t *testing.T) {
		up, down, ended := make(chan packet), make(chan packet), make(chan struct{})
		server := newTestTunnel(wirePair{down, up, ended})
		agent := newTestUpstream(t.Context(), wirePair{up, down, ended}, dial)
		g := run.NewGroup(t.Context())
		g.Do(func(context.Context) { server.receive(server.handle) })
		g.Do(server.sendControls)
		g.Do(func(context.Context) { agent.Serve() })
		once := false
		end := func() {
			if !once {
				once = true
				close(ended)
			}
		}
		test(t, server.agents, end)
		end()
		g.Stop()
		g.Wait()
	})
}

func tcpDial(address string) wire.Dial { return wire.Dial{Network: wire.NetworkTCP, Address: address} }

// TestTunnelEnds is what each end of a connection sees of the other's, and of the tunnel's.
func TestTunnelEnds(t *testing.T) {
	var target net.Conn // of the newest dial
	dial := func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		target = b
		return a, nil
	}
	open := func(t *testing.T, a *Agents) (carrier.Stream, net.Conn) {
		s, err := a.Dial(t.Context(), tcpDial("target:1"))
		if err != nil {
			t.Fatal(err)
		}
		go s.Write([]byte("hello"))
		b := make([]byte, 5)
		if _, err := io.ReadFull(target, b); err != nil || string(b) != "hello" {
			t.Fatalf("the target reads %q: %v", b, err)
		}
		return s, target
	}
	t.Run("the target ends", func(t *testing.T) {
		both(t, dial, func(t *testing.T, a *Agents, _ func()) {
			s, target := open(t, a)
			target.Write([]byte("bye"))
			target.Close()
			if got, err := io.ReadAll(s); string(got) != "bye" || err != nil {
				t.Errorf("read %q: %v", got, err)
			}
			var reset *carrier.ResetError
			if _, err := s.Write([]byte("x")); !errors.As(err, &reset) {
				t.Errorf("a write after the end: %v", err)
			}
			s.Close()
		})
	})
	t.Run("the caller ends", func(t *testing.T) {
		both(t, dial, func(t *testing.T, a *Agents, _ func()) {
			s, target := open(t, a)
			s.Close()
			if _, err := target.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the target reads %v", err)
			}
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read: %v", err)
			}
			synctest.Wait()
			if _, pending, open := a.Counts(); pending+open != 0 {
				t.Errorf("%d dials and %d connections are left", pending, open)
			}
		})
	})
	t.Run("the caller finishes and is answered", func(t *testing.T) {
		both(t, dial, func(t *testing.T, a *Agents, _ func()) {
			s, target := open(t, a)
			s.CloseWrite()
			time.Sleep(konnectivityHalf - time.Second)
			target.Write([]byte("answer"))
			b := make([]byte, 6)
			if _, err := io.ReadFull(s, b); err != nil {
				t.Errorf("read: %v", err)
			}
			if _, err := s.Read(b); err != io.EOF {
				t.Errorf("after the time for an answer: %v", err)
			}
			target.Close()
		})
	})
	t.Run("the tunnel ends", func(t *testing.T) {
		both(t, dial, func(t *testing.T, a *Agents, end func()) {
			s, target := open(t, a)
			end()
			if _, err := s.Read(make([]byte, 1)); !fault.Has(err, fault.CodeSessionLost) {
				t.Errorf("read: %v", err)
			}
			target.Read(make([]byte, 1)) // it has an end, too
			if _, err := a.tunnels[0].dial(t.Context(), tcpDial("target:1")); !fault.Has(err, fault.CodeSessionLost) {
				t.Errorf("a dial that has chosen it: %v", err)
			}
			if _, err := a.Dial(t.Context(), tcpDial("target:1")); !fault.Has(err, fault.CodeNoAgent) {
				t.Errorf("the next dial: %v", err)
			}
		})
	})
	t.Run("a deadline", func(t *testing.T) {
		both(t, dial, func(t *testing.T, a *Agents, _ func()) {
			s, target := open(t, a)
			s.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
			s.Reset(0)
			target.Close()
		})
	})
}

// TestDialEnds is how a dial ends without a connection.
func TestDialEnds(t *testing.T) {
	var gone time.Time
	hangs := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		gone = time.Now()
		return nil, ctx.Err()
	}
	t.Run("its caller leaves", func(t *testing.T) {
		both(t, hangs, func(t *testing.T, a *Agents, _ func()) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := a.Dial(ctx, tcpDial("target:1")); !fault.Has(err, fault.CodeDialCanceled) {
				t.Errorf("it ends with %v", err)
			}
			synctest.Wait()
			if !gone.Equal(time.Now()) {
				t.Error("the agent continues to dial")
			}
		})
	})
	t.Run("the target does not answer", func(t *testing.T) {
		both(t, hangs, func(t *testing.T, a *Agents, _ func()) {
			if _, err := a.Dial(t.Context(), tcpDial("target:1")); !fault.Has(err, fault.CodeDialUnreachable) {
				t.Errorf("it ends with %v", err)
			}
		})
	})
	t.Run("the agent takes nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			server := newTestTunnel(wirePair{make(chan packet), make(chan packet), ended})
			g := run.NewGroup(t.Context())
			g.Do(func(context.Context) { server.receive(server.handle) })
			g.Do(server.sendControls)
			other := make(chan error, 1)
			go func() {
				time.Sleep(time.Second)
				_, err := server.agents.Dial(t.Context(), tcpDial("target:2"))
				other <- err
			}()
			if _, err := server.agents.Dial(t.Context(), tcpDial("target:1")); !fault.Has(err, fault.CodeDialTimeout) {
				t.Errorf("it ends with %v", err)
			}
			close(ended)
			<-other
			g.Stop()
			g.Wait()
		})
	})
	t.Run("another network", func(t *testing.T) {
		both(t, hangs, func(t *testing.T, a *Agents, _ func()) {
			if _, err := a.Dial(t.Context(), wire.Dial{Network: "unix", Address: "/run/x"}); !fault.Has(err, fault.CodeRequest) {
				t.Errorf("it ends with %v", err)
			}
		})
	})
}

// TestAFullQueue resets the connection that does not take its bytes, after a moment, and no other.
func TestAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tun := newTestTunnel(wirePair{})
		tun.log = slog.New(slog.NewTextHandler(&log, nil))
		slow, _ := tun.link.open(1, "target:1")
		quick, _ := tun.link.open(2, "target:2")
		piece := make([]byte, 64<<10)
		begin := time.Now()
		sent := 0
		for slow.writable() == nil {
			tun.handle(&packet{kind: data, body: body{connectID: 1, payload: piece}})
			if sent += len(piece); sent > 2*konnectivityQueue {
				t.Fatal("more than its budget waits for a connection")
			}
		}
		if took := time.Since(begin); took != konnectivityPatience {
			t.Errorf("the tunnel has waited for %v", took)
		}
		tun.handle(&packet{kind: data, body: body{connectID: 1, payload: piece}}) // in flight: nobody waits for it
		tun.handle(&packet{kind: data, body: body{connectID: 2, payload: []byte("x")}})
		if n, err := quick.Read(piece); n != 1 || err != nil {
			t.Errorf("the other connection reads %d: %v", n, err)
		}
		if _, err := slow.Read(piece); !fault.Has(err, fault.CodeLimit) {
			t.Errorf("it reads %v", err)
		}
		if got := log.String(); !strings.Contains(got, "target=target:1") || strings.Contains(got, "target:2") {
			t.Errorf("the log says %q", got)
		}
		if time.Since(begin) != konnectivityPatience || len(tun.controls) != 1 || tun.controls[0].kind != closeRequest {
			t.Errorf("%d controls after %v", len(tun.controls), time.Since(begin))
		}
	})
}
