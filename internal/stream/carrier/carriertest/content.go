// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// beyond is more than a peer takes of a stream that it does not read.
const beyond = 2 << 20

// content is an endless sequence of bytes that its number names: the same ring
// of random bytes for all, begun at different places. The ring's length is a prime
// near 64 KiB, so that no frame, buffer or window that is lost, doubled or put in
// a wrong place or stream leaves the bytes as they were.
type content uint64

const ringSize = 65_521

// ring holds the sequence twice, so that each part of it lies in one piece.
var ring = sync.OnceValue(func() []byte {
	once := make([]byte, ringSize)
	rng := seeded(0)
	for i := range once {
		once[i] = byte(rng.Uint32())
	}
	return append(once, once...)
})

// at gives up to n bytes from offset on, at least one.
func (c content) at(offset int64, n int) []byte {
	from := (uint64(c)*7_919 + uint64(offset)) % ringSize
	return ring()[from : from+min(uint64(n), ringSize)]
}

// fill writes the bytes from offset on into b.
func (c content) fill(b []byte, offset int64) {
	for len(b) > 0 {
		n := copy(b, c.at(offset, len(b)))
		b, offset = b[n:], offset+int64(n)
	}
}

// first gives the first n bytes.
func (c content) first(n int) []byte {
	b := make([]byte, n)
	c.fill(b, 0)
	return b
}

// source reads the first size bytes of a content in chunks of random sizes.
type source struct {
	of     content
	offset int64
	size   int64
	rng    *rand.Rand
}

func (s *source) Read(b []byte) (int, error) {
	left := s.size - s.offset
	if left == 0 {
		return 0, io.EOF
	}
	n := int(min(left, int64(len(b)), int64(chunk(s.rng))))
	s.of.fill(b[:n], s.offset)
	s.offset += int64(n)
	return n, nil
}

// sink takes the bytes of a content and fails at the first that is wrong.
type sink struct {
	of  content
	got int64
}

func (s *sink) Write(b []byte) (int, error) {
	for left := b; len(left) > 0; {
		want := s.of.at(s.got, len(left))
		if !bytes.Equal(left[:len(want)], want) {
			return len(b) - len(left), fmt.Errorf("wrong bytes between offsets %d and %d", s.got, s.got+int64(len(want)))
		}
		left, s.got = left[len(want):], s.got+int64(len(want))
	}
	return len(b), nil
}

// prompt is a sink that can be written without waiting, and often takes only a
// part. It is written by one at a time.
type prompt struct {
	io.Writer
	rng  *rand.Rand
	busy atomic.Bool
	now  atomic.Int64 // bytes taken without waiting
}

var errTwoWriters = errors.New("a sink was written by two at a time")

func (p *prompt) Write(b []byte) (int, error) {
	if !p.busy.CompareAndSwap(false, true) {
		return 0, errTwoWriters
	}
	defer p.busy.Store(false)
	return p.Writer.Write(b)
}

func (p *prompt) WriteNow(b []byte) (int, error) {
	if !p.busy.CompareAndSwap(false, true) {
		return 0, errTwoWriters
	}
	defer p.busy.Store(false)
	switch p.rng.IntN(4) {
	case 0:
		return 0, nil
	case 1:
		b = b[:p.rng.IntN(len(b)+1)]
	}
	n, err := p.Writer.Write(b)
	p.now.Add(int64(n))
	return n, err
}

// chunk is a size that is mostly small and sometimes large.
func chunk(rng *rand.Rand) int { return 1 + rng.IntN(1<<rng.IntN(17)) }

// mostChunk is the largest: two frames of any mux, and a few bytes.
const mostChunk = 1 << 16

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x7a11)) }

// send writes the first size bytes of a content in random chunks and ends the direction.
func send(w carrier.Stream, of content, size int64, rng *rand.Rand) error {
	if err := pour(w, of, size, rng); err != nil {
		return err
	}
	return w.CloseWrite()
}

// pour is send without the end.
func pour(w io.Writer, of content, size int64, rng *rand.Rand) error {
	buf := make([]byte, min(size, mostChunk))
	for offset := int64(0); offset < size; {
		b := buf[:min(int64(chunk(rng)), size-offset)]
		of.fill(b, offset)
		n, err := w.Write(b)
		if err != nil || n != len(b) {
			return errors.Join(fmt.Errorf("a write of %d bytes at offset %d took %d", len(b), offset, n), err)
		}
		offset += int64(n)
	}
	return nil
}

// receive reads to the end of a stream in random chunks. It gives how much came,
// and what ended it, io.EOF included.
func receive(r io.Reader, of content, rng *rand.Rand) (int64, error) {
	want, buf := &sink{of: of}, make([]byte, mostChunk)
	for {
		n, err := r.Read(buf[:chunk(rng)])
		if _, wrong := want.Write(buf[:n]); wrong != nil {
			return want.got, wrong
		}
		if err != nil {
			return want.got, err
		}
	}
}

// wantAll wants the whole content and then the clean end.
func wantAll(r io.Reader, of content, size int64, rng *rand.Rand) error {
	got, err := receive(r, of, rng)
	if got != size || err != io.EOF {
		return fmt.Errorf("%d bytes of %d, then %v; want io.EOF", got, size, err)
	}
	return nil
}
