// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
)

// doors are the two listeners that read a CONNECT, as raw connections.
func (h *testHub) doors() map[string]func(ctx context.Context) (net.Conn, error) {
	h.t.Helper()
	path := h.socket("c1", hub.ProtocolConnect)
	cert := h.issue(admin.CertificateRequest{Role: "client", Cluster: "c1", Name: "kas"})
	return map[string]func(ctx context.Context) (net.Conn, error){
		"unix": func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) },
		"tls": func(ctx context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: cert.clientTLS(h.listen)}).DialContext(ctx, "tcp", h.listen)
		},
	}
}

func TestMalformedConnect(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	good := "CONNECT " + to.Addr() + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	authority := func(a string) string { return "CONNECT " + a + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" }
	cases := []struct {
		name, request string
		status        int
		code          fault.Code
	}{
		{"HTTP/1.0", "CONNECT " + to.Addr() + " HTTP/1.0\r\n\r\n", 400, fault.CodeRequest},
		{"HTTP/0.9", "CONNECT " + to.Addr() + "\r\n\r\n", 400, fault.CodeRequest},
		{"HTTP/3.0", "CONNECT " + to.Addr() + " HTTP/3.0\r\n\r\n", 400, fault.CodeRequest},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405, fault.CodeMethod},
		{"empty authority", authority(""), 400, fault.CodeRequest},
		{"no port", authority("10.0.0.1"), 400, fault.CodeRequest},
		{"empty port", authority("10.0.0.1:"), 400, fault.CodeRequest},
		{"port 0", authority("10.0.0.1:0"), 400, fault.CodeRequest},
		{"port too large", authority("10.0.0.1:65536"), 400, fault.CodeRequest},
		{"port with a sign", authority("10.0.0.1:+80"), 400, fault.CodeRequest},
		{"port with a zero in front", authority("10.0.0.1:080"), 400, fault.CodeRequest},
		{"port by name", authority("10.0.0.1:http"), 400, fault.CodeRequest},
		{"zone", authority("[fe80::1%25eth0]:80"), 400, fault.CodeRequest},
		{"userinfo", authority("root:x@10.0.0.1:80"), 400, fault.CodeRequest},
		{"IPv6 without brackets", authority("fd00::1:80"), 400, fault.CodeRequest},
		{"hexadecimal address", authority("0x7f000001:80"), 400, fault.CodeRequest},
		{"octal address", authority("0177.0.0.1:80"), 400, fault.CodeRequest},
		{"short address", authority("127.1:80"), 400, fault.CodeRequest},
		{"whole number", authority("2130706433:80"), 400, fault.CodeRequest},
		{"full-width digits", authority("\uff11\uff10.0.0.1:80"), 400, fault.CodeRequest},
		{"absolute form", authority("http://10.0.0.1:80/"), 400, fault.CodeRequest},
		{"path", authority("/10.0.0.1:80"), 400, fault.CodeRequest},
		{"name too long", authority(strings.Repeat("a.", 140) + "b:80"), 400, fault.CodeRequest},
		{"NUL in the authority", authority("10.0.0.1\x00:80"), 400, fault.CodeRequest},
		{"NUL in a header", good + "X: a\x00b\r\n\r\n", 400, fault.CodeRequest},
		{"header without colon", good + "nonsense\r\n\r\n", 400, fault.CodeRequest},
		{"header name with a space", good + "X : y\r\n\r\n", 400, fault.CodeRequest},
		{"body by length", good + "Content-Length: 5\r\n\r\n", 400, fault.CodeRequest},
		{"body in chunks", good + "Transfer-Encoding: chunked\r\n\r\n", 400, fault.CodeRequest},
		{"both lengths", good + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, fault.CodeRequest},
		{"bytes before the 200", good + "\r\n\x16\x03\x01", 400, fault.CodeEarlyData},
		{"GET", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 405, fault.CodeMethod},
		{"GET in absolute form", "GET http://10.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", 405, fault.CodeMethod},
		{"POST", "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405, fault.CodeMethod},
		{"method of the caller's own", "HACK " + to.Addr() + " HTTP/1.1\r\n\r\n", 400, fault.CodeRequest},
		{"method in small letters", "connect " + to.Addr() + " HTTP/1.1\r\n\r\n", 400, fault.CodeRequest},
		{"header too large", good + "X: " + strings.Repeat("x", limit.RequestHeader) + "\r\n\r\n", 431, fault.CodeHeaderTooLarge},
		{"too many headers", good + strings.Repeat("X: y\r\n", limit.RequestHeader/6), 431, fault.CodeHeaderTooLarge},
		{"line too long", "CONNECT " + strings.Repeat("a", limit.RequestHeader+1), 431, fault.CodeHeaderTooLarge},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n\r\n", 400, fault.CodeRequest},
		{"TLS on the plain socket", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n\r\n", 400, fault.CodeRequest},
	}
	doors := h.doors()
	live, err := dialConnect(runtest.Within(t), h.socket("c1", hub.ProtocolConnect), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mustEcho(t, live, "the target has accepted it")
	before := to.Accepted()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for name, door := range doors {
				conn, err := door(runtest.Within(t))
				if err != nil {
					t.Fatal(err)
				}
				_, err = ask(runtest.Within(t), conn, c.request)
				if r := asRefused(t, err); r.status != c.status || r.code != c.code || r.body == "" {
					t.Errorf("%s: got %v, want %d %s", name, err, c.status, c.code)
				}
				// The connection ends: nothing can be smuggled behind the refused request.
				if rest, err := io.ReadAll(conn); len(rest) > 0 || isTimeout(err) {
					t.Errorf("%s: after the refusal came %q, %v", name, rest, err)
				}
				conn.Close()
			}
		})
	}
	if n := to.Accepted(); n != before {
		t.Errorf("%d refused requests reached the target", n-before)
	}
	mustEcho(t, live, "nobody else is affected")
}

