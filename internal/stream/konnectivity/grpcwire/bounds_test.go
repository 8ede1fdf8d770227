// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestStreamsThatAreResetAtOnce are no more handlers than a connection may have, and the connection goes on.
func TestStreamsThatAreResetAtOnce(t *testing.T) {
	w := newWorld(t)
	p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go io.Copy(io.Discard, p.Conn)
	for range 20_000 {
		id := p.open()
		p.WriteData(id, false, []byte{0, 0, 0, 0, 1, 'x'})
		if err := p.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	if most := w.most.Load(); most > 100 {
		t.Errorf("%d handlers at a time, at most 100 are meant", most)
	}
	runtest.Eventually(t, "all handlers return", func() bool { return w.running.Load() == 0 })
	w.peer().lives()
}

// TestMoreStreamsThanAllowed are refused, so that their caller tries again.
func TestMoreStreamsThanAllowed(t *testing.T) {
	p := newWorld(t).peer()
	for range 100 {
		p.open()
	}
	last := p.open()
	f, _ := p.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream }).(*http2.RSTStreamFrame)
	if f == nil || f.StreamID != last || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Fatalf("the stream beyond the bound ends with %v", f)
	}
	p.WriteRSTStream(1, http2.ErrCodeCancel)
	runtest.Eventually(t, "a place is free", func() bool { // a moment after the handler's end
		id := p.open()
		p.WriteData(id, true, []byte{0, 0, 0, 0, 1, 'x'})
		f := p.until(func(f http2.Frame) bool {
			kind := f.Header().Type
			return f.Header().StreamID == id && (kind == http2.FrameRSTStream || kind == http2.FrameData)
		})
		return f != nil && f.Header().Type == http2.FrameData
	})
}

// TestAWindowThatIsClosed stops its stream and no other; with room it goes on, and a reset ends it.
func TestAWindowThatIsClosed(t *testing.T) {
	w := newWorld(t)
	p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	ids := []uint32{p.open(), p.open()}
	for _, id := range ids {
		p.WriteData(id, false, []byte{0, 0, 0, 0, 1, 'x'})
	}
	got := map[uint32][]byte{}
	more := func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			got[d.StreamID] = append(got[d.StreamID], d.Data()...)
		}
		return len(got[ids[0]]) == 3 && len(got[ids[1]]) >= 3
	}
	p.until(more)
	p.WriteWindowUpdate(ids[1], 100)
	p.until(func(f http2.Frame) bool { return more(f) && len(got[ids[1]]) == 6 })
	p.WriteRSTStream(ids[0], http2.ErrCodeCancel)
	runtest.Eventually(t, "the handler of the stream that stood still returns", func() bool { return w.running.Load() == 1 })
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10})
	p.lives()
}

// TestAnswersThatAreNotRead end their connection: they are bounded.
func TestAnswersThatAreNotRead(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(runtest.Dir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	w, said := &world{TB: t, ln: ln}, &runtest.Transcript{}
	s := newServer(w)
	s.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.serve(s)
	p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	p.WriteWindowUpdate(0, 1<<30)
	message := make([]byte, 16<<10)
	copy(message, []byte{0, 0, 0, 0x3f, 0xfb})
	id := p.open()
	for range 40 { // what is echoed fills the socket, whether or not the rest is within the window
		p.WriteData(id, false, message)
	}
	for n := 0; p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id, EndHeaders: true,
		BlockFragment: p.header(":method", "POST", ":path", "/x/y", "content-type", "application/grpc")}) == nil; n++ {
		if p.id += 2; n > 100_000 {
			t.Fatal("its answers are not bounded")
		}
		if n%256 == 0 { // another bound is for those who send nothing but calls
			p.WriteData(id, false, []byte{0})
		}
	}
	runtest.Eventually(t, "the handler returns", func() bool { return w.running.Load() == 0 })
	runtest.Eventually(t, "the log says why", func() bool {
		return strings.Contains(said.String(), "does not read what it is answered")
	})
}

