// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func useCases() []Case {
	return []Case{
		{Name: "deadlines", body: deadlines},
		{Name: "a late deadline", body: staleDeadline},
		{Name: "a write that ran out of time is counted", body: partialWrites},
		{Name: "any method at any time", body: anyMethod},
		{Name: "several readers and writers", body: severalCallers},
		{Name: "random plans", make: randomPlans},
	}
}

func deadlines(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		if dstErr, err := near.CopyTo(io.Discard, nil); dstErr != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("copy to: %v, %v", dstErr, err)
		}
		near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if err := writeBlocks(near); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write: %v", err)
		}
		srcErr, err := near.CopyFrom(bytes.NewReader(make([]byte, 100)), nil)
		if srcErr != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("copy from: %v, %v", srcErr, err)
		}
		// A deadline set from elsewhere wakes a reader that waits.
		near.SetReadDeadline(time.Time{})
		o := own(t)
		woken := make(chan error, 1)
		o.do("read", func() error { _, err := near.Read(make([]byte, 1)); woken <- err; return nil })
		near.SetReadDeadline(time.Unix(1, 0))
		if err := <-woken; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("woken read: %v", err)
		}
		o.wait()
		// Lifted deadlines leave a stream that works.
		near.SetDeadline(time.Now().Add(bound))
		o.do("drain", func() error { _, err := io.Copy(io.Discard, onlyReader{far}); return err })
		if err := send(near, 5, 100_000, seeded(5)); err != nil {
			t.Fatal(err)
		}
		o.wait()
	})
	emptied(t, p)
}

// staleDeadline: one that was lifted before it passed does nothing later.
func staleDeadline(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	defer near.Close()
	defer far.Close()
	near.SetDeadline(time.Now().Add(20 * time.Millisecond))
	near.SetDeadline(time.Time{})
	passed := time.After(40 * time.Millisecond)
	o := own(t)
	o.do("read", func() error {
		_, err := io.ReadFull(near, make([]byte, 5))
		return err
	})
	<-passed
	if _, err := far.Write([]byte("later")); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Write([]byte("later")); err != nil {
		t.Fatal(err)
	}
	o.wait()
}

// partialWrites: whatever a write that failed says it has taken comes, once, and
// in its place. The reader stops and goes, so that writes meet the end of their
// credit at all offsets.
func partialWrites(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		rng, back := seeded(6), &sink{of: 6}
		taken := int64(0)
		for range 6 {
			taken += cram(t, near, 6, taken)
			if _, err := io.CopyN(back, onlyReader{far}, rng.Int64N(taken-back.got+1)); err != nil {
				t.Fatal(err)
			}
		}
		near.SetWriteDeadline(time.Now().Add(bound))
		near.CloseWrite()
		if _, err := io.Copy(back, onlyReader{far}); err != nil || back.got != taken {
			t.Fatalf("the writes took %d bytes, and %d came, then %v", taken, back.got, err)
		}
	})
	emptied(t, p)
}

// cram writes from offset on until the stream takes no byte for a while, and
// gives what it took.
func cram(t *testing.T, s carrier.Stream, of content, offset int64) (taken int64) {
	t.Helper()
	block := make([]byte, 50_000)
	for {
		of.fill(block, offset+taken)
		s.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		n, err := s.Write(block)
		taken += int64(n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a write that nobody reads: %v", err)
		}
		if n == 0 {
			return taken
		}
		if taken > 40*beyond {
			t.Fatalf("a stream that nobody reads took %d bytes", taken)
		}
	}
}

// anyMethod calls everything at the same time; the race detector and the bound judge.
func anyMethod(t *testing.T, p Pair) {
	for i := range 40 {
		near, far := link(t, p.A, p.B)
		o := own(t)
		for side, s := range []carrier.Stream{near, far} {
			last := make(chan struct{})
			reads := []func(){func() { s.CopyTo(io.Discard, nil) }, func() { io.Copy(io.Discard, onlyReader{s}) }}
			writes := []func(){
				func() { s.CopyFrom(&source{of: 7, size: 1 << 40, rng: seeded(1)}, nil) }, func() { writeUntilFails(s) }}
			for name, call := range map[string]func(){
				"read":  reads[i/2%2],
				"write": writes[i/4%2],
				"deadlines": func() {
					s.SetReadDeadline(time.Now().Add(time.Millisecond))
					s.SetWriteDeadline(time.Now().Add(time.Millisecond))
					s.SetDeadline(time.Time{})
				},
				"addresses": func() { s.LocalAddr(); s.RemoteAddr() },
				"info":      func() { p.A.Info(); p.B.Info(); p.A.Traffic(); p.B.Traffic() },
				"end": func() {
					defer close(last)
					if i%3 == 0 {
						s.CloseWrite()
					}
					if (i+side)%2 == 0 {
						s.Reset(uint32(i))
					}
					s.Close()
				},
			} {
				o.do(name, func() error { call(); return nil })
			}
			o.do("end again", func() error { <-last; s.SetDeadline(time.Time{}); s.Reset(1); s.Close(); return nil })
		}
		o.wait()
	}
	emptied(t, p)
}

// severalCallers: all who wait on a stream learn of its end, not one of them.
func severalCallers(t *testing.T, p Pair) {
	p.without(t, SeveralCallers)
	for _, end := range []func(near, far carrier.Stream){
		func(near, _ carrier.Stream) { near.Reset(1) },
		func(_, far carrier.Stream) { far.Reset(1) },
		func(near, _ carrier.Stream) { near.SetDeadline(time.Unix(1, 0)) },
		func(_, _ carrier.Stream) { p.Cut() },
	} {
		near, far := link(t, p.A, p.B)
		o := own(t)
		for range 3 {
			o.do("read", func() error { return failsNotEOF(near.Read(make([]byte, 1))) })
			o.do("copy to", func() error {
				dstErr, err := near.CopyTo(io.Discard, nil)
				return errors.Join(dstErr, failsNotEOF(0, err))
			})
			o.do("write", func() error { return failsNotEOF(0, writeBlocks(near)) })
			o.do("copy from", func() error {
				srcErr, err := near.CopyFrom(&source{of: 7, size: 1 << 40, rng: seeded(1)}, nil)
				return errors.Join(srcErr, failsNotEOF(0, err))
			})
		}
		eventually(t, "they have begun", func() bool { return p.A.Traffic().Sent > beyond/20 })
		end(near, far)
		o.wait()
		near.Close()
		far.Close()
	}
}
