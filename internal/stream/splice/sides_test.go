// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// side is a Conn in memory that does what its fields say. How it is copied is a
// matter of means, and must make no difference.
type side struct {
	gives int   // bytes
	then  error // after them, once; nil: silence until the side is reset or closed
	ended bool
	after <-chan struct{}

	takes    int   // bytes, if refuses is set
	refuses  error // after that
	refused  chan struct{}
	closeErr error // of CloseWrite

	mu    sync.Mutex
	took  int
	ends  int // calls of CloseWrite
	reset []uint32
	gone  chan struct{}
	once  sync.Once
}

func (s *side) ready() *side {
	s.gone, s.refused = make(chan struct{}), make(chan struct{})
	return s
}

func (s *side) Read(b []byte) (int, error) {
	if s.after != nil {
		select {
		case <-s.after:
		case <-s.gone:
			return 0, net.ErrClosed
		}
	}
	if s.gives > 0 {
		n := min(s.gives, len(b), 1000)
		s.gives -= n
		if s.gives == 0 && s.then != nil && n%2 == 0 { // an end may come along with the last bytes
			s.ended = true
			return n, s.then
		}
		return n, nil
	}
	switch {
	case s.then == nil:
		<-s.gone
		return 0, net.ErrClosed
	case s.ended:
		return 0, errors.New("read again after its end")
	}
	s.ended = true
	return 0, s.then
}

func (s *side) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil && s.took+len(b) > s.takes {
		select {
		case <-s.refused:
		default:
			close(s.refused)
		}
		return 0, s.refuses
	}
	s.took += len(b)
	return len(b), nil
}

func (s *side) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends++
	return s.closeErr
}

func (s *side) Reset(code uint32) error {
	s.mu.Lock()
	s.reset = append(s.reset, code)
	s.mu.Unlock()
	return s.Close()
}

func (s *side) Close() error {
	s.once.Do(func() { close(s.gone) })
	return nil
}

// patientSide is a side that can be waited for without a buffer.
type patientSide struct{ *side }

func (s patientSide) ReadWhenReady(take func() []byte, give func()) (int, error) {
	take()
	give() // as if nothing were there at first
	n, err := s.Read(take())
	if n == 0 {
		give()
	}
	return n, err
}

// streamSide copies by means of its own, with a buffer that the splice never sees.
type streamSide struct{ *side }

func (s streamSide) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return plainCopy(s.side, src, moved)
}

func (s streamSide) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	err, dstErr = plainCopy(dst, s.side, moved)
	return dstErr, err
}

// plainCopy gives both errors if both came: a copier may.
func plainCopy(dst io.Writer, src io.Reader, moved func(int)) (srcErr, dstErr error) {
	buf := make([]byte, 700)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, dstErr := dst.Write(buf[:n]); dstErr != nil {
				return err, dstErr
			}
			if moved != nil {
				moved(n)
			}
		}
		if err != nil {
			return err, nil
		}
	}
}

// means are the ways to copy a side.
func means() map[string]func(*side) splice.Conn {
	return map[string]func(*side) splice.Conn{
		"plain":   func(s *side) splice.Conn { return s },
		"patient": func(s *side) splice.Conn { return patientSide{s} },
		"stream":  func(s *side) splice.Conn { return streamSide{s} },
	}
}

// outcome is what a splice of two sides comes to. Of the bytes that move towards
// a side that refuses, only the bound is certain.
type outcome struct {
	code       fault.Code
	err        error
	up, down   int
	reset      uint32 // what both sides are reset with, 0: not at all
	aEnd, bEnd bool   // CloseWrite was called
}

type scene struct {
	name string
	a, b func() *side
	want outcome
}

func gives(n int, then error) func() *side {
	return func() *side { return &side{gives: n, then: then} }
}

// refuses gives n bytes and an end once it was written to beyond takes.
func refuses(takes int, why error, n int) func() *side {
	return func() *side {
		s := (&side{gives: n, then: io.EOF, takes: takes, refuses: why}).ready()
		s.after = s.refused
		return s
	}
}

