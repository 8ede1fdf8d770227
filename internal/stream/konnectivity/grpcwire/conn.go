// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

const (
	windowFirst = 65_535 // of HTTP/2, until something else is said
	windowMost  = 1<<31 - 1
	readSize    = 32 << 10
	restMost    = 512     // bytes of a frame that wait for more without a buffer of readSize
	idleMost    = 1000    // frames in turn that bring nothing
	piecesMost  = 16      // frames of one header
	tableMost   = 4 << 10 // bytes of HPACK's table before a peer knows that it is to have none
)

// conn is one connection. What has no other guard is the reader's own.
type conn struct {
	*Server
	raw     net.Conn
	patient carrier.Patient // nil: none
	group   *run.Group
	ctx     context.Context // of the server
	out     writer

	buf        *[]byte // nil: none, while nothing comes
	at, filled int
	rest       []byte        // what was left when buf was given back
	take       func() []byte // acquire
	give       func()        // release

	data      body
	decoder   *hpack.Decoder // nil: none is needed
	stateless bool           // the peer knows that HPACK has no table here
	block     []byte         // that is not complete
	pieces    int
	opening   frame // its HEADERS
	idle      int   // frames that brought nothing
	shaken    bool
	room      int // the peer's, of the connection
	taken     int // of it, not given back

	pings  pings
	heard  atomic.Int64 // when something came, in nanoseconds
	silent atomic.Bool  // a ping was sent, and nothing came since
	away   bool         // the peer was told to open no more streams; guarded by out
	watch  *time.Timer

	mu      sync.Mutex
	streams map[uint32]*Stream
	last    uint32
	running int
	quota   int // ours, of the connection
	first   int // ours, of a new stream
	starved []*Stream
	ended   bool
}

// body is that of a DATA frame which is not all here.
type body struct {
	stream        *Stream // nil: nobody takes it
	left, padding int
	end           bool
}

// serve owns raw.
func (s *Server) serve(ctx context.Context, g *run.Group, raw net.Conn) error {
	c := &conn{Server: s, raw: raw, group: g, room: s.Burst, quota: windowFirst, first: windowFirst}
	c.out.raw, c.out.group = raw, g
	c.out.turn.L = &c.out.mu
	above := splice.Net(below(raw))
	c.patient, _ = above.(carrier.Patient)
	c.out.prompt, _ = above.(carrier.PromptWriter)
	if c.ctx = ctx; s.Conn != nil {
		c.ctx = s.Conn(ctx, raw)
	}
	c.take, c.give = c.acquire, c.release
	c.out.answers = c.settings()
	if !s.begins(c) {
		raw.Close()
		return nil
	}
	err := c.run()
	s.ends(c)
	var why *breach
	if errors.As(err, &why) {
		c.out.answer(func(b []byte) []byte { return appendGoAway(b, c.last, why.code, why.why) })
	}
	c.out.farewell()
	raw.Close()
	c.out.fail(net.ErrClosed)
	c.over()
	if err == io.EOF || ctx.Err() != nil {
		return nil
	}
	return err
}

// below is the connection that another one only closes in its own way.
func below(raw net.Conn) net.Conn {
	if wraps, ok := raw.(interface{ Below() net.Conn }); ok {
		return wraps.Below()
	}
	return raw
}

// over ends all streams.
func (c *conn) over() {
	if c.buf != nil {
		c.release()
	}
	c.mu.Lock()
	if c.ended = true; c.watch != nil {
		c.watch.Stop()
	}
	all := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, s := range all {
		s.abort(errGone)
	}
}

// settings are the first frames of a connection.
func (c *conn) settings() []byte {
	return appendWindow(appendSettings(nil,
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.Streams)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(c.Window)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.Header)},
	), 0, c.Burst-windowFirst)
}

// run reads until the connection has no more.
func (c *conn) run() error {
	c.raw.SetDeadline(time.Now().Add(c.Handshake))
	if err := c.need(len(http2.ClientPreface)); err != nil {
		return err
	}
	if string(c.next(len(http2.ClientPreface))) != http2.ClientPreface {
		return errors.New("the caller does not speak HTTP/2")
	}
	for {
		if err := c.frame(); err != nil {
			return err
		}
	}
}

// need returns when n bytes are here.
func (c *conn) need(n int) error {
	for c.filled-c.at < n {
		if err := c.more(); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) next(n int) []byte {
	b := (*c.buf)[c.at : c.at+n]
	c.at += n
	return b
}

// more reads what comes. While nothing does, there is no buffer, or a small one.
func (c *conn) more() error {
	if c.shaken { // with the answer to the caller's own settings: that is a write less
		c.out.flush()
	}
	n, err := 0, error(nil)
	rest := c.filled - c.at
	if c.patient != nil && rest <= restMost {
		if c.buf != nil {
			c.rest = append([]byte(nil), (*c.buf)[c.at:c.filled]...)
			c.release()
		}
		n, err = c.patient.ReadWhenReady(c.take, c.give)
		c.at, c.filled = 0, len(c.rest)
		if n > 0 {
			c.rest = nil
		}
	} else {
		if c.buf == nil {
			c.acquire()
			c.at, c.filled = 0, 0
		}
		if c.at > 0 {
			c.filled = copy(*c.buf, (*c.buf)[c.at:c.filled])
			c.at = 0
		}
		n, err = c.raw.Read((*c.buf)[c.filled:])
	}
	c.filled += n
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
		c.silent.Store(false)
		return nil
	}
	if err == io.EOF && rest > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// acquire has a buffer for what comes behind the rest.
func (c *conn) acquire() []byte {
	c.buf = c.Pool.Get(readSize)
	return (*c.buf)[copy(*c.buf, c.rest):]
}

func (c *conn) release() {
	c.Pool.Put(c.buf)
	c.buf = nil
}

// watchOver sends a ping to a peer that is silent, and ends a connection on which it is not answered.
func (c *conn) watchOver() {
	if c.silent.Load() {
		c.raw.Close()
		return
	}
	again := c.Keepalive - time.Since(time.Unix(0, c.heard.Load()))
	if again <= 0 {
		again = c.policy.pingAnswer
		c.silent.Store(true)
		c.out.answer(func(b []byte) []byte {
			return append(appendFrame(b, frame{kind: http2.FramePing, length: 8}), make([]byte, 8)...)
		})
		c.out.flush()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.watch.Reset(again)
	}
}
