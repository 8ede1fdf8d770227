// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

const vpn = "outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local"

func handshake(t *testing.T, address, name string) (*tls.Conn, error) {
	t.Helper()
	c := tls.Client(dial(t, address), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	return c, c.Handshake()
}

func TestPassthrough(t *testing.T) {
	f := start(t, "", "")
	f.tenant("c1", "  - {flow: api, names: [api.c1.example.org], upstreams: ['"+secure(t)+"']}\n")
	c, err := handshake(t, f.tls, "API.c1.example.org")
	if err != nil {
		t.Fatal(err)
	}
	ping(t, c, "hello")
	c.CloseWrite()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the end", err)
	}
	c.Close()
	runtest.Eventually(t, "the tunnel has ended", func() bool { return f.Open() == 0 })
	for name, want := range map[string]tls.AlertError{"api.c2.example.org": 112, "": 112} {
		var alert tls.AlertError
		if _, err := handshake(t, f.tls, name); !errors.As(err, &alert) && !strings.Contains(fmt.Sprint(err), "unrecognized name") {
			t.Errorf("%q: %v, want alert %d", name, err, want)
		}
	}
	plain := dial(t, f.tls)
	io.WriteString(plain, "GET / HTTP/1.1\r\n\r\n")
	if b, err := io.ReadAll(plain); len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	codes := map[string]int{}
	for _, r := range f.audited() {
		codes[r.Code]++
		if r.At != audit.AtEdge || r.Source == "" || r.Frontend != "tls" {
			t.Errorf("%+v", r)
		}
		if r.Code == "ok" && (r.Cluster != "c1" || r.Asked != "api.c1.example.org" || r.Up == 0 || r.Down == 0 || r.Resolved == "") {
			t.Errorf("%+v", r)
		}
	}
	want := map[string]int{"ok": 1, "name_unknown": 1, "name_missing": 1, "not_tls": 1}
	if fmt.Sprint(codes) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", codes, want)
	}
}

