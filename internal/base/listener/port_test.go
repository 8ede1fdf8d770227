// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

func TestMain(m *testing.M) {
	// net/http lingers for half a second after it refused a head.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func TestListenSaysWhatToCorrect(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for address, code := range map[string]fault.Code{ln.Addr().String(): fault.CodeAddressBusy, "127.0.0.1:99999": fault.CodeConfig} {
		_, err := listener.Listen(t.Context(), "--listen", address)
		if f := fault.From(err); f == nil || f.Code != code || !strings.Contains(f.What, address) || !strings.Contains(f.Next, "--listen") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// tired is a listener that has no descriptors for a while.
type tired struct {
	net.Listener
	fails []int // how often before each connection
	at    []time.Time
}

func (l *tired) Accept() (net.Conn, error) {
	l.at = append(l.at, time.Now())
	if len(l.fails) == 0 {
		return nil, net.ErrClosed
	}
	if l.fails[0] > 0 {
		l.fails[0]--
		return nil, syscall.EMFILE
	}
	l.fails = l.fails[1:]
	return nil, nil
}

// TestAcceptWaitsOutAFailure: longer each time, up to a second, and shortly again
// after a connection.
func TestAcceptWaitsOutAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, n := &tired{fails: []int{10, 1}}, 0
		if err := listener.Accept(t.Context(), ln, func(net.Conn) { n++ }); err != nil || n != 2 {
			t.Fatalf("%d connections, %v", n, err)
		}
		want := []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 0, 5, 0}
		if len(ln.at) != len(want)+1 {
			t.Fatalf("%d tries", len(ln.at))
		}
		for i, w := range want {
			if d := ln.at[i+1].Sub(ln.at[i]); d != w*time.Millisecond {
				t.Errorf("after try %d it waited %v, want %vms", i, d, int(w))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := listener.Accept(ctx, &tired{fails: []int{1000}}, nil); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("it ended after %v, %v", time.Since(begun), err)
		}
	})
}

func TestHandoff(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to := listener.NewHandoff(ln.Addr())
	g := run.NewGroup(t.Context())
	near, far := net.Pipe()
	g.Do(func(context.Context) { to.Hand(near) })
	if c, err := to.Accept(); err != nil || c != near || to.Addr() != ln.Addr() {
		t.Errorf("%v, %v, %v", c, err, to.Addr())
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	to.Close()
	if _, err := to.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed one: %v", err)
	}
	to.Hand(near)
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what nobody takes is not closed: %v", err)
	}
}

// get asks once, on a connection of its own.
func get(t *testing.T, at net.Addr, path string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := client.Get("http://" + at.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHealth(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "healthListen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "some"}))
	ready := make(chan *fault.Fault, 3)
	ready <- nil
	ready <- fault.New(fault.CodeHubAway, "it is away")
	ready <- fault.New(fault.CodeHubAway, "it is away").Whyf("nobody knows")
	h := listener.Health{Ready: func() *fault.Fault { return <-ready }, Metrics: reg, Log: slog.New(slog.DiscardHandler)}
	g := run.NewGroup(t.Context())
	g.Go("health", func(ctx context.Context) error { return h.Serve(ctx, ln) })
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/livez", 200, "ok\n"},
		{"/readyz", 200, "ok\n"},
		{"/readyz", 503, `{"code":"hub_unreachable","what":"it is away"}` + "\n"},
		{"/readyz", 503, `{"code":"hub_unreachable","what":"it is away","why":"nobody knows"}` + "\n"},
		{"/metrics", 200, "# HELP some \n# TYPE some gauge\nsome 0\n"},
		{"/debug/pprof/", 404, "404 page not found\n"},
	} {
		if status, body := get(t, ln.Addr(), c.path); status != c.status || body != c.body {
			t.Errorf("%s: %d, %q", c.path, status, body)
		}
	}
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// TestHTTPHasBounds: a head that is too large is refused, and a request ends with the server.
func TestHTTPHasBounds(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, ended := make(chan struct{}), make(chan struct{})
	srv := listener.HTTP{Header: 1 << 10, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(ended)
	})}
	g := run.NewGroup(t.Context())
	g.Go("http", func(ctx context.Context) error { return srv.Serve(ctx, ln) })
	send := func(text string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	answer, err := io.ReadAll(send("GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 8<<10) + "\r\n\r\n"))
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 431 ")) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", answer, err)
	}
	send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	g.Stop()
	<-ended
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAnswersThatAreNotRead end with their connection, and those that are read slowly
// arrive.
func TestAnswersThatAreNotRead(t *testing.T) {
	const parts = 4
	for name, pause := range map[string]time.Duration{"slowly": limit.AnswerWait * 3 / 4, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				ln := listener.NewHandoff(&net.TCPAddr{})
				srv := listener.HTTP{Header: limit.RequestHeader, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(2 * limit.AnswerWait) // until it has something to say
					_, err := w.Write(make([]byte, parts*limit.AnswerPart))
					ended <- err
				})}
				ctx, cancel := context.WithCancel(t.Context())
				g := run.NewGroup(ctx)
				g.Go("server", func(ctx context.Context) error { return srv.Serve(ctx, ln) })
				ours, theirs := net.Pipe()
				ln.Hand(theirs)
				begun := time.Now()
				if _, err := io.WriteString(ours, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				g.Do(func(context.Context) {
					for buf := make([]byte, limit.AnswerPart); ; time.Sleep(pause) {
						if _, err := io.ReadFull(ours, buf); err != nil {
							return
						}
					}
				})
				err := <-ended
				switch took := time.Since(begun); {
				case name == "slowly" && err != nil:
					t.Errorf("who reads slowly is cut: %v", err)
				case name == "never" && (!errors.Is(err, os.ErrDeadlineExceeded) || took > 4*limit.AnswerWait):
					t.Errorf("after %v: %v", took, err)
				}
				cancel()
				ours.Close()
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAcceptedConnectionsHaveKeepAlive: a peer that has vanished from a silent connection is noticed.
func TestAcceptedConnectionsHaveKeepAlive(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	want := socket.KeepAlive()
	for _, option := range []struct {
		level, name, want int
	}{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(want.Idle.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(want.Interval.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, want.Count},
	} {
		got := 0
		failed := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), option.level, option.name) })
		if failed != nil || err != nil || got != option.want {
			t.Errorf("option %d of level %d is %d, %d is expected (%v, %v)", option.name, option.level, got, option.want, failed, err)
		}
	}
}
