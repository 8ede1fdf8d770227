// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// stream is one stream of any transport, with the two copies of an application:
// as the product does them on a mux, as a 32 KiB loop elsewhere.
type stream interface {
	io.ReadWriter
	// pour sends what src gives until the stream takes no more.
	pour(src io.Reader)
	// drain gives what comes to dst until the stream ends.
	drain(dst io.Writer)
	// finish ends both directions in order.
	finish()
	// abort ends both directions at once.
	abort()
}

// plain is a stream that is a connection.
type plain struct {
	net.Conn
	pool *buffers
}

// buffers are for copies of plain connections, one for each direction under
// way. The zero value is ready.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, limit.CopyBuffer)
	return &p
}

func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

func (p plain) pour(src io.Reader)  { p.pool.copy(p.Conn, src) }
func (p plain) drain(dst io.Writer) { p.pool.copy(dst, p.Conn) }

// copy is the copy that a relay without a carrier does: no splice(2), which
// could not pass TLS, and a pooled buffer.
func (b *buffers) copy(dst io.Writer, src io.Reader) error {
	buf := b.get()
	defer b.put(buf)
	for {
		n, err := src.Read(*buf)
		if n > 0 {
			if _, err := dst.Write((*buf)[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func (p plain) finish() { p.Close() }

// abort closes below TLS, whose own farewell waits for a peer that does not read.
func (p plain) abort() {
	if t, ok := p.Conn.(interface{ NetConn() net.Conn }); ok {
		t.NetConn().Close()
		return
	}
	p.Close()
}

// muxed is a stream of a carrier's session.
type muxed struct{ carrier.Stream }

func (m muxed) pour(src io.Reader)  { m.CopyFrom(src, nil) }
func (m muxed) drain(dst io.Writer) { m.CopyTo(dst, nil) }
func (m muxed) finish()             { m.Close() }
func (m muxed) abort()              { m.Reset(1) }

// source is an application that always has bytes. Reading copies them, as
// reading from a socket would.
type source struct {
	block [limit.CopyBuffer]byte
	sent  *atomic.Int64
}

func newSource(sent *atomic.Int64) *source {
	s := &source{sent: sent}
	for i := range s.block {
		s.block[i] = byte(i * 7)
	}
	return s
}

// Read gives at most as much as a product's copy asks a socket for.
func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.block[:])
	s.sent.Add(int64(n))
	return n, nil
}

// sink is an application that takes everything. Writing touches each cache line
// of the bytes, as writing to a socket would.
type sink struct {
	received *atomic.Int64
	seen     byte
}

func (s *sink) Write(p []byte) (int, error) {
	const line = 64
	var x byte
	for i := 0; i < len(p); i += line {
		x ^= p[i]
	}
	s.seen ^= x // so that the loop cannot be left out
	s.received.Add(int64(len(p)))
	return len(p), nil
}

// WriteNow takes everything at once.
func (s *sink) WriteNow(p []byte) (int, error) { return s.Write(p) }
