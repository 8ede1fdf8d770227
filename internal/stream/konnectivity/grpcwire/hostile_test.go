// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
)

// peer says anything.
type peer struct {
	*world
	net.Conn
	*http2.Framer
	enc  *hpack.Encoder
	head bytes.Buffer
	id   uint32 // of its next stream
}

// silent is a connection on which nothing was said.
func (w *world) silent() *peer {
	w.Helper()
	conn, err := net.Dial("unix", w.ln.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	p := &peer{world: w, Conn: conn, Framer: http2.NewFramer(conn, conn), id: 1}
	p.enc = hpack.NewEncoder(&p.head)
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	return p
}

// peer is a connection that has begun.
func (w *world) peer(settings ...http2.Setting) *peer {
	p := w.silent()
	io.WriteString(p.Conn, http2.ClientPreface)
	p.WriteSettings(settings...)
	return p
}

func (p *peer) header(fields ...string) []byte {
	p.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.head.Bytes())
}

func request(more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, more...)
}

// open opens a stream.
func (p *peer) open(more ...string) (id uint32) {
	id = p.id
	p.id += 2
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.header(request(more...)...), EndHeaders: true})
	return id
}

// until returns the first frame that fits; nil at the end of the connection.
func (p *peer) until(fits func(http2.Frame) bool) http2.Frame {
	p.Helper()
	for {
		f, err := p.ReadFrame()
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			p.Fatal("nothing comes that was waited for")
		}
		if err != nil {
			return nil
		}
		if fits(f) {
			return f
		}
	}
}

// goesAway reads the end of the connection and why.
func (p *peer) goesAway(code http2.ErrCode) {
	p.Helper()
	f, _ := p.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway }).(*http2.GoAwayFrame)
	if f == nil || f.ErrCode != code {
		p.Fatalf("it ends with %v, want %v", f, code)
	}
}

// isReset reads the end of a stream, and finds the connection alive.
func (p *peer) isReset(id uint32, code http2.ErrCode) {
	p.Helper()
	f, _ := p.until(func(f http2.Frame) bool {
		return f.Header().Type == http2.FrameRSTStream && f.Header().StreamID == id
	}).(*http2.RSTStreamFrame)
	if f == nil || f.ErrCode != code {
		p.Fatalf("the stream ends with %v, want %v", f, code)
	}
	p.lives()
}

// lives has a stream of its own echo something.
func (p *peer) lives() {
	p.Helper()
	p.echoes(p.open())
}

// echoes ends a stream, which echoes its last message.
func (p *peer) echoes(id uint32) {
	p.Helper()
	p.WriteData(id, true, []byte{0, 0, 0, 0, 1, 'x'})
	if p.until(func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		return ok && d.StreamID == id && bytes.HasSuffix(d.Data(), []byte("x"))
	}) == nil {
		p.Fatal("the connection has ended")
	}
}

// raw writes a frame that Framer does not.
func (p *peer) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	p.WriteRawFrame(kind, flags, id, payload)
}

// TestSettingsComeFirst, also where a handler has its answer while the reader is busy with what came with the request.
func TestSettingsComeFirst(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(runtest.Dir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, ln: ln}
	server := newServer(w)
	server.Handle = func(s *grpcwire.Stream) error { s.Last([]byte("no")); return nil }
	w.serve(server)
	for range 50 {
		p := w.silent()
		var all bytes.Buffer
		all.WriteString(http2.ClientPreface)
		p.Framer = http2.NewFramer(&all, p.Conn)
		p.WriteSettings()
		p.open()
		for range 900 {
			p.WriteRawFrame(0xfa, 0, 0, nil)
		}
		if _, err := p.Conn.Write(all.Bytes()); err != nil {
			t.Fatal(err)
		}
		if f, err := p.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
			t.Fatalf("the first frame is %v (%v)", f, err)
		}
		p.Conn.Close()
	}
}

