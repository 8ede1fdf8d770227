// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// overSocket serves h on a unix socket and returns a client for it.
func overSocket(t *testing.T, h http.HandlerFunc) *admin.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	return admin.OverSocket(path)
}

// raw serves one connection after another with serve, without HTTP.
func raw(t *testing.T, serve func(net.Conn)) *admin.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return admin.OverSocket(path)
}

// head reads a request up to its empty line.
func head(conn net.Conn) string {
	var b strings.Builder
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

func TestCall(t *testing.T) {
	c := overSocket(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"id":%q,"cluster":%q}`, r.Method+" "+r.URL.Path, body)
	})
	var out admin.Token
	err := c.Call(t.Context(), http.MethodPost, "/v1/tokens", admin.SocketRequest{Protocol: "connect"}, &out)
	if err != nil || out.ID != "POST /v1/tokens" || out.Cluster != `{"protocol":"connect"}` {
		t.Errorf("%+v, %v", out, err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/status", nil, &out); err != nil || out.Cluster != "" {
		t.Errorf("without a body: %+v, %v", out, err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/status", func() {}, &out); err == nil {
		t.Error("a body that is no JSON was sent")
	}
	if err := c.Call(t.Context(), "BAD METHOD", "/", nil, &out); !fault.Has(err, fault.CodeUsage) {
		t.Errorf("a bad method: %v", err)
	}
}

func TestPing(t *testing.T) {
	for answer, want := range map[string]fault.Code{
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                                       "",
		"HTTP/1.1 401 no\r\nTombolo-Fault: certificate_revoked\r\nContent-Length: 0\r\n\r\n": fault.CodeCertRevoked,
		"": fault.CodeHubAway,
	} {
		c := raw(t, func(conn net.Conn) {
			if got := head(conn); got != "OPTIONS * HTTP/1.1\r\nHost: hub\r\n\r\n" {
				t.Errorf("it asked %q", got)
			}
			io.WriteString(conn, answer)
		})
		if err := c.Ping(t.Context()); want == "" && err != nil || want != "" && !fault.Has(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestAnswersThatAreNoAnswer(t *testing.T) {
	reply := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set("Tombolo-Fault", header)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  fault.Code
		says  string
	}{
		"a fault":                       {reply(503, "", `{"code":"no_agent","what":"cluster c1 has no live agent","next":"look"}`), fault.CodeNoAgent, "c1"},
		"a fault of a later version":    {reply(418, "", `{"code":"short_and_stout","what":"tea"}`), "short_and_stout", "tea"},
		"a fault as text":               {reply(403, "policy_denied", "policy_denied: no\n"), fault.CodePolicyDenied, "no"},
		"a page of some other server":   {reply(404, "", "<html>not here</html>"), fault.CodeHubAway, "404"},
		"a redirection is not followed": {reply(302, "", ""), fault.CodeHubAway, "302"},
		"text in place of JSON":         {reply(200, "", "hello"), fault.CodeHubAway, "cannot be read"},
		"nothing":                       {reply(200, "", ""), fault.CodeHubAway, "cannot be read"},
		"JSON of another kind":          {reply(200, "", `{"id":7}`), fault.CodeHubAway, "cannot be read"},
		"JSON with something behind":    {reply(200, "", `{"id":"x"} {"id":"y"}`), fault.CodeHubAway, "cannot be read"},
		"half of what it announces": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"id":`)
		}, fault.CodeHubAway, "cannot be read"},
		"a head without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*limit.RequestHeader))
		}, fault.CodeHubAway, "no hub answers"},
		"more than is read": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte(" "), 1<<20)
			for range admin.AdminAnswer>>20 + 1 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, fault.CodeHubAway, "more than 67108864 bytes"},
		"a fault without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, fault.CodeHubAway, "500"},
		"a connection that closes": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, fault.CodeHubAway, "no hub answers"},
	} {
		t.Run(name, func(t *testing.T) {
			var out admin.Token
			err := overSocket(t, c.serve).Call(t.Context(), http.MethodGet, "/v1/x", nil, &out)
			if f := fault.From(err); f == nil || f.Code != c.want || !strings.Contains(f.Error(), c.says) || len(f.Error()) > 4096 {
				t.Errorf("%.300v, want %s that says %q", err, c.want, c.says)
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		c := raw(t, func(conn net.Conn) {
			head(conn)
			io.WriteString(conn, "SSH-2.0-x\r\n")
		})
		if err := c.Call(t.Context(), http.MethodGet, "/v1/x", nil, new(admin.Token)); !fault.Has(err, fault.CodeHubAway) {
			t.Errorf("%v", err)
		}
	})
}

func TestNoHub(t *testing.T) {
	c := admin.OverSocket(filepath.Join(t.TempDir(), "none"))
	var out admin.Token
	_, err1 := c.Download(t.Context(), "/v1/backup", io.Discard)
	_, err2 := c.Stream(t.Context(), "c1", "a:1")
	for what, err := range map[string]error{"call": c.Call(t.Context(), http.MethodGet, "/v1/x", nil, &out), "download": err1, "stream": err2} {
		if f := fault.From(err); f == nil || f.Code != fault.CodeHubAway || !strings.Contains(f.Error(), "none") || !strings.Contains(f.Next, "tombolo hub") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDownload(t *testing.T) {
	c := overSocket(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/whole":
			io.WriteString(w, "content")
		case "/half":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "content")
		default:
			w.WriteHeader(403)
			io.WriteString(w, `{"code":"not_authorized","what":"no"}`)
		}
	})
	var got strings.Builder
	if n, err := c.Download(t.Context(), "/whole", &got); err != nil || n != 7 || got.String() != "content" {
		t.Errorf("%d, %v, %q", n, err, got.String())
	}
	if _, err := c.Download(t.Context(), "/half", io.Discard); !fault.Has(err, fault.CodeHubAway) {
		t.Errorf("a transfer that breaks off: %v", err)
	}
	if _, err := c.Download(t.Context(), "/no", io.Discard); !fault.Has(err, fault.CodeUnauthorized) {
		t.Errorf("a refusal: %v", err)
	}
}

