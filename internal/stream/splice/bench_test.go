// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// benchPairs are the ways that a splice is used: hub and agent between a socket
// and a stream, 'tombolo connect' between sockets.
func benchPairs(b *testing.B, body func(b *testing.B, x, y end)) {
	b.Helper()
	tcp, unix, tls, mux := ends()[0], ends()[1], ends()[2], ends()[3]
	for _, p := range [][2]end{
		{unix, tcp}, {tcp, tcp}, {tls, tcp}, {unix, mux}, {mux, tcp}, {tls, mux},
	} {
		b.Run(p[0].name+"-"+p[1].name, func(b *testing.B) { body(b, p[0], p[1]) })
	}
}

// BenchmarkBoth is the throughput of one direction.
func BenchmarkBoth(b *testing.B) {
	benchPairs(b, func(b *testing.B, x, y end) {
		s := start(b, x, y, splice.Options{})
		arrived := make(chan int64, 1)
		go func() {
			n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s.b}, make([]byte, 256<<10))
			arrived <- n
		}()
		chunk := make([]byte, 64<<10)
		b.SetBytes(int64(len(chunk)))
		b.ReportAllocs()
		sent := 0
		for b.Loop() {
			if _, err := s.a.Write(chunk); err != nil {
				b.Fatal(err)
			}
			sent += len(chunk)
		}
		s.a.CloseWrite()
		if n := <-arrived; n != int64(sent) {
			b.Fatalf("%d of %d bytes arrived", n, sent)
		}
		s.b.CloseWrite()
		if r := s.done(b); r.Code != "" {
			b.Fatalf("ended with %q, %v", r.Code, r.Err)
		}
	})
}

// BenchmarkPing is the round trip of one byte.
func BenchmarkPing(b *testing.B) {
	benchPairs(b, func(b *testing.B, x, y end) {
		s := start(b, x, y, splice.Options{})
		one := make([]byte, 1)
		b.ReportAllocs()
		for b.Loop() {
			exchange(b, s, one)
		}
	})
}

// exchange sends msg both ways.
func exchange(t testing.TB, s setup, msg []byte) {
	t.Helper()
	for _, way := range [][2]peer{{s.a, s.b}, {s.b, s.a}} {
		if _, err := way[0].Write(msg); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], msg); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkRead compares the two ways to read where the bytes are there already.
func BenchmarkRead(b *testing.B) {
	near, far := pairOn(b, "unix", filepath.Join(b.TempDir(), "s"))
	far.SetDeadline(time.Time{})
	conn := splice.Net(near)
	buf, one := make([]byte, 32), make([]byte, 1)
	take, give := func() []byte { return buf }, func() {}
	for name, read := range map[string]func() (int, error){
		"plain":   func() (int, error) { return conn.Read(buf) },
		"patient": func() (int, error) { return conn.(carrier.Patient).ReadWhenReady(take, give) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := far.Write(one); err != nil {
					b.Fatal(err)
				}
				if n, err := read(); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
