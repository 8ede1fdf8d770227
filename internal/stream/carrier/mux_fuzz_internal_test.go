// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// FuzzFrame: the parser takes any eight bytes, refuses with frame_invalid, and
// what it accepts is written by us as the same eight bytes.
func FuzzFrame(f *testing.F) {
	_, rows := vectorRows(f)
	for _, row := range rows {
		f.Add(row)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		head := [headerSize]byte(b)
		h, known, err := parseHeader(&head)
		if err != nil {
			if known || !fault.Has(err, fault.CodeFrameInvalid) {
				t.Fatalf("%x: known %v, %v", head, known, err)
			}
			return
		}
		var put [headerSize]byte
		putHeader(put[:], h.kind, h.length, h.id)
		if !bytes.Equal(appendHeader(nil, h.kind, h.length, h.id), head[:]) || put != head {
			t.Fatalf("%x is written as %x", head, put)
		}
		s, named := shapeOf(h.kind)
		if known != named || h.length > mostPayload || known && (h.length < s.least || h.length < 0) {
			t.Fatalf("%x was accepted: %+v, known %v", head, h, known)
		}
		if known && (h.id == 0 && !s.session || h.id != 0 && !s.stream) {
			t.Fatalf("%x was accepted with its id", head)
		}
	})
}

// The first byte of an input for FuzzSession.
const (
	fuzzClient = 1 << iota // the session is the client
	fuzzSecond             // there is a second connection
	fuzzDeaf               // the peer reads nothing
	fuzzPipe               // no descriptor below, each write waits for its reader
)

// fuzzed is a session with streams in use, whose peer is the input.
type fuzzed struct {
	t       *testing.T
	s       *muxSession
	conns   []net.Conn
	app     sync.WaitGroup // what uses streams
	reading sync.WaitGroup // the peer's readers
}

// FuzzSession gives a session arbitrary bytes. The input's first byte chooses the
// kind of session; then come pieces: a byte whose highest bit chooses the
// connection and whose others are the length, 0 for all the rest.
func FuzzSession(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 1<<16 {
			return
		}
		before := runtime.NumGoroutine()
		x := fuzzing(t, in[0])
		x.feed(in[1:])
		x.finish(in[0])
		runtest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
}

func fuzzing(t *testing.T, flags byte) *fuzzed {
	t.Helper()
	x := &fuzzed{t: t}
	client := flags&fuzzClient != 0
	o := Options{Incoming: 4, Connections: 2, Budget: NewBudget(1 << 20)}
	o.Dial = func(context.Context) (net.Conn, error) { return nil, errors.New("there is nobody") }
	link := func() net.Conn {
		near, far := net.Pipe()
		if flags&fuzzPipe == 0 {
			near, far = pair(t, true)
		}
		far.SetDeadline(deadlineNow())
		x.conns = append(x.conns, far)
		if flags&fuzzDeaf == 0 {
			x.reading.Go(func() { io.Copy(io.Discard, far) })
		}
		return Wrap(near)
	}
	s, err := newMux(link(), o, client)
	if err != nil {
		t.Fatal(err)
	}
	x.s = s.(*muxSession)
	if flags&fuzzSecond != 0 {
		if err := x.s.Attach(link()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		st, err := x.s.OpenStream(t.Context(), []byte("first")[:2*i])
		if err != nil {
			t.Fatal(err)
		}
		x.use(st, i)
	}
	x.app.Go(func() {
		for i := 0; ; i++ {
			st, err := x.s.AcceptStream(t.Context())
			if err != nil {
				return
			}
			x.use(st, i)
		}
	})
	return x
}

// use does what applications do with a stream.
func (x *fuzzed) use(st Stream, i int) {
	st.SetDeadline(deadlineNow())
	x.app.Go(func() {
		defer st.Close()
		switch i % 4 {
		case 0: // echoes
			st.CopyFrom(st, nil)
			st.CloseWrite()
		case 1: // writes more than its credit, and reads in small pieces
			done := make(chan struct{})
			go func() {
				defer close(done)
				st.Write(make([]byte, 300_000))
				st.CloseWrite()
			}()
			for b := make([]byte, 100); ; {
				if _, err := st.Read(b); err != nil {
					break
				}
			}
			st.Reset(3)
			<-done
		case 2: // reads all
			st.CopyTo(io.Discard, nil)
		case 3: // resets at once
			st.Write([]byte("bye"))
			st.Reset(9)
		}
	})
}

// feed writes the pieces.
func (x *fuzzed) feed(in []byte) {
	for len(in) > 0 {
		which, n := int(in[0]>>7), int(in[0]&0x7f)
		if in = in[1:]; n == 0 || n > len(in) {
			n = len(in)
		}
		if which >= len(x.conns) {
			which = 0
		}
		if _, err := x.conns[which].Write(in[:n]); err != nil {
			return // the session has ended
		}
		in = in[n:]
	}
}

// finish ends what the peer sends; everything has to end with it.
func (x *fuzzed) finish(flags byte) {
	x.t.Helper()
	for _, conn := range x.conns {
		if c, ok := conn.(interface{ CloseWrite() error }); ok && flags&fuzzDeaf == 0 {
			c.CloseWrite()
		} else {
			conn.Close()
		}
	}
	done(x.t, "the session ends", x.s.Done())
	over := make(chan struct{})
	go func() {
		x.app.Wait()
		for _, conn := range x.conns {
			conn.Close()
		}
		x.reading.Wait()
		close(over)
	}()
	done(x.t, "who used the streams is told", over)
	var timeout net.Error
	switch why := x.s.why; {
	case fault.Has(why, fault.CodeFrameInvalid), fault.Has(why, fault.CodeSessionLost):
	case errors.As(why, &timeout) && timeout.Timeout(), why == nil:
		x.t.Errorf("the session ended with %v", why)
	}
	if unread, queued, growth := x.s.budget.Unread(), x.s.queued.Load(), x.s.growth.Load(); unread|queued|growth != 0 {
		x.t.Errorf("%d bytes are unread, %d queued, %d reserved", unread, queued, growth)
	}
	if left := unclosed(x.s); len(left) > 0 {
		x.t.Errorf("%d streams are left", len(left))
	}
	runtest.Eventually(x.t, "no connection is left", func() bool { return x.s.Info().Connections == 0 })
}

// fuzzSeeds are the page's vectors and what the tests of the rules send; two
// recorded exchanges and what fuzzing found are in testdata.
func fuzzSeeds(t testing.TB) (seeds [][]byte) {
	t.Helper()
	_, rows := vectorRows(t)
	var all []byte
	for _, row := range rows {
		all = append(all, row...)
	}
	seeds = append(seeds, append([]byte{0, 0}, all...), append([]byte{fuzzClient, 0}, all...))
	for _, scripts := range []map[string]script{violations(), tolerated()} {
		for _, sc := range scripts {
			seed := []byte{fuzzSecond}
			for _, l := range sc {
				for b := range bytesOf(unhex(t, l.frames)) {
					seed = append(append(seed, byte(len(b))|(l.on-'A')<<7), b...)
				}
			}
			if len(seed) < 2000 {
				seeds = append(seeds, seed)
			}
		}
	}
	return seeds
}

// bytesOf gives b in pieces that a length of FuzzSession can tell.
func bytesOf(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(len(b), 0x7f)
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}
