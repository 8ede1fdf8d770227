// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

// connectProxy is an HTTP proxy that asks for a password and counts its tunnels.
func connectProxy(t *testing.T) (at *url.URL, tunnels *atomic.Int32) {
	t.Helper()
	tunnels = &atomic.Int32{}
	server := runtest.Serve(t, func(c *net.TCPConn) {
		defer c.Close()
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		asked := &http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
		if user, password, _ := asked.BasicAuth(); req.Method != http.MethodConnect || user != "node" || password != "open sesame" {
			io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
			return
		}
		to, err := net.Dial("tcp", req.Host)
		if err != nil {
			io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			return
		}
		defer to.Close()
		tunnels.Add(1)
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		var back sync.WaitGroup
		back.Go(func() {
			io.Copy(c, to)
			c.Close()
		})
		io.Copy(to, r)
		to.Close()
		back.Wait()
	})
	return &url.URL{Scheme: "http", User: url.UserPassword("node", "open sesame"), Host: server.Addr()}, tunnels
}

// proxied is a node that reaches its hub by a proxy alone.
type proxied struct {
	*attach.Attach
	got  chan string
	came atomic.Int64
	log  *runtest.Transcript
}

func proxiedNode(t *testing.T, name, line string, via *atomic.Pointer[url.URL]) *proxied {
	t.Helper()
	p := &proxied{got: make(chan string, 100), log: &runtest.Transcript{}}
	tell := func(text string) {
		select {
		case p.got <- text:
		default: // nobody reads that
		}
	}
	var err error
	p.Attach, err = attach.Open(attach.Config{
		StateDir: t.TempDir(), Node: name, Join: line, Proxy: func(*url.URL) (*url.URL, error) { return via.Load(), nil },
	}, attach.Options{
		Log: slog.New(slog.NewTextHandler(p.log, nil)), Reg: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	to := relay.Handlers{
		Receive: func(_, peer string, d []byte) {
			if p.came.Add(1); len(d) > 4 {
				tell(peer + " " + string(d[4:]))
			}
		},
		Absent: func(_, peer string) { tell(peer + " is absent") },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx, to) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(p.log.String(), "sesame") {
			t.Error("the proxy's password is in the log")
		}
	})
	return p
}

func (p *proxied) connected(t *testing.T) {
	t.Helper()
	runtest.Eventually(t, "the node is connected to the relay", p.Ready)
}

// stream sends all the time, until the end of the test.
func (p *proxied) stream(t *testing.T, hub, peer string) {
	ctx, cancel := context.WithCancel(context.Background())
	var sender sync.WaitGroup
	sender.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Send(hub, peer, []byte{4, 0, 0, 0})
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		sender.Wait()
	})
}

// TestRelayByAProxy: the program's hub relays between nodes that reach it by an HTTP
// proxy alone, comes back after kill -9, and forgets a node that is revoked.
func TestRelayByAProxy(t *testing.T) {
	w := startHub(t)
	at, tunnels := connectProxy(t)
	via := &atomic.Pointer[url.URL]{}
	via.Store(at)
	var token admin.Token
	if err := json.Unmarshal([]byte(must(t, "token", "create", "--cluster", "c1", "--node", "--uses", "2", "-o", "json")), &token); err != nil {
		t.Fatal(err)
	}
	a, b := proxiedNode(t, "a", token.Join, via), proxiedNode(t, "b", token.Join, via)
	a.connected(t)
	b.connected(t)
	hub := a.Hubs()[0]
	say := func(text string) {
		t.Helper()
		a.Send(hub, "b", append([]byte{4, 0, 0, 0}, text...))
		for late := time.After(runtest.Patience); ; {
			select {
			case got := <-b.got:
				if got == "a is absent" { // the stream met nobody
					continue
				}
				if got != "a "+text {
					t.Errorf("b got %q", got)
				}
				return
			case <-late:
				t.Fatal("nothing came")
			}
		}
	}
	say("one")
	if n := tunnels.Load(); n != 4 { // two joins, two relays
		t.Errorf("%d tunnels", n)
	}
	if out := must(t, "status", "c1"); !strings.Contains(out, "nodes     2 connected") || !strings.Contains(out, "1 packets") {
		t.Error(out)
	}

	b.stream(t, hub, "a")
	runtest.Eventually(t, "a stream comes", func() bool { return a.came.Load() > 10 })
	if err := w.hub.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "both notice", func() bool { return !a.Ready() && !b.Ready() })
	<-w.hub.Done()
	if len(a.Hubs()) != 1 {
		t.Error("a hub that was killed is no hub of the node's any more, at once")
	}
	before := a.came.Load()
	w.hub = w.runHub(t)
	a.connected(t)
	b.connected(t)
	say("two")
	runtest.Eventually(t, "the stream goes on", func() bool { return a.came.Load() > before+10 })

	var list admin.CertificateList
	if err := json.Unmarshal([]byte(must(t, "certificate", "list", "-o", "json")), &list); err != nil || len(list.Certificates) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	must(t, "revoke", "node", list.Certificates[1].Serial)
	runtest.Eventually(t, "b is told", func() bool {
		s := b.Status()
		return s.Fault != nil && s.Fault.Code == fault.CodeCertRevoked && len(b.Hubs()) == 0
	})
	a.Send(hub, "b", append([]byte{4, 0, 0, 0}, "three"...))
	select {
	case got := <-a.got:
		if got != "b is absent" {
			t.Errorf("a got %q", got)
		}
	case <-time.After(runtest.Patience):
		t.Fatal("nobody says that b is absent")
	}
	via.Store(&url.URL{Scheme: "http", User: url.User("nobody"), Host: at.Host})
	a.Again()
	runtest.Eventually(t, "a wrong password is told", func() bool {
		s := a.Status().Hubs[0]
		return s.Fault != nil && strings.Contains(s.Fault.Explain(), "407") && s.Connected // the old one stays
	})
}