func scenes() []scene {
	broke := errors.New("it broke")
	reset := &carrier.ResetError{Code: 3}
	lost := fault.New(fault.CodeSessionLost, "the session has ended")
	wrapped := fmt.Errorf("the link: %w", io.EOF)
	noEnd := func() *side { return &side{gives: 10, then: io.EOF, closeErr: broke} }
	const flood = 4 * limit.Discard
	return []scene{
		{"both end in order", gives(5000, io.EOF), gives(70_001, io.EOF), outcome{up: 5000, down: 70_001, aEnd: true, bEnd: true}},
		{"nothing at all", gives(0, io.EOF), gives(0, io.EOF), outcome{aEnd: true, bEnd: true}},
		{"a breaks", gives(5000, broke), gives(0, nil), outcome{code: fault.CodeStreamReset, err: broke, up: 5000, reset: 1}},
		{"a breaks at once", gives(0, broke), gives(0, nil), outcome{code: fault.CodeStreamReset, err: broke, reset: 1}},
		{"a is reset with a code", gives(20, reset), gives(0, nil), outcome{code: fault.CodeDialCanceled, err: reset, up: 20, reset: 3}},
		{"a's session is lost", gives(20, lost), gives(0, nil), outcome{code: fault.CodeSessionLost, err: lost, up: 20, reset: 5}},
		{"a's link ends", gives(20, wrapped), gives(0, nil), outcome{code: fault.CodeStreamReset, err: wrapped, up: 20, reset: 1}},
		{"a breaks, b ends", gives(8, broke), gives(0, io.EOF), outcome{code: fault.CodeStreamReset, err: broke, up: 8, reset: 1}},
		{"b cannot be told the end", gives(300, io.EOF), noEnd, outcome{code: fault.CodeStreamReset, err: broke, up: 300, down: 10, reset: 1, aEnd: true, bEnd: true}},
		{"b takes nothing and has an answer", gives(5000, io.EOF), refuses(0, syscall.EPIPE, 90_000),
			outcome{code: fault.CodeStreamReset, err: syscall.EPIPE, down: 90_000, aEnd: true}},
		{"b stops taking and has an answer", gives(90_000, io.EOF), refuses(40_000, syscall.EPIPE, 10),
			outcome{code: fault.CodeStreamReset, err: syscall.EPIPE, up: 40_000, down: 10, aEnd: true}},
		{"b takes nothing of a flood", gives(flood, io.EOF), func() *side { return &side{refuses: syscall.EPIPE} },
			outcome{code: fault.CodeStreamReset, err: syscall.EPIPE, reset: 1}},
		{"b takes nothing and a breaks", gives(flood/8, broke), func() *side { return &side{refuses: reset} },
			outcome{code: fault.CodeDialCanceled, err: reset, reset: 3}},
		{"b takes nothing of a's last bytes", gives(700, io.EOF), refuses(0, syscall.EPIPE, 2),
			outcome{code: fault.CodeStreamReset, err: syscall.EPIPE, down: 2, aEnd: true}},
		{"b takes nothing of what a gives before it breaks", gives(700, broke), refuses(0, syscall.EPIPE, 0),
			outcome{code: fault.CodeStreamReset, err: syscall.EPIPE, reset: 1}},
	}
}

// TestSidesAndMeans: the outcome of a splice follows from what the sides do and
// not from how they are copied, and is the same seen from either side.
func TestSidesAndMeans(t *testing.T) {
	for _, s := range scenes() {
		for nameA, asA := range means() {
			for nameB, asB := range means() {
				t.Run(s.name+"/"+nameA+"-"+nameB, func(t *testing.T) {
					play(t, s, asA, asB, false)
					play(t, s, asA, asB, true)
				})
			}
		}
	}
}

func play(t *testing.T, s scene, asA, asB func(*side) splice.Conn, swapped bool) {
	t.Helper()
	a, b := s.a(), s.b()
	for _, x := range []*side{a, b} {
		if x.gone == nil {
			x.ready()
		}
	}
	var up, down splice.Counter
	first, second := asA(a), asB(b)
	o := splice.Options{Up: &up, Down: &down}
	if swapped {
		first, second = second, first
		o.Up, o.Down = &down, &up
	}
	r := splice.New().Both(t.Context(), first, second, o)
	if swapped {
		r.Up, r.Down = r.Down, r.Up
	}
	want := s.want
	if r.Code != want.code || r.Err != want.err {
		t.Errorf("ended with %q, %v; want %q, %v", r.Code, r.Err, want.code, want.err)
	}
	if up.Load() != r.Up || down.Load() != r.Down || int(r.Up) != b.took || int(r.Down) != a.took {
		t.Errorf("counted %d and %d, shared %d and %d, arrived %d and %d", r.Up, r.Down, up.Load(), down.Load(), b.took, a.took)
	}
	if b.refuses == nil && int(r.Up) != want.up || b.refuses != nil && int(r.Up) > want.up || want.reset == 0 && int(r.Down) != want.down {
		t.Errorf("%d up, %d down; want %d, %d", r.Up, r.Down, want.up, want.down)
	}
	for name, x := range map[string]struct {
		*side
		end bool
	}{"a": {a, want.aEnd}, "b": {b, want.bEnd}} {
		select {
		case <-x.gone:
		default:
			t.Errorf("%s is still open", name)
		}
		if want.reset == 0 && (len(x.reset) > 0 || x.end != (x.ends == 1)) || x.ends > 1 {
			t.Errorf("%s was reset with %v and told the end %d times", name, x.reset, x.ends)
		}
		if want.reset != 0 && (len(x.reset) != 1 || x.reset[0] != want.reset) {
			t.Errorf("%s was reset with %v, want %d", name, x.reset, want.reset)
		}
	}
}
