// SPDX-License-Identifier: Apache-2.0

package clienthello_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/edge/clienthello"
)

// first is what crypto/tls sends first.
func first(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	cfg.InsecureSkipVerify = true // nobody answers
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan []byte, 1)
	go func() {
		b := make([]byte, clienthello.Most)
		n, _ := far.Read(b)
		far.Close()
		done <- b[:n]
	}()
	tls.Client(near, cfg).Handshake()
	return <-done
}

// extension renders one.
func extension(kind uint16, data string) string {
	b := binary.BigEndian.AppendUint16(nil, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return string(b) + data
}

func names(list ...string) string {
	var entries string
	for _, n := range list {
		entries += "\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(n)))) + n
	}
	return extension(0, string(binary.BigEndian.AppendUint16(nil, uint16(len(entries))))+entries)
}

func protocols(list ...string) string {
	var entries string
	for _, n := range list {
		entries += string(rune(len(n))) + n
	}
	return extension(16, string(binary.BigEndian.AppendUint16(nil, uint16(len(entries))))+entries)
}

// hello renders a ClientHello in records of at most size bytes each.
func hello(size int, extensions ...string) []byte {
	all := strings.Join(extensions, "")
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00"
	if len(extensions) > 0 {
		body += string(binary.BigEndian.AppendUint16(nil, uint16(len(all)))) + all
	}
	return records(size, "\x01"+string([]byte{byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))})+body)
}

func records(size int, message string) (out []byte) {
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

const whole = 1 << 14

func TestParse(t *testing.T) {
	huge := extension(51, strings.Repeat("k", 40<<10)) // key shares of 40 KiB
	for name, c := range map[string]struct {
		in        []byte
		want      string
		protocols []string
		encrypted bool
		code      fault.Code
	}{
		"crypto/tls":              {in: first(t, &tls.Config{ServerName: "api.c1.example.org"}), want: "api.c1.example.org"},
		"crypto/tls, no name":     {in: first(t, &tls.Config{})},
		"crypto/tls, an address":  {in: first(t, &tls.Config{ServerName: "192.0.2.1"})},
		"crypto/tls, old":         {in: first(t, &tls.Config{ServerName: "c1", MaxVersion: tls.VersionTLS12}), want: "c1"},
		"crypto/tls, ALPN":        {in: first(t, &tls.Config{ServerName: "c1", NextProtos: []string{"h2", "http/1.1"}}), want: "c1", protocols: []string{"h2", "http/1.1"}},
		"crypto/tls, ML-KEM":      {in: first(t, &tls.Config{ServerName: "c1", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519}}), want: "c1"},
		"no extensions":           {in: hello(whole)},
		"capitals and final dot":  {in: hello(whole, names("API.Example.ORG.")), want: "api.example.org"},
		"huge":                    {in: hello(whole, huge, names("c1")), want: "c1"},
		"two records":             {in: hello(60, names("c1.example.org")), want: "c1.example.org"},
		"outer ECH":               {in: hello(whole, names("front.example"), extension(0xfe0d, "\x00rest")), want: "front.example", encrypted: true},
		"inner ECH":               {in: hello(whole, names("front.example"), extension(0xfe0d, "\x01")), want: "front.example"},
		"bytes behind it":         {in: append(hello(whole, names("c1")), 23, 3, 3, 0, 1, 'x'), want: "c1"}, // 0-RTT
		"many records":            {in: hello(1, names("c1")), code: fault.CodeRequest},
		"too large":               {in: records(whole, "\x01\x01\x00\x00rest"), code: fault.CodeHeaderTooLarge},
		"two names":               {in: hello(whole, names("c1", "c2")), code: fault.CodeRequest},
		"two lists of names":      {in: hello(whole, names("c1"), names("c1")), code: fault.CodeRequest},
		"any extension twice":     {in: hello(whole, extension(99, ""), names("c1"), extension(99, "")), code: fault.CodeRequest},
		"an empty name":           {in: hello(whole, names("")), code: fault.CodeRequest},
		"an empty list":           {in: hello(whole, extension(0, "\x00\x00")), code: fault.CodeRequest},
		"an address as name":      {in: hello(whole, names("192.0.2.1")), code: fault.CodeRequest},
		"a name with NUL":         {in: hello(whole, names("c1\x00.evil")), code: fault.CodeRequest},
		"a name with a newline":   {in: hello(whole, names("c1\n")), code: fault.CodeRequest},
		"a name of another kind":  {in: hello(whole, extension(0, "\x00\x05\x01\x00\x02c1")), code: fault.CodeRequest},
		"a name that ends early":  {in: hello(whole, extension(0, "\x00\x05\x00\x00\x09c1")), code: fault.CodeRequest},
		"ALPN with an empty name": {in: hello(whole, names("c1"), extension(16, "\x00\x01\x00")), code: fault.CodeRequest},
		"an extension too long":   {in: hello(whole, "\x00\x00\x00\x09ab"), code: fault.CodeRequest},
		"more in the record":      {in: records(whole, string(hello(whole, names("c1"))[5:])+"x"), code: fault.CodeRequest},
		"a ServerHello":           {in: records(whole, "\x02\x00\x00\x01x"), code: fault.CodeRequest},
		"an alert":                {in: []byte{21, 3, 1, 0, 2, 2, 40}, code: fault.CodeNotTLS},
		"an alert within":         {in: append(hello(30, names("c1"))[:35], 21, 3, 1, 0, 2, 2, 40), code: fault.CodeRequest},
		"an empty record":         {in: []byte{22, 3, 1, 0, 0}, code: fault.CodeRequest},
		"a record too long":       {in: []byte{22, 3, 1, 0x40, 1}, code: fault.CodeRequest},
		"HTTP":                    {in: []byte("GET / HTTP/1.1\r\n"), code: fault.CodeNotTLS},
		"SSLv2":                   {in: []byte{0x80, 0x2e, 1, 0, 2}, code: fault.CodeNotTLS},
		"SSH":                     {in: []byte("SSH-2.0-x"), code: fault.CodeNotTLS},
	} {
		t.Run(name, func(t *testing.T) {
			h, need, err := clienthello.Parse(c.in)
			if c.code != "" {
				if !fault.Has(err, c.code) {
					t.Fatalf("%+v, needs %d, %v; want %s", h, need, err, c.code)
				}
				return
			}
			if err != nil || need != 0 || h.Name != c.want || !slices.Equal(h.Protocols, c.protocols) && c.protocols != nil {
				t.Fatalf("%+v, needs %d, %v", h, need, err)
			}
			if c.encrypted != h.Encrypted {
				t.Errorf("encrypted: %v", h.Encrypted)
			}
		})
	}
}