// pipes is a listener in memory, for a bubble of time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

// inBubble serves in a bubble, and returns the far end of a connection.
func inBubble(t *testing.T, keepalive time.Duration) (w *world, far net.Conn) {
	ln := &pipes{make(chan net.Conn), make(chan struct{})}
	w = &world{TB: t, ln: ln}
	s := newServer(w)
	s.Handshake, s.Keepalive = 10*time.Second, keepalive
	w.serve(s)
	near, far := net.Pipe()
	ln.conns <- near
	return w, far
}

// TestAHandshakeIsBounded: whoever says too little is gone when its time is over.
func TestAHandshakeIsBounded(t *testing.T) {
	for _, said := range []string{"", "PRI * HTTP/2.0\r\n", http2.ClientPreface, http2.ClientPreface + "\x00\x00\x06\x04"} {
		synctest.Test(t, func(t *testing.T) {
			w, far := inBubble(t, 0)
			defer far.Close()
			go io.WriteString(far, said)
			begin := time.Now()
			io.Copy(io.Discard, far)
			if took := time.Since(begin); took != 10*time.Second {
				t.Errorf("after %q it ends after %v", said, took)
			}
			w.stop()
		})
	}
}

// TestASilentPeer gets a ping. One that answers stays, one that does not is gone.
func TestASilentPeer(t *testing.T) {
	for _, answers := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			w, far := inBubble(t, 5*time.Second)
			defer far.Close()
			begin := time.Now()
			fr := http2.NewFramer(far, far)
			go io.WriteString(far, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and SETTINGS
			pings := 0
			for {
				f, err := fr.ReadFrame()
				if err != nil {
					break
				}
				if ping, ok := f.(*http2.PingFrame); ok {
					if pings++; pings <= answers {
						fr.WritePing(true, ping.Data)
					}
				}
			}
			// A ping that is answered is looked at when its time is over, and the next is sent then.
			if took, want := time.Since(begin), time.Duration(answers+1)*20*time.Second+5*time.Second; pings != answers+1 || took != want {
				t.Errorf("%d answers: it ends after %d pings and %v, want %v", answers, pings, took, want)
			}
			w.stop()
		})
	}
}

// FuzzConnection says anything: the connection ends, its handlers return, and no buffer is left behind.
func FuzzConnection(f *testing.F) {
	var b, head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	fr := http2.NewFramer(&b, nil)
	b.WriteString(http2.ClientPreface)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7})
	for i, more := range request()[:1] {
		head.Reset()
		all := request("x-kept", more, "grpc-timeout", "10S")
		for i := 0; i < len(all); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
		}
		id := uint32(2*i + 1)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes()[:9]})
		fr.WriteContinuation(id, true, head.Bytes()[9:])
		fr.WriteDataPadded(id, false, []byte{0, 0, 0, 0, 3, 'a', 'b', 'c'}, make([]byte, 5))
		fr.WriteWindowUpdate(id, 100)
		fr.WriteWindowUpdate(0, 100)
		fr.WriteData(id, false, []byte{0, 0, 0, 0, 4, 'f', 'a', 'i', 'l', 0})
	}
	fr.WritePing(false, [8]byte{1})
	fr.WriteGoAway(1, http2.ErrCodeNo, []byte("bye"))
	fr.WriteRSTStream(1, http2.ErrCodeCancel)
	f.Add(b.Bytes())
	f.Add([]byte(http2.ClientPreface))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		w := newWorld(t)
		p := w.silent()
		go func() {
			p.Conn.Write(said)
			p.Conn.(*net.UnixConn).CloseWrite()
		}()
		_, err := io.Copy(io.Discard, p.Conn)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Error("the connection does not end")
		}
		if most := w.most.Load(); most > 100 {
			t.Errorf("%d handlers at a time", most)
		}
		w.stop()
	})
}
