// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub/backend"
)

// proxyThat serves TLS with whatever becomes of a connection after the head of its request.
func proxyThat(t *testing.T, does func(net.Conn)) backend.Proxy {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		does(conn)
	}))
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	table, wrong := parse("", v1alpha1.BackendConfig{Name: "vpn", Proxy: srv.Listener.Addr().String(), ServerName: "example.com", CA: ca})
	if wrong != "" {
		t.Fatal(wrong)
	}
	p, err := table.Proxy("vpn", cluster(t, "c1"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) } // the client may have gone
}

// A target that speaks at once is heard from its first byte on, and the end of either direction arrives alone.
func TestConnect(t *testing.T) {
	p := proxyThat(t, func(c net.Conn) {
		says("HTTP/1.1 200 OK\r\n\r\nhello ")(c)
		got, err := io.ReadAll(c) // until the other end has ended its direction
		if err != nil {
			t.Error(err)
		}
		says(string(got))(c)
	})
	if err := p.Check(runtest.Within(t), &net.Dialer{}); err != nil {
		t.Fatal(err)
	}
	conn, err := p.Connect(runtest.Within(t), &net.Dialer{}, "10.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "and back"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "hello and back" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Who fails is told apart: the target, by what a proxy of ours says of it; the proxy; or the caller.
func TestFailuresOfAProxy(t *testing.T) {
	for name, c := range map[string]struct {
		does func(net.Conn)
		want fault.Code
	}{
		"refused, by ours":     {says("HTTP/1.1 502 Bad Gateway\r\nTombolo-Fault: dial_refused\r\nContent-Length: 0\r\n\r\n"), fault.CodeDialRefused},
		"denied, by ours":      {says("HTTP/1.1 403 Forbidden\r\nTombolo-Fault: policy_denied\r\nContent-Length: 0\r\n\r\n"), fault.CodePolicyDenied},
		"a code of its own":    {says("HTTP/1.1 500 Oh\r\nTombolo-Fault: certificate_revoked\r\nContent-Length: 0\r\n\r\n"), fault.CodeBackendAway},
		"unavailable":          {says("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), fault.CodeBackendAway},
		"no HTTP":              {says("SSH-2.0-x\r\n"), fault.CodeBackendAway},
		"an endless head":      {says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), fault.CodeBackendAway},
		"an end":               {func(net.Conn) {}, fault.CodeBackendAway},
		"silence, in time":     {func(c net.Conn) { _, _ = bufio.NewReader(c).ReadByte() }, fault.CodeDialTimeout},
		"silence, given up":    {func(c net.Conn) { _, _ = bufio.NewReader(c).ReadByte() }, fault.CodeDialCanceled},
		"a redirect is no yes": {says("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), fault.CodeBackendAway},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			p := proxyThat(t, func(conn net.Conn) {
				close(asked)
				c.does(conn)
			})
			ctx := runtest.Within(t)
			switch c.want {
			case fault.CodeDialTimeout:
				within, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				ctx = within
			case fault.CodeDialCanceled:
				within, cancel := context.WithCancel(ctx)
				go func() {
					<-asked
					cancel()
				}()
				ctx = within
			}
			if conn, err := p.Connect(ctx, &net.Dialer{}, "10.0.0.1:443"); !fault.Has(err, c.want) {
				t.Errorf("%v, %v, want %s", conn, err, c.want)
			}
		})
	}
}

// late is a context whose deadline has passed, and which does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// Package net may see the end of a dial before its context does.
func TestADialThatIsLate(t *testing.T) {
	p := proxyThat(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	if conn, err := p.Connect(late{t.Context()}, &net.Dialer{}, "10.0.0.1:443"); !fault.Has(err, fault.CodeDialTimeout) {
		t.Errorf("%v, %v", conn, err)
	}
}

// A proxy that cannot be trusted, or reached, or whose files cannot be read carries nothing.
func TestProxiesThatAreNotUsed(t *testing.T) {
	good := proxyThat(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	for name, change := range map[string]func(*backend.Proxy){
		"another name":       func(p *backend.Proxy) { p.ServerName = "other.example" },
		"no file":            func(p *backend.Proxy) { p.CA += ".none" },
		"no certificate":     func(p *backend.Proxy) { p.CA = filepath.Join("testdata", "..", "limits.go") },
		"a key that is none": func(p *backend.Proxy) { p.Certificate, p.Key = p.CA, p.CA },
		"nobody there":       func(p *backend.Proxy) { p.Address = "127.0.0.1:1" },
	} {
		p := good
		change(&p)
		if _, err := p.Connect(runtest.Within(t), &net.Dialer{}, "10.0.0.1:443"); !fault.Has(err, fault.CodeBackendAway) {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Check(runtest.Within(t), &net.Dialer{}); !fault.Has(err, fault.CodeBackendAway) {
			t.Errorf("%s, checked: %v", name, err)
		}
	}
}
