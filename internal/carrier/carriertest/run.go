// SPDX-License-Identifier: Apache-2.0

// Package carriertest is the contract of carrier.Session as one test body, which
// every carrier and every twin of one must pass. It is imported by tests only.
package carriertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/carrier"
)

// Pair is the two ends of one fresh session and a way to break what is below.
type Pair struct {
	A, B carrier.Session
	Cut  func() // the transport dies without a farewell
}

// MakePair makes a pair; it registers its own cleanup.
type MakePair func(t *testing.T) Pair

// bound is how long anything here may take; reaching it is a failure, never a wait.
const bound = 20 * time.Second

// Run holds a carrier to its contract.
func Run(t *testing.T, pair MakePair) {
	for _, c := range []struct {
		name string
		body func(*testing.T, Pair)
	}{
		{"open both ways", openBothWays},
		{"bytes", bytesIdentical},
		{"half-close", halfClose},
		{"close with unread bytes", closeDelivers},
		{"close while the peer writes", closeWhilePeerWrites},
		{"reset", reset},
		{"reset wakes the own side", resetWakes},
		{"deadlines", deadlines},
		{"use after close", useAfterClose},
		{"accept gives up", acceptGivesUp},
		{"session close", sessionClose},
		{"orderly session close is no EOF", noFalseEOF},
		{"transport death", transportDeath},
		{"stalled streams", stalled},
		{"open and close 10,000", churn},
		{"1,000 at once", many},
		{"traffic", traffic},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			p := pair(t)
			defer p.B.Close()
			defer p.A.Close()
			c.body(t, p)
		})
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}

// link opens a stream from one session and accepts it at the other.
func link(t *testing.T, from, to carrier.Session) (near, far carrier.Stream) {
	t.Helper()
	ctx := within(t)
	near, err := from.OpenStream(ctx, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	far, err = to.AcceptStream(ctx)
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	for _, s := range []carrier.Stream{near, far} {
		s.SetDeadline(time.Now().Add(bound))
	}
	return near, far
}

// both runs body with the opener on either side.
func both(t *testing.T, p Pair, body func(t *testing.T, near, far carrier.Stream)) {
	t.Helper()
	for _, d := range []struct {
		name     string
		from, to carrier.Session
	}{{"A opens", p.A, p.B}, {"B opens", p.B, p.A}} {
		t.Run(d.name, func(t *testing.T) {
			near, far := link(t, d.from, d.to)
			defer near.Close()
			defer far.Close()
			body(t, near, far)
		})
	}
}

// owner runs functions and waits for them, so that none outlives its test.
type owner struct {
	t  *testing.T
	wg sync.WaitGroup
}

func own(t *testing.T) *owner {
	o := &owner{t: t}
	return o
}

// do runs fn; what it returns fails the test.
func (o *owner) do(what string, fn func() error) {
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		if err := fn(); err != nil {
			o.t.Errorf("%s: %v", what, err)
		}
	}()
}

func (o *owner) wait() { o.wg.Wait() }

func openBothWays(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		for _, d := range []struct{ w, r carrier.Stream }{{near, far}, {far, near}} {
			if _, err := d.w.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(d.r, got); err != nil || string(got) != "hello" {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}

// bytesIdentical is a property: whatever the chunks of writer and reader, the
// bytes are those of a plain buffer, and then comes io.EOF.
func bytesIdentical(t *testing.T, p Pair) {
	const rounds = 8
	for round := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(round, 7))
		want := random(rng, rng.IntN(1<<20))
		near, far := link(t, p.A, p.B)
		if round%2 == 1 {
			near, far = far, near
		}
		o := own(t)
		o.do("write", func() error { return writeChunks(near, want, rand.New(rand.NewPCG(round, 8))) })
		got, err := readChunks(far, rand.New(rand.NewPCG(round, 9)))
		o.wait()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes of %d, %v", round, len(got), len(want), err)
		}
		near.Close()
		far.Close()
	}
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// chunk is a size that is mostly small and sometimes large.
func chunk(rng *rand.Rand) int { return 1 + rng.IntN(1<<rng.IntN(18)) }

func writeChunks(w carrier.Stream, b []byte, rng *rand.Rand) error {
	for len(b) > 0 {
		n := min(len(b), chunk(rng))
		if wrote, err := w.Write(b[:n]); err != nil || wrote != n {
			return errors.Join(err, w.CloseWrite())
		}
		b = b[n:]
	}
	return w.CloseWrite()
}

// readChunks reads until io.EOF itself.
func readChunks(r io.Reader, rng *rand.Rand) ([]byte, error) {
	var got []byte
	buf := make([]byte, 1<<18)
	for {
		n, err := r.Read(buf[:chunk(rng)])
		got = append(got, buf[:n]...)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
	}
}

func halfClose(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		for _, d := range []struct{ first, second carrier.Stream }{{near, far}} {
			if _, err := d.first.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			if err := d.first.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(d.second); err != nil || string(got) != "question" {
				t.Fatalf("got %q, %v", got, err)
			}
			if _, err := d.first.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Fatalf("a write after CloseWrite: %v, want net.ErrClosed", err)
			}
			// The other direction still carries more than any first window.
			want := random(rand.New(rand.NewPCG(1, 1)), 2<<20)
			o := own(t)
			o.do("answer", func() error { return writeChunks(d.second, want, rand.New(rand.NewPCG(1, 2))) })
			got, err := io.ReadAll(d.first)
			o.wait()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("the answer has %d bytes of %d: %v", len(got), len(want), err)
			}
		}
	})
	t.Run("the acceptor first", func(t *testing.T) {
		near, far := link(t, p.A, p.B)
		defer near.Close()
		if err := far.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("got %v, want io.EOF", err)
		}
		o := own(t)
		o.do("write", func() error { return writeChunks(near, make([]byte, 1<<20), rand.New(rand.NewPCG(2, 2))) })
		n, err := io.Copy(io.Discard, far)
		o.wait()
		if n != 1<<20 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
}

// closeDelivers: Close loses nothing that was written, even if the peer meets a
// failed write before it reads.
func closeDelivers(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		want := random(rand.New(rand.NewPCG(3, 3)), 100<<10)
		if _, err := near.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		for failed := error(nil); failed == nil; {
			_, failed = far.Write(make([]byte, 1000))
		}
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(want), err)
		}
	})
}

// closeWhilePeerWrites: a peer that goes on writing learns of the end instead
// of waiting for a window that nobody opens again.
func closeWhilePeerWrites(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		failed := make(chan error, 1)
		o := own(t)
		o.do("write", func() error {
			block := make([]byte, 64<<10)
			for {
				if _, err := far.Write(block); err != nil {
					failed <- err
					return nil
				}
			}
		})
		if _, err := io.ReadFull(near, make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		err := <-failed
		o.wait()
		isReset(t, "write", err, 0)
	})
}

func isReset(t *testing.T, what string, err error, code uint32) {
	t.Helper()
	var r *carrier.ResetError
	if !errors.As(err, &r) || r.Code != code {
		t.Fatalf("%s: %v, want a reset with code %d", what, err, code)
	}
}
