// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// writes records each call of Write.
type writes struct {
	*net.TCPConn
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.all = append(w.all, string(p))
	w.mu.Unlock()
	return w.TCPConn.Write(p)
}

// tcpPair gives both ends of a connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

type fakeStream struct{ *net.TCPConn }

func (s fakeStream) Reset(uint32) error { return s.Close() }

func (s fakeStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return plainCopy(s.TCPConn, src, moved)
}

func (s fakeStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	err, dstErr = plainCopy(dst, s.TCPConn, moved)
	return dstErr, err
}

// plainCopy tells the end of src from that of dst, as a stream's copies do.
func plainCopy(dst io.Writer, src io.Reader, moved func(int)) (srcErr, dstErr error) {
	for buf := make([]byte, 4<<10); ; {
		n, err := src.Read(buf)
		if n > 0 {
			if _, dstErr = dst.Write(buf[:n]); dstErr != nil {
				return nil, dstErr
			}
			if moved != nil {
				moved(n)
			}
		}
		if err != nil {
			return err, nil
		}
	}
}

// bareHub is as much of a hub as a frontend needs.
func bareHub(t testing.TB) *Hub {
	t.Helper()
	log, err := telemetry.Logger(io.Discard, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	h, err := New(cfg, Options{Log: log, Reg: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.state.Close() })
	return h
}

// TestANewHubIsMeasured: every reading has its part.
func TestANewHubIsMeasured(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	h, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.state.Close() })
	if all, err := reg.Gather(); err != nil || len(all) == 0 {
		t.Errorf("%d metrics, %v", len(all), err)
	}
}

// kube-apiserver fails a dial if a byte of the target comes along with the 200,
// so the head has a write of its own, even when the target has spoken before,
// and nothing is written before the dial has succeeded.
func TestAnswerIsWrittenAloneAndOnlyAfterTheDial(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := bareHub(t)
	caller, hubEnd := tcpPair(t)
	target, agentEnd := tcpPair(t)
	if _, err := io.WriteString(target, "220 ready\r\n"); err != nil {
		t.Fatal(err)
	}
	target.CloseWrite()
	io.WriteString(caller, "CONNECT 10.0.0.1:25 HTTP/1.1\r\n\r\n")
	conn := &writes{TCPConn: hubEnd}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.connect.serveConnect(context.Background(), conn, record.Party{}, func(_ context.Context, d wire.Dial) (carrier.Stream, error) {
			if len(conn.all) > 0 {
				t.Errorf("before the dial succeeded the caller got %q", conn.all)
			}
			if d.Address != "10.0.0.1:25" || d.Network != "tcp" {
				t.Errorf("dial: %+v", d)
			}
			return fakeStream{agentEnd}, nil
		})
	}()
	got, err := io.ReadAll(io.LimitReader(caller, 1024))
	if err != nil {
		t.Fatal(err)
	}
	caller.CloseWrite()
	<-served
	const head = "HTTP/1.1 200 Connection Established\r\n\r\n"
	if string(got) != head+"220 ready\r\n" {
		t.Errorf("the caller read %q", got)
	}
	if len(conn.all) < 2 || conn.all[0] != head {
		t.Errorf("writes: %q", conn.all)
	}
}

// A dial may end before anybody listens to the caller: its early bytes are found all the same.
func TestBytesBeforeAFastAnswer(t *testing.T) {
	h := bareHub(t)
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for early, want := range map[string]string{"": "HTTP/1.1 200 ", "x": "HTTP/1.1 400 early_data: "} {
		caller, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		target, agentEnd := tcpPair(t)
		io.WriteString(caller, "CONNECT 10.0.0.1:25 HTTP/1.1\r\n\r\n")
		served := make(chan struct{})
		go func() {
			defer close(served)
			h.connect.serveConnect(t.Context(), conn, record.Party{}, func(context.Context, wire.Dial) (carrier.Stream, error) {
				io.WriteString(caller, early)
				return fakeStream{agentEnd}, nil
			})
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(caller, got); err != nil || string(got) != want {
			t.Errorf("after %q: %q, %v", early, got, err)
		}
		caller.Close()
		if text, err := io.ReadAll(target); len(text) > 0 || err != nil && early == "" {
			t.Errorf("after %q the target got %q, %v", early, text, err)
		}
		target.Close()
		<-served
	}
}

// Every code has a status, and its refusal is one well-formed response whatever
// the texts hold.
func TestRefusalOfEveryCode(t *testing.T) {
	for _, e := range fault.Table() {
		f := fault.New(e.Code, "what\r\nX-Injected: 1").Whyf("why %s", strings.Repeat("\u00e9", 900)).Hint("next\x00")
		text := refusal(f)
		head, body, ok := strings.Cut(text, "\r\n\r\n")
		if !ok || strings.Contains(head, "X-Injected: 1\r\n") || !strings.Contains(head, "\r\nTombolo-Fault: "+string(e.Code)+"\r\n") {
			t.Errorf("%s: %q", e.Code, head)
		}
		status := statusOf(f)
		if status < 400 || http.StatusText(status) == "" {
			t.Errorf("%s: status %d", e.Code, status)
		}
		for i, line := range strings.Split(head, "\r\n") {
			if strings.ContainsAny(line, "\r\n\x00") || i > 0 && !strings.Contains(line, ": ") {
				t.Errorf("%s: line %q", e.Code, line)
			}
		}
		if !strings.HasPrefix(body, string(e.Code)+": ") {
			t.Errorf("%s: body %q", e.Code, body)
		}
	}
}

// Dials under way are bounded for each cluster on its own.
func TestPendingDialsAreBounded(t *testing.T) {
	h := bareHub(t)
	name, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	other, err := id.ParseCluster("c2")
	if err != nil {
		t.Fatal(err)
	}
	c := h.clusters.add(name)
	h.clusters.add(other)
	bounds := c.accounts.Cluster.Bounds()
	busy := bounds
	busy.Pending = 0
	c.accounts.Cluster.Bound(busy)
	_, err = h.Dial(context.Background(), name, wire.Dial{Network: "tcp", Address: "10.0.0.1:80"})
	if f := fault.From(err); !fault.Has(err, fault.CodeLimit) || statusOf(f) != http.StatusTooManyRequests {
		t.Errorf("got %v", err)
	}
	if _, err := h.Dial(context.Background(), other, wire.Dial{Network: "tcp", Address: "10.0.0.1:80"}); !fault.Has(err, fault.CodeNoAgent) {
		t.Errorf("another cluster: %v", err)
	}
	full := bounds
	full.Unread = 0
	c.accounts.Cluster.Bound(full)
	if _, err := h.Dial(context.Background(), name, wire.Dial{Network: "tcp", Address: "10.0.0.1:80"}); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("with too much unread: %v", err)
	}
	c.accounts.Cluster.Bound(bounds)
	if _, err := h.Dial(context.Background(), name, wire.Dial{Network: "tcp", Address: "10.0.0.1:80"}); !fault.Has(err, fault.CodeNoAgent) {
		t.Errorf("with a place: %v", err)
	}
}
