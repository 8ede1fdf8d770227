// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// pipeSide is a source that can do nothing but wait with a buffer in its hand,
// and a sink.
type pipeSide struct {
	read func(b []byte) (int, error)
	took bytes.Buffer
}

func (s *pipeSide) Read(b []byte) (int, error)  { return s.read(b) }
func (s *pipeSide) Write(b []byte) (int, error) { return s.took.Write(b) }
func (s *pipeSide) CloseWrite() error           { return nil }
func (s *pipeSide) Reset(uint32) error          { return nil }
func (s *pipeSide) Close() error                { return nil }

func atEnd([]byte) (int, error) { return 0, io.EOF }

// TestSmallBufferWaits: such a source waits with a small buffer, and with a large
// one only after it has filled the last.
func TestSmallBufferWaits(t *testing.T) {
	const small, large = limit.WaitBuffer, limit.CopyBuffer
	steps := []struct{ offered, gives int }{
		{small, 10}, {small, small - 1}, {small, small}, {large, large}, {large, large}, {large, 1}, {small, small},
		{large, 0}, {small, 3},
	}
	var offered, want []int
	for _, s := range steps {
		want = append(want, s.offered)
	}
	a := &pipeSide{read: func(b []byte) (int, error) {
		if len(offered) == len(steps) {
			return 0, io.EOF
		}
		offered = append(offered, len(b))
		return steps[len(offered)-1].gives, nil
	}}
	r := splice.New().Both(t.Context(), a, &pipeSide{read: atEnd}, splice.Options{})
	if r.Code != "" || !slices.Equal(offered, want) {
		t.Errorf("ended with %q, %v; buffers of %v, want %v", r.Code, r.Err, offered, want)
	}
}

// TestAnyReader is a property: whatever chunks a source gives, with or without
// the end at once, its bytes arrive.
func TestAnyReader(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 11))
		msg := data(seed, 8*rng.IntN(40_000))
		rest := msg
		a := &pipeSide{read: func(b []byte) (int, error) {
			n := min(len(rest), len(b), rng.IntN(1<<rng.IntN(17)))
			if rng.IntN(2) == 0 {
				n = min(len(rest), len(b))
			}
			copy(b, rest[:n])
			if rest = rest[n:]; len(rest) == 0 && (n == 0 || rng.IntN(2) == 0) {
				return n, io.EOF
			}
			return n, nil
		}}
		b := &pipeSide{read: atEnd}
		r := splice.New().Both(t.Context(), a, b, splice.Options{})
		if r.Code != "" || r.Up != int64(len(msg)) || !bytes.Equal(b.took.Bytes(), msg) {
			t.Fatalf("seed %d: %d of %d bytes, %q, %v", seed, b.took.Len(), len(msg), r.Code, r.Err)
		}
	}
}