func TestAStreamCarriesBytesBothWays(t *testing.T) {
	asked := make(chan string, 1)
	c := raw(t, func(conn net.Conn) {
		asked <- head(conn)
		admin.SwitchProtocols(conn)
		io.WriteString(conn, "first ") // may come along with the head
		got, _ := io.ReadAll(conn)     // until the other side has finished
		fmt.Fprintf(conn, "heard %q", got)
	})
	conn, err := c.Stream(t.Context(), "c/1", "a b:1&x=y")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if request := <-asked; !strings.HasPrefix(request, "GET /v1/clusters/c%2F1/stream?target=a+b%3A1%26x%3Dy HTTP/1.1\r\n") {
		t.Errorf("asked for %q", request)
	}
	big := strings.Repeat("x", 3*limit.RequestHeader)
	io.WriteString(conn, big)
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn) // far more than the bound of a head
	if err != nil || string(got) != fmt.Sprintf("first heard %q", big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   fault.Code
	}{
		"a fault":                     {"HTTP/1.1 403 Forbidden\r\nContent-Length: 37\r\n\r\n" + `{"code":"policy_denied","what":"none"}`[:37], fault.CodeHubAway},
		"a fault, whole":              {"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n" + `{"code":"policy_denied","what":"none"}`, fault.CodePolicyDenied},
		"a success that is no switch": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", fault.CodeHubAway},
		"garbage":                     {"hello\r\n\r\n", fault.CodeHubAway},
		"nothing":                     {"", fault.CodeHubAway},
		"a head without end":          {"HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", limit.RequestHeader), fault.CodeHubAway},
	} {
		t.Run(name, func(t *testing.T) {
			client := raw(t, func(conn net.Conn) {
				head(conn)
				io.WriteString(conn, c.answer)
			})
			if _, err := client.Stream(t.Context(), "c1", "a:1"); !fault.Has(err, c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestAStreamEndsWithItsContext wherever that strikes: it is not the hub that is away.
func TestAStreamEndsWithItsContext(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer":             "",
		"half a head":           "HTTP/1.1 101 Switching Protocols\r\nUpgr",
		"half of a refusal":     "HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{",
		"a 200 that never ends": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			silent := func(then func()) *admin.Client {
				return raw(t, func(conn net.Conn) {
					head(conn)
					io.WriteString(conn, answer)
					then()
					io.Copy(io.Discard, conn)
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := silent(cancel).Stream(ctx, "c1", "a:1"); !fault.Has(err, fault.CodeDialCanceled) || !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := silent(func() {}).Stream(ctx, "c1", "a:1"); !fault.Has(err, fault.CodeDialTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("out of time: %v", err)
			}
		})
	}
}

// late is a context whose deadline has passed, and which does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// TestAStreamWhoseConnectionIsLate: package net looks at the deadline by itself.
func TestAStreamWhoseConnectionIsLate(t *testing.T) {
	c := raw(t, func(net.Conn) {})
	ctx := late{context.WithoutCancel(t.Context())}
	if _, err := c.Stream(ctx, "c1", "a:1"); ctx.Err() != nil || !fault.Has(err, fault.CodeDialTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Stream(ended, "c1", "a:1"); !fault.Has(err, fault.CodeDialCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOverTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":"x"}`) }))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	address := srv.Listener.Addr().String()
	var out admin.Token
	if err := admin.OverTLS(address, &tls.Config{RootCAs: roots}, plain).Call(t.Context(), http.MethodGet, "/v1/x", nil, &out); err != nil || out.ID != "x" {
		t.Errorf("%+v, %v", out, err)
	}
	// What the check of the hub's certificate says comes through with its code.
	refusing := &tls.Config{RootCAs: roots, VerifyConnection: func(tls.ConnectionState) error {
		return fault.New(fault.CodeCAMismatch, "another hub")
	}}
	if err := admin.OverTLS(address, refusing, plain).Call(t.Context(), http.MethodGet, "/v1/x", nil, &out); !fault.Has(err, fault.CodeCAMismatch) {
		t.Errorf("%v", err)
	}
}

// plain puts nothing below TLS.
func plain(c net.Conn) net.Conn { return c }