func TestConnect(t *testing.T) {
	f := start(t, "", "")
	f.tenant("c1", "  - {flow: vpn, destinations: ['"+vpn+"'], upstreams: ['"+echo(t, nil)+"']}\n")
	ask := func(head string) (*net.TCPConn, string) {
		c := dial(t, f.connect)
		io.WriteString(c, head)
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		return c, string(b[:n])
	}
	c, answer := ask("CONNECT api:8132 HTTP/1.0\r\nReversed-VPN: " + vpn + "\r\n\r\n")
	if answer != "HTTP/1.1 200 Connection Established\r\n\r\n" {
		t.Fatal(answer)
	}
	ping(t, c, "hello")
	for name, c := range map[string]struct{ head, want string }{
		"GET":                {"GET /x HTTP/1.1\r\nHost: api.example.org\r\n\r\n", "301 Moved Permanently\r\nLocation: https://api.example.org/x\r\n"},
		"absolute form":      {"GET http://api.example.org:8132/x HTTP/1.1\r\nHost: evil.example\r\n\r\n", "Location: https://api.example.org/x\r\n"},
		"two slashes":        {"GET //evil.example/x HTTP/1.1\r\nHost: api.example.org\r\n\r\n", "Location: https://api.example.org//evil.example/x\r\n"},
		"a user":             {"GET http://api.example.org@evil.example/ HTTP/1.1\r\nHost: api.example.org\r\n\r\n", "400 Bad Request\r\nTombolo-Fault: request_malformed"},
		"no header":          {"CONNECT api:443 HTTP/1.1\r\nHost: api:443\r\n\r\n", "Location: https://api/\r\n"},
		"another tenant":     {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN: " + strings.Replace(vpn, "c1", "c2", 1) + "\r\n\r\n", "403 Forbidden\r\nTombolo-Fault: name_unknown"},
		"a prefix":           {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN: " + strings.Replace(vpn, "c1", "c1-x", 1) + "\r\n\r\n", "name_unknown"},
		"another port":       {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN: " + strings.Replace(vpn, "1194", "443", 1) + "\r\n\r\n", "name_unknown"},
		"twice":              {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN: " + vpn + "\r\nX-Gardener-Destination: " + vpn + "\r\n\r\n", "400 Bad Request\r\nTombolo-Fault: request_malformed"},
		"early bytes":        {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN: " + vpn + "\r\n\r\nGET / HTTP/1.1\r\n\r\n", "early_data"},
		"a body":             {"CONNECT api:443 HTTP/1.0\r\nContent-Length: 3\r\nReversed-VPN: " + vpn + "\r\n\r\n", "request_malformed"},
		"a space":            {"CONNECT api:443 HTTP/1.0\r\nReversed-VPN : " + vpn + "\r\n\r\n", "request_malformed"},
		"a header too large": {"CONNECT api:443 HTTP/1.0\r\nA: " + strings.Repeat("a", 17<<10), "header_too_large"},
	} {
		if _, answer := ask(c.head); !strings.Contains(answer, c.want) {
			t.Errorf("%s: %q, want %q", name, answer, c.want)
		}
	}
}

func TestProxyProtocol(t *testing.T) {
	f := start(t, "  - {name: a, clusters: [c1], flows: [api], sources: [203.0.113.7], allow: ['*']}\n",
		"listeners:\n- {name: tls, listen: '127.0.0.1:0', protocol: tls, proxyProtocol: {from: [127.0.0.1]}}\n"+
			"- {name: open, listen: '[::1]:0', protocol: tls, proxyProtocol: {from: [192.0.2.1]}}\n")
	got := make(chan string, 10)
	f.tenant("c1", "  - {flow: api, names: [api.c1.example.org], upstreams: ['"+echo(t, func(s string) { got <- s })+"'], proxyProtocol: v1}\n")
	c := dial(t, f.tls)
	io.WriteString(c, "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n")
	go tls.Client(c, &tls.Config{ServerName: "api.c1.example.org", InsecureSkipVerify: true}).Handshake()
	if s := <-got; !strings.HasPrefix(s, "PROXY TCP4 203.0.113.7 127.0.0.1 4711 ") || !strings.Contains(s, "\r\n\x16\x03\x01") {
		t.Fatalf("%q", s)
	}
	for name, c := range map[string]struct{ address, head string }{
		"another client":    {f.tls, "PROXY TCP4 203.0.113.8 192.0.2.1 4711 443\r\n"},
		"no header":         {f.tls, ""},
		"an untrusted peer": {f.connect, "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"},
		"a header too long": {f.tls, "PROXY " + strings.Repeat("x", 200) + "\r\n"},
		"UNIX":              {f.tls, "\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + strings.Repeat("x", 216)},
		"garbage":           {f.tls, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + strings.Repeat("x", 216)},
	} {
		conn := dial(t, c.address)
		io.WriteString(conn, c.head)
		err := tls.Client(conn, &tls.Config{ServerName: "api.c1.example.org", InsecureSkipVerify: true}).Handshake()
		if err == nil || len(got) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	codes := map[string]int{}
	for _, r := range f.audited() {
		codes[r.Code]++
		if r.Code == "policy_denied" && (!strings.HasPrefix(r.Source, "203.0.113.8:") || r.Verdict != audit.Deny ||
			r.Policy == "" || r.Reason != "no rule allows 203.0.113.8 for c1/api") {
			t.Errorf("%+v", r)
		}
	}
	if codes["policy_denied"] != 1 || codes["proxy_header"] != 5 {
		t.Errorf("%v", codes)
	}
}

// A change of the policy ends what it refuses, at once, and nothing else; a change of a tenant ends nothing.
func TestChangesWhileTunnelsLive(t *testing.T) {
	rule := func(cluster, sources string) string {
		return "  - {name: " + cluster + ", clusters: [" + cluster + "], flows: [vpn], sources: [" + sources + "], allow: ['*']}\n"
	}
	f := start(t, rule("c1", "127.0.0.1")+rule("c2", "127.0.0.1"), "")
	at := echo(t, nil)
	const each = 500
	way := func(cluster string) string {
		return "  - {flow: vpn, destinations: ['" + strings.Replace(vpn, "c1", cluster, 1) + "'], upstreams: ['" + at + "']}\n"
	}
	var live [2][]*net.TCPConn
	for i, cluster := range []string{"c1", "c2"} {
		f.tenant(cluster, way(cluster))
		for range each {
			c := dial(t, f.connect)
			io.WriteString(c, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+strings.Replace(vpn, "c1", cluster, 1)+"\r\n\r\n")
			if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection Established\r\n\r\n"))); err != nil {
				t.Fatal(err)
			}
			live[i] = append(live[i], c)
		}
	}
	for _, change := range []func(){
		func() { f.tenant("other", way("other")) },
		func() { f.tenant("other", way("other")+way("another")) },
		func() { f.remove("other") },
		func() { f.remove("c1") }, // and so may its own
	} {
		change()
		for _, c := range slices.Concat(live[0], live[1]) {
			ping(t, c, "still")
		}
	}
	f.write(rule("c1", "203.0.113.7") + rule("c2", "127.0.0.1"))
	for _, c := range live[0] {
		renew(c)
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a tunnel that the policy refuses is still there: %v", err)
		}
	}
	for _, c := range live[1] {
		ping(t, c, "still")
	}
	runtest.Eventually(t, "the ended ones are gone", func() bool { return f.Open() == each })
	const late = 20 // strangers now, of whom few have a record of their own
	f.tenant("c1", way("c1"))
	for range late {
		c := dial(t, f.connect)
		io.WriteString(c, "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: "+vpn+"\r\n\r\n")
		b := make([]byte, len("HTTP/1.1 403"))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 403" {
			t.Fatalf("%q, %v", b, err)
		}
		c.Close()
	}
	for _, c := range live[1] {
		c.Close()
	}
	ended, single, refused := 0, 0, 0
	for _, r := range f.audited() {
		if r.Cluster != "c1" || r.Code != "policy_denied" {
			continue
		}
		if r.Count == 0 && (r.Reason != "no rule allows 127.0.0.1 for c1/vpn" || r.Verdict != audit.Deny) {
			t.Errorf("%+v", r)
		}
		switch {
		case r.Kind == audit.KindDial && r.Up == 4*int64(len("still")):
			ended++
		case r.Count == 0:
			single++
			refused++
		default:
			refused += int(r.Count)
		}
	}
	if ended != each || refused != late || single == 0 || single >= late {
		t.Errorf("%d records of tunnels that a policy ended, want %d; %d refusals, %d with a record, want %d", ended, each,
			refused, single, late)
	}
}

// A client without a known name is alerted or gets no answer, as is configured; a way with protocols and no names
// takes it before either.
func TestUnknownNames(t *testing.T) {
	f := start(t, "", "listeners:\n- {name: tls, listen: '127.0.0.1:0', protocol: tls}\n"+
		"- {name: silent, listen: '127.0.0.1:0', protocol: tls, unknownName: close}\n")
	f.tenant("rest", "  - {flow: api, protocols: [h2], upstreams: ['"+secure(t)+"']}\n")
	for _, name := range []string{"", "unknown.example"} {
		for address, want := range map[string]string{f.tls: "unrecognized name", f.connect: "EOF"} {
			if _, err := handshake(t, address, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %s", name, err, want)
			}
			c := tls.Client(dial(t, address), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
			if err := c.Handshake(); err != nil {
				t.Errorf("%q with a protocol: %v", name, err)
			}
		}
	}
	codes := map[string]int{}
	for _, r := range f.audited() {
		codes[r.Code]++
	}
	if codes["name_unknown"] != 2 || codes["name_missing"] != 2 {
		t.Errorf("%v", codes)
	}
}
