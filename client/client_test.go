// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hub answers one CONNECT on a unix socket as it is told.
func hub(t *testing.T, answer func(conn net.Conn, req *http.Request)) string {
	t.Helper()
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err == nil {
			answer(conn, req)
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return path
}

func TestWhatIsNeverSent(t *testing.T) {
	d := &client.Dialer{Socket: filepath.Join(runtest.Dir(t), "nobody")}
	bad := client.WithMetadata(t.Context(), map[string]string{"a b": "c"})
	for name, c := range map[string]struct {
		ctx              context.Context
		network, address string
		code             string
	}{
		"udp":            {t.Context(), "udp", "a:1", "usage"},
		"no port":        {t.Context(), "tcp", "a", "request_malformed"},
		"port 0":         {t.Context(), "tcp", "a:0", "request_malformed"},
		"a named port":   {t.Context(), "tcp", "a:https", "request_malformed"},
		"another header": {t.Context(), "tcp", "a\r\nX: y:1", "request_malformed"},
		"a blank":        {t.Context(), "tcp", "a b:1", "request_malformed"},
		"metadata":       {bad, "tcp", "a:1", "request_malformed"},
		"another's name": {client.WithHeader(t.Context(), "Host", "b"), "tcp", "a:1", "request_malformed"},
		"two lines":      {client.WithHeader(t.Context(), "X-A", "b\r\nHost: b"), "tcp", "a:1", "request_malformed"},
		"a long header":  {client.WithHeader(t.Context(), "X-A", strings.Repeat("b", 9<<10)), "tcp", "a:1", "request_malformed"},
		"nobody there":   {t.Context(), "tcp", "a:1", "hub_unreachable"},
	} {
		_, err := d.DialContext(c.ctx, c.network, c.address)
		var e *client.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Status != 0 || e.Asked || e.Reason == "" {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

func TestWhatTheRequestSays(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := make(chan *http.Request, 1)
	d := &client.Dialer{
		Socket: hub(t, func(conn net.Conn, req *http.Request) {
			got <- req
			io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\nhello")
		}),
		Metadata: map[string]string{"team": "blue", "ticket": "old"},
		Header:   map[string]string{"X-Remote-User": "jane", "x-request-id": "old"},
		Trace:    func(context.Context) (string, string) { return parent, "a=1" },
	}
	ctx := client.WithHeader(client.WithMetadata(t.Context(), map[string]string{"ticket": "OPS 1"}), "X-Request-ID", "7")
	conn, err := d.DialContext(ctx, "tcp", "db.svc:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := <-got
	if req.Method != http.MethodConnect || req.RequestURI != "db.svc:5432" || req.Header.Get("Traceparent") != parent || req.Header.Get("Tracestate") != "a=1" {
		t.Errorf("%s %s %v", req.Method, req.RequestURI, req.Header)
	}
	if m := strings.Join(req.Header["Tombolo-Metadata"], " "); m != "team=blue ticket=OPS%201" {
		t.Errorf("metadata: %s", m)
	}
	if req.Header.Get("X-Remote-User") != "jane" || !slices.Equal(req.Header["X-Request-Id"], []string{"7"}) {
		t.Errorf("headers: %v", req.Header)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
		t.Errorf("bytes behind the head: %q, %v", b, err)
	}
	if conn.RemoteAddr().String() != "db.svc:5432" || conn.RemoteAddr().Network() != "tcp" {
		t.Errorf("%v", conn.RemoteAddr())
	}
	if _, err := conn.Read(b); !errors.Is(err, client.ErrCut) {
		t.Errorf("the end of a hub that closes altogether: %v", err)
	}
}

func TestARefusal(t *testing.T) {
	d := &client.Dialer{Socket: hub(t, func(conn net.Conn, _ *http.Request) {
		io.WriteString(conn, "HTTP/1.1 403 policy_denied\r\nTombolo-Fault: policy_denied\r\nContent-Length: 18\r\n\r\npolicy_denied: no\n")
	})}
	_, err := d.Dial("tcp", "a:1")
	var e *client.Error
	if !errors.As(err, &e) || e.Code != "policy_denied" || e.Status != 403 || !e.Asked || e.Reason != "policy_denied: no" || e.Timeout() {
		t.Errorf("%#v", err)
	}
	d = &client.Dialer{Socket: hub(t, func(conn net.Conn, _ *http.Request) { io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n") })}
	if _, err := d.Dial("tcp", "a:1"); !errors.As(err, &e) || e.Code != "hub_unreachable" || e.Status != 502 {
		t.Errorf("%#v", err)
	}
	d = &client.Dialer{Socket: hub(t, func(conn net.Conn, _ *http.Request) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	})}
	if _, err := d.Dial("tcp", "a:1"); !errors.As(err, &e) || e.Code != "hub_unreachable" {
		t.Errorf("an endless answer: %.100v", err)
	}
}

// late is a context whose deadline has passed, and which does not know it yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// TestADialThatIsLate, where package net sees the end before the context does, or no
// connection was begun at all; TestADialEndsWithItsContext has the other places.
func TestADialThatIsLate(t *testing.T) {
	path := filepath.Join(runtest.Dir(t), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		code string
		is   error
	}{
		"it is late":          {late{context.WithoutCancel(t.Context())}, "dial_timeout", context.DeadlineExceeded},
		"the caller has gone": {canceled, "dial_canceled", context.Canceled},
	} {
		var e *client.Error
		_, err := (&client.Dialer{Socket: path}).DialContext(c.ctx, "tcp", "a:1")
		if !errors.As(err, &e) || e.Code != c.code || !errors.Is(err, c.is) || e.Timeout() != (c.code == "dial_timeout") {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*client.Dialer{{Hub: "127.0.0.1:1"}, {Hub: "127.0.0.1:1", Certificate: file, Key: file, CA: file}} {
		var e *client.Error
		if _, err := d.Dial("tcp", "a:1"); !errors.As(err, &e) || e.Code != "certificate_invalid" || !strings.Contains(e.Reason, "egress-config") {
			t.Errorf("%v", err)
		}
	}
}
