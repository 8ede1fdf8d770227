// SPDX-License-Identifier: Apache-2.0

package connecthead_test

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/edge/connecthead"
)

const vpn = "outbound|1194||vpn-seed-server.shoot--p--s.svc.cluster.local"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want connecthead.Head // without Size
		code fault.Code
	}{
		"OpenVPN": {
			in:   "CONNECT api.c1.example.org:8132 HTTP/1.0\r\nReversed-VPN: " + vpn + "\r\n\r\n",
			want: connecthead.Head{Method: "CONNECT", Target: "api.c1.example.org:8132", Host: "api.c1.example.org", Header: "Reversed-VPN", Value: vpn},
		},
		"Envoy": {
			in:   "CONNECT kubernetes:443 HTTP/1.1\r\nhost: kubernetes:443\r\nx-gardener-destination: " + vpn + "\r\n\r\n",
			want: connecthead.Head{Method: "CONNECT", Target: "kubernetes:443", Host: "kubernetes", Header: "x-gardener-destination", Value: vpn},
		},
		"Host without the port": {
			in:   "CONNECT C1:1194 HTTP/1.1\r\nHost: c1.\r\n\r\n",
			want: connecthead.Head{Method: "CONNECT", Target: "C1:1194", Host: "c1"},
		},
		"IPv6": {
			in:   "CONNECT [2001:DB8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n",
			want: connecthead.Head{Method: "CONNECT", Target: "[2001:DB8::1]:443", Host: "2001:db8::1"},
		},
		"space around a value": {
			in:   "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: \t" + vpn + " \t\r\n\r\n",
			want: connecthead.Head{Method: "CONNECT", Target: "a:1", Host: "a", Header: "Reversed-VPN", Value: vpn},
		},
		"a browser": {
			in:   "GET /x?y HTTP/1.1\r\nHost: Example.org\r\nContent-Length: 3\r\n\r\nabc",
			want: connecthead.Head{Method: "GET", Target: "/x?y", Host: "example.org", Path: "/x?y"},
		},
		"an old probe":          {in: "GET / HTTP/1.0\r\n\r\n", want: connecthead.Head{Method: "GET", Target: "/", Path: "/"}},
		"a probe of the server": {in: "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", want: connecthead.Head{Method: "OPTIONS", Target: "*", Host: "a"}},
		"absolute form": {
			in:   "GET http://A.example:8132/x?y#z HTTP/1.1\r\nHost: b.example\r\n\r\n",
			want: connecthead.Head{Method: "GET", Target: "http://A.example:8132/x?y#z", Host: "a.example", Path: "/x?y#z"},
		},
		"absolute form without a path": {
			in:   "GET HTTPS://[2001:db8::1]?y HTTP/1.0\r\n\r\n",
			want: connecthead.Head{Method: "GET", Target: "HTTPS://[2001:db8::1]?y", Host: "2001:db8::1", Path: "/?y"},
		},
		"absolute form with a user":    {in: "GET http://a.example@b.example/ HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"absolute form without a host": {in: "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", code: fault.CodeRequest},
		"absolute form, junk in Host":  {in: "GET http://a/ HTTP/1.1\r\nHost: a/b@c\r\n\r\n", code: fault.CodeRequest},
		"another scheme":               {in: "GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n", code: fault.CodeRequest},
		"authority form":               {in: "GET a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", code: fault.CodeRequest},
		"a backslash":                  {in: "GET \\\\b.example HTTP/1.1\r\nHost: a\r\n\r\n", code: fault.CodeRequest},
		"two destinations":             {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\r\nReversed-VPN: x\r\n\r\n", code: fault.CodeRequest},
		"one of each name":             {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\r\nX-Gardener-Destination: x\r\n\r\n", code: fault.CodeRequest},
		"twice in other case":          {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\r\nreversed-vpn: y\r\n\r\n", code: fault.CodeRequest},
		"an empty destination":         {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN:\r\n\r\n", code: fault.CodeRequest},
		"space before the colon":       {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN : x\r\n\r\n", code: fault.CodeRequest},
		"space before the name":        {in: "CONNECT a:1 HTTP/1.0\r\n Reversed-VPN: x\r\n\r\n", code: fault.CodeRequest},
		"a folded line":                {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\r\n y\r\n\r\n", code: fault.CodeRequest},
		"a bare LF":                    {in: "CONNECT a:1 HTTP/1.0\r\nA: b\nReversed-VPN: x\r\n\r\n", code: fault.CodeRequest},
		"a bare CR":                    {in: "CONNECT a:1 HTTP/1.0\r\nA: b\rReversed-VPN: x\r\n\r\n", code: fault.CodeRequest},
		"NUL":                          {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN: x\x00\r\n\r\n", code: fault.CodeRequest},
		"no colon":                     {in: "CONNECT a:1 HTTP/1.0\r\nReversed-VPN\r\n\r\n", code: fault.CodeRequest},
		"a body":                       {in: "CONNECT a:1 HTTP/1.0\r\nContent-Length: 0\r\n\r\n", code: fault.CodeRequest},
		"chunks":                       {in: "CONNECT a:1 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", code: fault.CodeRequest},
		"two hosts":                    {in: "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", code: fault.CodeRequest},
		"no host":                      {in: "CONNECT a:1 HTTP/1.1\r\n\r\n", code: fault.CodeRequest},
		"another host":                 {in: "CONNECT a:1 HTTP/1.1\r\nHost: b:1\r\n\r\n", code: fault.CodeRequest},
		"another port":                 {in: "CONNECT a:1 HTTP/1.1\r\nHost: a:2\r\n\r\n", code: fault.CodeRequest},
		"a host of junk":               {in: "GET / HTTP/1.1\r\nHost: a/b@c\r\n\r\n", code: fault.CodeRequest},
		"a zone":                       {in: "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", code: fault.CodeRequest},
		"no port":                      {in: "CONNECT a HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"port 0":                       {in: "CONNECT a:0 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"port 01":                      {in: "CONNECT a:01 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"a port too large":             {in: "CONNECT a:65536 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"a path":                       {in: "CONNECT /x HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"HTTP/2":                       {in: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", code: fault.CodeRequest},
		"HTTP/1.2":                     {in: "CONNECT a:1 HTTP/1.2\r\n\r\n", code: fault.CodeRequest},
		"two spaces":                   {in: "CONNECT  a:1 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"TLS":                          {in: "\x16\x03\x01", code: fault.CodeRequest},
		"a small letter":               {in: "connect a:1 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"an empty line before it":      {in: "\r\nCONNECT a:1 HTTP/1.0\r\n\r\n", code: fault.CodeRequest},
		"too large":                    {in: "CONNECT a:1 HTTP/1.0\r\nA: " + strings.Repeat("a", connecthead.Most), code: fault.CodeHeaderTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			h, done, err := connecthead.Parse([]byte(c.in))
			if c.code != "" {
				if !fault.Has(err, c.code) {
					t.Fatalf("%+v, %v, %v; want %s", h, done, err, c.code)
				}
				return
			}
			if size := strings.Index(c.in, "\r\n\r\n") + 4; err != nil || !done || h.Size != size {
				t.Fatalf("%+v, %v, %v", h, done, err)
			}
			if h.Size = 0; h != c.want {
				t.Fatalf("%+v, want %+v", h, c.want)
			}
		})
	}
}

func TestParseInPieces(t *testing.T) {
	all := "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nReversed-VPN: " + vpn + "\r\n\r\n"
	for n := range len(all) {
		if h, done, err := connecthead.Parse([]byte(all[:n])); done || err != nil {
			t.Fatalf("%d bytes: %+v, %v", n, h, err)
		}
	}
}

// FuzzParse: what is accepted, net/http reads alike.
func FuzzParse(f *testing.F) {
	f.Add([]byte("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nReversed-VPN: " + vpn + "\r\n\r\n"))
	f.Add([]byte("GET http://a.example:1/x HTTP/1.1\r\nHost: b\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.0\r\nX-Gardener-Destination: " + vpn + "\r\n\r\n"))
	f.Add([]byte("CONNECT [::1]:1 HTTP/1.0\r\nreversed-vpn:x\r\nA:b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, done, err := connecthead.Parse(b)
		if err != nil || !done {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b[:h.Size])))
		if err != nil {
			return // it refuses more targets than we do, which are redirected
		}
		values := append(req.Header.Values(connecthead.HeaderReversedVPN), req.Header.Values(connecthead.HeaderDestination)...)
		if req.Method != h.Method || req.RequestURI != h.Target || len(values) > 1 || strings.Join(values, "") != h.Value {
			t.Fatalf("net/http reads %s %s %q, we %+v", req.Method, req.RequestURI, values, h)
		}
		if of := strings.TrimSuffix(strings.ToLower(req.URL.Hostname()), "."); !h.Connect() && req.URL.IsAbs() && net.ParseIP(of) == nil && of != h.Host {
			t.Fatalf("net/http reads the host %q, we %+v", of, h)
		}
	})
}
