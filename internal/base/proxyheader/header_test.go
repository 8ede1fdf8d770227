// SPDX-License-Identifier: Apache-2.0

package proxyheader_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
)

var lb = netip.MustParseAddrPort("10.0.0.1:1234")

func TestRead(t *testing.T) {
	const v2 = "\r\n\r\n\x00\r\nQUIT\n"
	for name, c := range map[string]struct {
		in, want string // the client; empty: refused
	}{
		"v1":                {"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", "203.0.113.7:4711"},
		"v1, IPv6":          {"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n", "[2001:db8::7]:4711"},
		"v1, mapped":        {"PROXY TCP6 ::ffff:203.0.113.7 2001:db8::1 4711 443\r\n", "203.0.113.7:4711"},
		"v1, health check":  {"PROXY UNKNOWN\r\n", "10.0.0.1:1234"},
		"v2":                {v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb", "203.0.113.7:4711"},
		"v2, with a TLV":    {v2 + "\x21\x11\x00\x11\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb\x04\x00\x02ab", "203.0.113.7:4711"},
		"v2, health check":  {v2 + "\x20\x00\x00\x00", "10.0.0.1:1234"},
		"v2, UDP":           {v2 + "\x21\x12\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb", ""},
		"v2, too short":     {v2 + "\x21\x11\x00\x04\xcb\x00\x71\x07", ""},
		"v2, too long":      {v2 + "\x21\x11\xff\xff", ""},
		"v1, of one server": {"PROXY UNKNOWN ::1 ::1 1 2\r\n", "10.0.0.1:1234"},
		"v1, too long":      {"PROXY TCP4 " + strings.Repeat("1", 100), ""},
		"v1, two spaces":    {"PROXY  TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", ""},
		"v1, a zero":        {"PROXY TCP4 203.0.113.07 192.0.2.1 4711 443\r\n", ""},
		"v1, IPv6 as IPv4":  {"PROXY TCP4 2001:db8::7 192.0.2.1 4711 443\r\n", ""},
		"TLS":               {"\x16\x03\x01", ""},
		"HTTP":              {"GET / HTTP/1.1\r\n", ""},
	} {
		client, size, need, err := proxyheader.Read([]byte(c.in), lb)
		switch {
		case c.want == "":
			if !fault.Has(err, fault.CodeProxyHeader) {
				t.Errorf("%s: %v, needs %d, %v", name, client, need, err)
			}
		case err != nil || need != 0 || size != len(c.in) || client.String() != c.want:
			t.Errorf("%s: %v of %d bytes, needs %d, %v", name, client, size, need, err)
		}
		for n := range c.in { // and no piece of it is taken for the whole
			if client, size, need, err := proxyheader.Read([]byte(c.in[:n]), lb); err == nil && need <= 0 {
				t.Errorf("%s: %d bytes give %v of %d", name, n, client, size)
			}
		}
	}
}

// FuzzRead: what is sent to an upstream reads as what was received.
func FuzzRead(f *testing.F) {
	f.Add([]byte("PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb"))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, size, need, err := proxyheader.Read(b, lb)
		if err != nil || need > 0 {
			return
		}
		if size > len(b) || !client.Addr().IsValid() || client.Addr().Is4In6() || client.Addr().Zone() != "" {
			t.Fatalf("%v of %d bytes", client, size)
		}
		for _, version := range []byte{1, 2} {
			out, err := proxyheader.Format(version, client, netip.MustParseAddrPort("[2001:db8::1]:443"))
			if err != nil {
				t.Fatal(err)
			}
			if again, n, _, err := proxyheader.Read(out, lb); err != nil || again != client || n != len(out) {
				t.Fatalf("version %d of %v is read as %v, %v", version, client, again, err)
			}
		}
	})
}

// TestNothingIsReadPastAHeader: who reads as many bytes as are needed has the header, and nothing behind it.
func TestNothingIsReadPastAHeader(t *testing.T) {
	for _, header := range []string{
		"PROXY UNKNOWN\r\n",
		"PROXY TCP4 1.1.1.1 1.1.1.2 1 2\r\n",
		"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb",
	} {
		all := header + "\x16\x03\x01 and what follows"
		read := 0
		for {
			_, size, need, err := proxyheader.Read([]byte(all[:read]), lb)
			if err != nil {
				t.Fatalf("%q: %v", header, err)
			}
			if need == 0 {
				if size != read || size != len(header) {
					t.Errorf("%q: %d bytes read for %d of %d", header, read, size, len(header))
				}
				break
			}
			read += need
		}
	}
}

// TestLocal: it stands for the one who connects.
func TestLocal(t *testing.T) {
	h := proxyheader.Local()
	if client, size, need, err := proxyheader.Read(h, lb); err != nil || need != 0 || size != len(h) || client != lb {
		t.Errorf("%v, %d, %d, %v", client, size, need, err)
	}
}

func TestBegins(t *testing.T) {
	for in, want := range map[string]bool{
		"PROXY": true, "PROXY TCP4": true, "\r\n\r\n\x00": true, "": false, "P": false, "\r\n\r\n": false, "\x16\x03\x01\x00\x05": false,
		"proxy": false,
	} {
		if got := proxyheader.Begins([]byte(in)); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}
