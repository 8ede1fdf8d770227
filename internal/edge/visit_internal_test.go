// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

// visitor is a visit of an edge without tenants, and its client.
func visitor(t *testing.T, at Listener) (*visit, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	e := New(Config{}, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
	return &visit{of: e, at: at, conn: conn.(*net.TCPConn)}, client.(*net.TCPConn)
}

// A head that is there is read at once. One byte at a time, and a copy of all others for each, a
// few clients would keep a processor busy.
func TestALargeHeadTakesFewReads(t *testing.T) {
	v, client := visitor(t, Listener{Connect: true})
	head := "CONNECT a:1 HTTP/1.0\r\nA: " + strings.Repeat("a", connecthead.Most-100)
	if _, err := io.WriteString(client, head); err != nil {
		t.Fatal(err)
	}
	reads := 0
	for ; len(v.head) < len(head); reads++ {
		if err := v.more(1); err != nil {
			t.Fatal(err)
		}
	}
	if string(v.head) != head || reads > 20 {
		t.Errorf("%d bytes took %d reads", len(head), reads)
	}
}

// Whoever is refused keeps the place of one that has not said what it wants, until it is gone: there is no
// other bound on those that hear the answer slowly, beside that of their source.
func TestTheRefusedStayAmongTheSilent(t *testing.T) {
	for name, c := range map[string]struct {
		at   Listener
		send string
	}{
		"no TLS":       {Listener{}, "GET / HTTP/1.1\r\n\r\n"},
		"redirected":   {Listener{Connect: true}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		"unknown name": {Listener{Connect: true}, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			v, client := visitor(t, c.at)
			io.WriteString(client, c.send)
			client.CloseWrite()
			if up := v.pass(t.Context(), func() { t.Error("it gave its place back") }); up != nil {
				t.Error("it was let in")
			}
		})
	}
}