// What comes in pieces is the same as what comes at once, and each piece that is asked for
// is missing indeed.
func TestParseInPieces(t *testing.T) {
	for _, all := range [][]byte{
		first(t, &tls.Config{ServerName: "api.c1.example.org"}),
		hello(40, names("c1.example.org"), protocols("h2")),
		hello(whole, extension(51, strings.Repeat("k", 30<<10)), names("c1")),
	} {
		want, _, err := clienthello.Parse(all)
		if err != nil {
			t.Fatal(err)
		}
		asks := 0
		for n := 0; ; asks++ {
			h, need, err := clienthello.Parse(all[:n])
			if err != nil || need < 0 || n+need > len(all) {
				t.Fatalf("with %d of %d bytes: needs %d, %v", n, len(all), need, err)
			}
			if need == 0 {
				if h.Name != want.Name || h.Size != n || n != len(all) {
					t.Fatalf("%+v after %d bytes, want %+v", h, n, want)
				}
				break
			}
			n += need
		}
		if asks > 2*32 {
			t.Errorf("asked %d times", asks)
		}
	}
}

// FuzzParse compares with crypto/tls: what both read has one name.
func FuzzParse(f *testing.F) {
	f.Add(first(f, &tls.Config{ServerName: "api.c1.example.org", NextProtos: []string{"h2"}}))
	f.Add(hello(40, names("c1.example.org"), protocols("h2")))
	f.Add(hello(whole, extension(0xfe0d, "\x00x"), names("c1")))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, need, err := clienthello.Parse(b)
		if err != nil {
			if fault.From(err).Code == fault.CodeInternal {
				t.Fatal("an error without a code", err)
			}
			return
		}
		if need > 0 {
			return
		}
		if h.Size == 0 || h.Size > len(b) {
			t.Fatalf("%+v of %d bytes", h, len(b))
		}
		if name, ok := asServer(b); ok && !strings.EqualFold(strings.TrimSuffix(name, "."), h.Name) {
			t.Fatalf("crypto/tls reads %q, we %q", name, h.Name)
		}
	})
}

// asServer is the name that crypto/tls reads; not ok: it does not come so far.
func asServer(b []byte) (name string, ok bool) {
	seen := errors.New("seen")
	cfg := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, seen
	}}
	tls.Server(played{r: bytes.NewReader(b)}, cfg).HandshakeContext(context.Background())
	return name, ok
}

// played is a client that has sent all, and reads nothing.
type played struct {
	net.Conn
	r io.Reader
}

func (c played) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c played) Write(b []byte) (int, error) { return len(b), nil }
func (c played) Close() error                { return nil }