// What is unusual and yet right is served. A lone LF as the end of a line may be
// accepted (RFC 9112 section 2.2), and a CONNECT needs no Host of its own.
func TestUnusualConnectIsServed(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	for name, request := range map[string]string{
		"bare LF":           "CONNECT " + to.Addr() + " HTTP/1.1\nHost: x\n\n",
		"without Host":      "CONNECT " + to.Addr() + " HTTP/1.1\r\n\r\n",
		"proxy headers":     "CONNECT " + to.Addr() + " HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\nUser-Agent: curl/8\r\n\r\n",
		"empty body":        "CONNECT " + to.Addr() + " HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"mapped address":    "CONNECT [::ffff:127.0.0.1]:" + portOf(t, to) + " HTTP/1.1\r\n\r\n",
		"name with a point": "CONNECT LOCALHOST.:" + portOf(t, to) + " HTTP/1.1\r\n\r\n",
	} {
		for door, dial := range h.doors() {
			conn, err := dial(runtest.Within(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ask(runtest.Within(t), conn, request); err != nil {
				t.Errorf("%s on %s: %v", name, door, err)
			} else {
				mustEcho(t, conn, name)
			}
			conn.Close()
		}
	}
}

// Bytes that come while the dial is under way are early too.
func TestBytesDuringTheDial(t *testing.T) {
	h, _ := pair(t, hubSpec{extra: "streams: {dialTimeout: 20s}"}, agentSpec{})
	dead := silent(t)
	for name, dial := range h.doors() {
		conn, err := dial(runtest.Within(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "CONNECT "+dead+" HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		runtest.Eventually(t, "the dial is under way", func() bool { return h.status("c1").Streams == 1 })
		_, err = ask(runtest.Within(t), conn, "early")
		if r := asRefused(t, err); r.code != fault.CodeEarlyData || r.status != 400 {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
		runtest.Eventually(t, "the dial is given up", func() bool { return h.status("c1").Streams == 0 })
	}
}

// A header that never ends costs one connection for limit.RequestHeaderTime.
func TestHeaderThatNeverEnds(t *testing.T) {
	t.Parallel()
	h, _ := pair(t, hubSpec{}, agentSpec{})
	to := runtest.Echo(t)
	for name, dial := range h.doors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow, err := dial(runtest.Within(t))
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			quiet, err := dial(runtest.Within(t))
			if err != nil {
				t.Fatal(err)
			}
			defer quiet.Close()
			io.WriteString(slow, "CONNECT "+to.Addr())
			ok, err := dial(runtest.Within(t))
			if err != nil {
				t.Fatal(err)
			}
			defer ok.Close()
			if _, err := connectOver(runtest.Within(t), ok, to.Addr()); err != nil {
				t.Errorf("beside the slow one: %v", err)
			}
			for _, conn := range []net.Conn{slow, quiet} {
				_, err := answer(conn)
				if r := asRefused(t, err); r.status != 400 || r.code != fault.CodeRequest || !strings.Contains(r.body, "did not arrive within") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// A caller that sends half a request and goes away leaves nothing.
func TestCallerThatHangsUpWithinTheHeader(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	for name, dial := range h.doors() {
		conn, err := dial(runtest.Within(t))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "CONNECT 10.0.0.1:80 HTT")
		conn.(interface{ CloseWrite() error }).CloseWrite()
		_, err = answer(conn)
		if r := asRefused(t, err); r.code != fault.CodeRequest || !strings.Contains(r.body, "ended within the header") {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
}

// A caller that does not read its refusal is let go.
func TestCallerThatFloodsAfterARefusal(t *testing.T) {
	h, _ := pair(t, hubSpec{}, agentSpec{})
	for name, dial := range h.doors() {
		conn, err := dial(runtest.Within(t))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		junk := make([]byte, 32<<10)
		for err == nil {
			_, err = conn.Write(junk) // ends, because the hub closes
		}
		conn.Close()
		t.Logf("%s: %v", name, err)
	}
}