// TestBreachesEndTheConnection with the code that HTTP/2 has for each.
func TestBreachesEndTheConnection(t *testing.T) {
	for _, c := range []struct {
		name string
		code http2.ErrCode
		do   func(p *peer)
	}{
		{"a frame too large", http2.ErrCodeFrameSize, func(p *peer) { p.WriteData(p.open(), false, make([]byte, 16<<10+1)) }},
		{"DATA for a stream that was never opened", http2.ErrCodeProtocol, func(p *peer) { p.WriteData(1, false, nil) }},
		{"DATA for the connection", http2.ErrCodeProtocol, func(p *peer) { p.open(); p.WriteData(0, false, nil) }},
		{"a stream of the server's", http2.ErrCodeProtocol, func(p *peer) { p.id = 2; p.open() }},
		{"stream 0", http2.ErrCodeProtocol, func(p *peer) { p.id = 0; p.open() }},
		{"padding without a length", http2.ErrCodeFrameSize, func(p *peer) {
			p.raw(http2.FrameData, http2.FlagDataPadded, p.open())
		}},
		{"more padding than frame", http2.ErrCodeProtocol, func(p *peer) {
			p.raw(http2.FrameData, http2.FlagDataPadded, p.open(), 9, 0)
		}},
		{"more padding than header", http2.ErrCodeProtocol, func(p *peer) {
			p.raw(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, 200, 0x82)
		}},
		{"a header that is none", http2.ErrCodeCompression, func(p *peer) {
			p.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		}},
		{"a header that continues without a beginning", http2.ErrCodeProtocol, func(p *peer) { p.WriteContinuation(1, true, nil) }},
		{"a frame within a header", http2.ErrCodeProtocol, func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, 0x82)
			p.WritePing(false, [8]byte{})
		}},
		{"a header in very many frames", http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, 0x82)
			for range 10_000 {
				if p.WriteContinuation(1, false, nil) != nil {
					return
				}
			}
		}},
		{"a header without end", http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			p.raw(http2.FrameHeaders, 0, 1, 0x82)
			for range 3 {
				p.WriteContinuation(1, false, make([]byte, 8<<10))
			}
		}},
		{"a promise", http2.ErrCodeProtocol, func(p *peer) { p.raw(http2.FramePushPromise, 0, 1, 0, 0, 0, 2) }},
		{"settings for a stream", http2.ErrCodeFrameSize, func(p *peer) { p.raw(http2.FrameSettings, 0, 1) }},
		{"half a setting", http2.ErrCodeFrameSize, func(p *peer) { p.raw(http2.FrameSettings, 0, 0, 1, 2, 3) }},
		{"a window beyond all", http2.ErrCodeProtocol, func(p *peer) {
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}},
		{"settings without end", http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			for range 1100 {
				p.WriteSettings()
			}
		}},
		{"pings without end", http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			for range 4 {
				p.WritePing(false, [8]byte{})
			}
		}},
		{"nothing without end", http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			for id := p.open(); p.WriteData(id, false, nil) == nil; {
			}
		}},
		{"half a ping", http2.ErrCodeFrameSize, func(p *peer) { p.raw(http2.FramePing, 0, 0, 1) }},
		{"a reset of nothing", http2.ErrCodeProtocol, func(p *peer) { p.WriteRSTStream(1, http2.ErrCodeCancel) }},
		{"no more room", http2.ErrCodeProtocol, func(p *peer) { p.WriteWindowUpdate(0, 0) }},
		{"more room than there is", http2.ErrCodeFlowControl, func(p *peer) { p.WriteWindowUpdate(0, 1<<31-1) }},
		{"room for a stream that was never opened", http2.ErrCodeProtocol, func(p *peer) { p.WriteWindowUpdate(7, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newWorld(t).peer()
			c.do(p)
			p.goesAway(c.code)
		})
	}
}

// TestBreachesEndTheStream, and the connection goes on.
func TestBreachesEndTheStream(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		code http2.ErrCode
		do   func(p *peer) (id uint32)
	}{
		{"more than its window", http2.ErrCodeFlowControl, (*peer).overflow},
		{"more room than there is", http2.ErrCodeFlowControl, func(p *peer) uint32 {
			id := p.open()
			p.WriteWindowUpdate(id, 1<<31-1)
			return id
		}},
		{"no more room", http2.ErrCodeFlowControl, func(p *peer) uint32 {
			id := p.open()
			p.WriteWindowUpdate(id, 0)
			return id
		}},
		{"a second header", http2.ErrCodeProtocol, func(p *peer) uint32 { id := p.open(); p.id = id; return p.open() }},
		{"a header list beyond its bound", http2.ErrCodeEnhanceYourCalm, func(p *peer) uint32 {
			return p.open("x-a", strings.Repeat("a", 2000), "x-a", strings.Repeat("a", 2000), "x-b", strings.Repeat("b", 2000),
				"x-c", strings.Repeat("c", 2000), "x-d", strings.Repeat("d", 3500), "x-e", strings.Repeat("e", 3500),
				"x-f", strings.Repeat("f", 3500), "x-g", strings.Repeat("g", 100))
		}},
		{"a name with capitals", http2.ErrCodeProtocol, func(p *peer) uint32 { return p.open("X-A", "b") }},
		{"a value of lines", http2.ErrCodeProtocol, func(p *peer) uint32 { return p.open("x-a", "b\r\nc: d") }},
		{"a connection header", http2.ErrCodeProtocol, func(p *peer) uint32 { return p.open("connection", "close") }},
		{"two paths", http2.ErrCodeProtocol, func(p *peer) uint32 { return p.open(":path", "/") }},
		{"another pseudo header", http2.ErrCodeProtocol, func(p *peer) uint32 { return p.open(":status", "200") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := w.peer()
			p.world = &world{TB: t}
			p.isReset(c.do(p), c.code)
		})
	}
}

// overflow sends more than the window of a stream whose handler does not read.
func (p *peer) overflow() uint32 {
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // its echo waits
	id := p.open()
	p.WriteData(id, false, []byte{0, 0, 0, 0, 1, 'x'})
	for range 5 {
		p.WriteData(id, false, make([]byte, 16<<10))
	}
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10})
	return id
}
