// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"io"
	"sync"
)

// copier is a side that copies by means of its own: a carrier's stream.
type copier interface {
	CopyFrom(src io.Reader, moved func(n int)) (srcErr, err error)
	CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error)
}

// patient is a source that asks for a buffer only when it has bytes (see
// carrier.Patient).
type patient interface {
	ReadWhenReady(take func() []byte, give func()) (n int, err error)
}

// move copies until src ends or dst takes no more: srcErr is io.EOF or what
// befell src, dstErr is why dst takes no more. A stream moves its own chunks
// straight to and from the other side. While src is silent no copy buffer is held,
// unless src cannot wait without one in its hand: that has limit.WaitBuffer.
func (s *Splicer) move(dst io.Writer, src io.Reader, moved func(int)) (srcErr, dstErr error) {
	if from, ok := src.(copier); ok {
		dstErr, srcErr = from.CopyTo(dst, moved)
		return srcErr, dstErr
	}
	if to, ok := dst.(copier); ok {
		return to.CopyFrom(src, moved)
	}
	if to, from, ok := tcpPair(dst, src); ok {
		return s.through(to, from, moved)
	}
	from, ok := src.(patient)
	if !ok {
		e := &eager{src: src, small: s.small.Get().(*[]byte)}
		defer s.small.Put(e.small)
		from = e
	}
	return s.loop(dst, from, moved)
}

// loop is the copy between two sides that have no means of their own.
func (s *Splicer) loop(dst io.Writer, src patient, moved func(int)) (srcErr, dstErr error) {
	h := &held{pool: &s.large}
	take, give := h.take, h.give
	defer give()
	for {
		n, err := src.ReadWhenReady(take, give)
		if n > 0 {
			if _, dstErr := dst.Write((*h.buf)[:n]); dstErr != nil {
				return err, dstErr
			}
			if n < len(*h.buf) { // there may be silence now
				give()
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

// held is the buffer of a loop, in its hand as long as it is filled.
type held struct {
	pool *sync.Pool
	buf  *[]byte
}

func (h *held) take() []byte {
	if h.buf == nil {
		h.buf = h.pool.Get().(*[]byte)
	}
	return *h.buf
}

func (h *held) give() {
	if h.buf != nil {
		h.pool.Put(h.buf)
		h.buf = nil
	}
}

// eager makes do with a source that is not patient (a pipe, TLS over something
// unknown). It waits with a small buffer, and asks for a large one only after the
// last came back full, when more is likely to be there.
type eager struct {
	src   io.Reader
	small *[]byte
	rest  []byte // of small, not delivered yet
	err   error  // what came along with rest
	full  bool
}

func (e *eager) ReadWhenReady(take func() []byte, give func()) (n int, err error) {
	if len(e.rest) == 0 && e.full {
		b := take()
		if n, err = e.src.Read(b); n == 0 {
			give()
		}
		e.full = n == len(b)
		return n, err
	}
	if len(e.rest) == 0 {
		n, err := e.src.Read(*e.small)
		e.rest, e.err, e.full = (*e.small)[:n], err, n == len(*e.small)
	}
	if len(e.rest) > 0 {
		n = copy(take(), e.rest)
		e.rest = e.rest[n:]
	}
	if len(e.rest) == 0 { // then what follows the bytes is due
		err, e.err = e.err, nil
	}
	return n, err
}

// bin takes so many bytes and throws them away.
type bin struct {
	left int
	full error // what it says beyond that
}

func (b *bin) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, b.full
	}
	return len(p), nil
}
