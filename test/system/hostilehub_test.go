// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// falseHub stands where an agent's hub was, with its CA: what an agent can be
// made to do by a hub that was taken over.
type falseHub struct {
	ln    net.Listener
	conns chan *tls.Conn
}

// takeOver stops the hub and listens in its place.
func takeOver(t *testing.T, h *testHub) *falseHub {
	t.Helper()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(filepath.Join(h.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := s.Authority(id.DefaultTrustDomain, time.Now())
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(trust.Request{Identity: id.Identity{Role: id.RoleHub, Name: "false"}, Key: key.Public(), Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{trust.ALPNSession}, ClientAuth: tls.RequestClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}},
	}
	ln, err := net.Listen("tcp", h.listen)
	if err != nil {
		t.Fatal(err)
	}
	f := &falseHub{ln: ln, conns: make(chan *tls.Conn)}
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(carrier.Wrap(raw), cfg)
			select {
			case f.conns <- conn:
			case <-done:
				raw.Close()
			}
		}
	}()
	t.Cleanup(func() { close(done); ln.Close(); <-over })
	return f
}

// greeted takes the agent's next connection and welcomes it.
func (f *falseHub) greeted(t *testing.T, capabilities ...string) *tls.Conn {
	t.Helper()
	select {
	case conn := <-f.conns:
		t.Cleanup(func() { conn.NetConn().Close() })
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		var m pb.Control
		if err := wire.Read(conn, limit.ControlFrame, &m); err != nil || m.GetHello() == nil {
			t.Fatalf("no Hello: %v", err)
		}
		w := &pb.Welcome{Version: wire.Version, Capabilities: capabilities, UnixMillis: time.Now().UnixMilli(), Hub: "false"}
		if err := wire.Write(conn, &pb.Control{Frame: &pb.Control_Welcome{Welcome: w}}); err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Time{})
		return conn
	case <-time.After(runtest.Patience):
		t.Fatal("the agent does not come")
		return nil
	}
}

// beats answers the agent's pings until the test ends: an agent takes a hub that does not for a dead link.
func beats(t *testing.T, link carrier.Session) {
	t.Helper()
	control, err := link.AcceptStream(runtest.Within(t))
	if err != nil {
		t.Fatal(err)
	}
	beatsOn(t, link, control)
}

// beatsOn answers pings on a control stream until the test ends.
func beatsOn(t *testing.T, link carrier.Session, control carrier.Stream) {
	t.Helper()
	beat := heartbeat.New(heartbeat.Options{
		Stream:       control,
		Done:         link.Done(),
		End:          func() { link.Close() },
		LastReceived: func() time.Time { return link.Traffic().LastReceived },
		OnFrame:      func(*pb.Control) {},
	})
	ran := make(chan struct{})
	go func() { defer close(ran); beat.Run(context.Background()) }()
	t.Cleanup(func() { link.Close(); <-ran })
}

// echoes dials over a session as a hub does, and wants an echo.
func echoes(t *testing.T, link carrier.Session, to string) {
	t.Helper()
	if err := tryEcho(t, link, to); err != nil {
		t.Fatalf("through the agent: %v", err)
	}
}

func tryEcho(t *testing.T, link carrier.Session, to string) error {
	t.Helper()
	first, err := wire.Append(nil, wire.Dial{Network: "tcp", Address: to, Timeout: runtest.Patience}.Message())
	if err != nil {
		return err
	}
	st, err := link.OpenStream(runtest.Within(t), first)
	if err != nil {
		return err
	}
	defer st.Close()
	st.SetDeadline(time.Now().Add(runtest.Patience))
	if _, _, err := wire.ReadReply(st, false); err != nil {
		return err
	}
	mustEcho(t, st, "through the agent")
	return nil
}

// A hub that opens and resets streams in a loop, or opens more than there may be,
// costs the agent a bounded number of goroutines, and the streams beside it work.
func TestAgentUnderAHostileHub(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	f := takeOver(t, h)
	link, err := carrier.Server(f.greeted(t, wire.CapabilityMux), carrier.Options{Incoming: limit.AgentStreams})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	beats(t, link)
	echoes(t, link, to.Addr())
	heap, goroutines := heapInUse(), runtime.NumGoroutine()

	for range times(manyResets) {
		st, err := link.OpenStream(t.Context(), []byte{0})
		if err != nil {
			t.Fatal(err)
		}
		st.Reset(8)
	}
	runtest.Eventually(t, "a stream beside them works", func() bool { return tryEcho(t, link, to.Addr()) == nil })
	runtest.Eventually(t, "the agent has let go of what was reset", func() bool { return runtime.NumGoroutine() <= goroutines+4 })

	refused, most, began := 0, 0, time.Now()
	var kept []carrier.Stream
	for range limit.StreamsPerSession + 500 {
		st, err := link.OpenStream(runtest.Within(t), []byte{0})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, st)
	}
	most = runtime.NumGoroutine()
	for _, st := range kept[limit.StreamsPerSession:] {
		st.SetReadDeadline(time.Now().Add(runtest.Patience))
		var reset *carrier.ResetError
		if _, err := st.Read(make([]byte, 1)); errors.As(err, &reset) && reset.Code == carrier.ResetRefused {
			refused++
		}
	}
	// A stream that does not say within limit.Hello what it wants is ended, and another one may have its place.
	least := 500
	if time.Since(began) > limit.Hello {
		least = 0 // as on a machine that is busy
		t.Logf("only bounds are looked at: the streams took %v", time.Since(began))
	}
	if refused < least || most > goroutines+limit.StreamsPerSession+500 {
		t.Errorf("%d of 500 are refused, not %d; %d goroutines instead of %d", refused, least, most, goroutines)
	}
	for _, st := range kept {
		st.Reset(8)
	}
	runtest.Eventually(t, "the agent has let go of what was open", func() bool { return runtime.NumGoroutine() <= goroutines+4 })
	echoes(t, link, to.Addr())
	// With 1 KiB that this test keeps of each stream: lines, records, spans.
	if now := heapInUse(); now > heap+16<<20+limit.StreamsPerSession<<10 {
		t.Errorf("the heap has grown by %s", megabytes(now-heap))
	}
}

// What a hub may not say ends that session; the agent comes back for another one
// and serves it.
func TestAgentWhoseHubBreaksTheRules(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	f := takeOver(t, h)
	for name, frames := range map[string][]byte{
		"an id of the agent's":    rawFrame(nil, rawOpen, 7, opening()),
		"an id that is in use":    rawFrame(rawFrame(nil, rawOpen, 2, opening()), rawOpen, 2, opening()),
		"more data than credit":   rawFrame(rawFrame(nil, rawOpen, 2, []byte{0, 4, 0, 0, 0, 0, 0, 0}), rawData, 2, []byte("x")),
		"a frame that is no such": {1, 1, 0, 1, 0, 0, 0, 2},
	} {
		conn := f.greeted(t, wire.CapabilityMux)
		conn.SetDeadline(time.Now().Add(runtest.Patience))
		conn.Write(frames)
		if _, err := io.Copy(io.Discard, conn); !cut(err) {
			t.Errorf("%s: the agent keeps the session", name)
		}
		conn.NetConn().Close()
	}
	link, err := carrier.Server(f.greeted(t, wire.CapabilityMux), carrier.Options{Incoming: limit.AgentStreams})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	beats(t, link)
	echoes(t, link, to.Addr())
}
