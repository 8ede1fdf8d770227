// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func openCases() []Case {
	return []Case{
		{Name: "open both ways", body: openBothWays},
		{Name: "first bytes", body: firstBytes},
		{Name: "first bytes beyond any window", body: firstBytesWait},
		{Name: "first bytes are given up with the context", body: firstBytesGivenUp},
		{Name: "the context ends with the last first byte", body: firstBytesRace, counts: true},
		{Name: "open does not wait for accept", body: openAhead},
		{Name: "accept gives up", body: acceptGivesUp},
		{Name: "bound of streams", make: incomingBound},
	}
}

func openBothWays(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		for _, d := range []struct{ w, r carrier.Stream }{{near, far}, {far, near}} {
			if n, err := d.w.Write(nil); n != 0 || err != nil {
				t.Fatalf("a write of nothing: %d, %v", n, err)
			}
			if n, err := d.w.Write([]byte("hello")); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(d.r, got); err != nil || string(got) != "hello" {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}

// firstBytes: they come before all others, and belong to the caller again once
// OpenStream has returned.
func firstBytes(t *testing.T, p Pair) {
	ctx := within(t)
	for _, d := range p.sides() {
		for i, size := range []int{0, 1, 7, 8 << 10, 100 << 10} {
			of := content(i)
			first := of.first(size)
			near, err := d.from.OpenStream(ctx, first)
			if err != nil {
				t.Fatal(err)
			}
			clear(first)
			near.SetDeadline(time.Now().Add(bound))
			more := []byte("and more")
			if _, err := near.Write(more); err != nil {
				t.Fatal(err)
			}
			clear(more)
			if err := near.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			far, err := d.to.AcceptStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			far.SetDeadline(time.Now().Add(bound))
			got, err := io.ReadAll(far)
			if err != nil || !bytes.Equal(got, append(of.first(size), "and more"...)) {
				t.Fatalf("%s with %d bytes: got %d, %v", d.name, size, len(got), err)
			}
			near.Close()
			far.Close()
		}
	}
	emptied(t, p)
}

// firstBytesWait: first bytes that no window holds are sent as a Write would
// send them: OpenStream returns when the peer has read enough of them.
func firstBytesWait(t *testing.T, p Pair) {
	const size = beyond
	ctx := within(t)
	for _, d := range p.sides() {
		t.Run(d.name, func(t *testing.T) {
			of, o := content(1), own(t)
			o.do("open", func() error {
				near, err := d.from.OpenStream(ctx, of.first(size))
				if err != nil {
					return err
				}
				defer near.Close()
				near.SetDeadline(time.Now().Add(bound))
				if err := near.CloseWrite(); err != nil {
					return err
				}
				return wantEnd(near)
			})
			far, err := d.to.AcceptStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			far.SetDeadline(time.Now().Add(bound))
			if err := wantAll(far, of, size, seeded(1)); err != nil {
				t.Error(err)
			}
			far.Close()
			o.wait()
		})
	}
}

// wantEnd wants io.EOF and no byte before it.
func wantEnd(r io.Reader) error {
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("read %d bytes, %v; want io.EOF", n, err)
	}
	return nil
}

// firstBytesGivenUp: the peer does not take the half for the whole.
func firstBytesGivenUp(t *testing.T, p Pair) {
	for _, d := range p.sides() {
		t.Run(d.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(within(t))
			of, o := content(2), own(t)
			o.do("open", func() error {
				_, err := d.from.OpenStream(ctx, of.first(beyond))
				if !errors.Is(err, context.Canceled) {
					return fmt.Errorf("got %v, want context.Canceled", err)
				}
				return nil
			})
			far, err := d.to.AcceptStream(within(t))
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			far.SetDeadline(time.Now().Add(bound))
			if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			cancel()
			o.wait()
			var reset *carrier.ResetError
			if n, err := io.Copy(io.Discard, onlyReader{far}); !errors.As(err, &reset) {
				t.Errorf("%d bytes of a stream that was given up, then %v; want a reset", n, err)
			}
		})
	}
	emptied(t, p)
}

// firstBytesRace: a context that ends while the last of the first bytes leave
// gives an error, or a stream that works.
func firstBytesRace(t *testing.T, p Pair) {
	const size = 300_000
	rounds := p.number(200, 50)
	first := content(3).first(size)
	for i := range rounds {
		ctx, cancel := context.WithCancel(within(t))
		o := own(t)
		o.do("read", func() error {
			defer cancel()
			far, err := p.B.AcceptStream(within(t))
			if err != nil {
				return err
			}
			defer far.Close()
			far.SetDeadline(time.Now().Add(bound))
			// Somewhere here the opener has credit for all of it.
			if _, err := io.CopyN(io.Discard, onlyReader{far}, int64(size-262_144+i*1_000)); err != nil {
				return err
			}
			cancel()
			_, err = io.Copy(io.Discard, onlyReader{far})
			var reset *carrier.ResetError
			if errors.As(err, &reset) {
				return nil
			}
			return err
		})
		near, err := p.A.OpenStream(ctx, first)
		switch {
		case err == nil:
			if err := near.CloseWrite(); err != nil {
				t.Errorf("round %d: a stream that was opened: %v", i, err)
			}
			near.Close()
		case !errors.Is(err, context.Canceled):
			t.Errorf("round %d: %v, want context.Canceled", i, err)
		}
		o.wait()
		if t.Failed() {
			return
		}
	}
	emptied(t, p)
}

// openAhead opens as many streams as the bound allows, or 1,000, before the
// first is accepted.
func openAhead(t *testing.T, p Pair) {
	p.without(t, OpenAtOnce)
	const streams = 1_000
	ctx := within(t)
	for _, d := range p.sides() {
		near := make([]carrier.Stream, streams)
		for i := range near {
			var err error
			if near[i], err = d.from.OpenStream(ctx, fmt.Appendf(nil, "stream %d", i)); err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
		}
		for i := range near {
			far, err := d.to.AcceptStream(ctx)
			if err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			far.SetDeadline(time.Now().Add(bound))
			near[i].Close()
			if got, err := io.ReadAll(far); err != nil || string(got) != fmt.Sprintf("stream %d", i) {
				t.Fatalf("stream %d: %q, %v", i, got, err)
			}
			far.Close()
		}
	}
	emptied(t, p)
}

func acceptGivesUp(t *testing.T, p Pair) {
	ctx, cancel := context.WithCancel(within(t))
	o := own(t)
	o.do("accept", func() error {
		if _, err := p.A.AcceptStream(ctx); !errors.Is(err, context.Canceled) {
			return errors.Join(errors.New("want context.Canceled"), err)
		}
		return nil
	})
	cancel()
	o.wait()
	if _, err := p.A.OpenStream(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	if _, err := p.A.OpenStream(ctx, []byte("first")); !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	near, far := link(t, p.A, p.B) // the session itself is untouched
	near.Close()
	far.Close()
	emptied(t, p)
}

// incomingBound: a peer that opens more streams than it may has the surplus
// reset unseen; the others go on, and an end makes room for another one.
func incomingBound(t *testing.T, pair MakePair) {
	for _, aOpens := range []bool{true, false} {
		p := pair(t, carrier.Options{Incoming: 2})
		defer p.A.Close()
		defer p.B.Close()
		from, to := p.A, p.B
		if !aOpens {
			from, to = to, from
		}
		var near, far []carrier.Stream
		for range 2 {
			n, f := link(t, from, to)
			near, far = append(near, n), append(far, f)
		}
		surplus, err := from.OpenStream(within(t), []byte("one too many"))
		if err == nil {
			surplus.SetDeadline(time.Now().Add(bound))
			_, err = surplus.Read(make([]byte, 1))
		}
		if err := p.refused(err); err != nil {
			t.Fatalf("the third stream: %v", err)
		}
		for i := range near {
			if err := moveBytes(near[i], far[i], 10<<10); err != nil {
				t.Fatal(err)
			}
		}
		near[0].Close()
		far[0].Close()
		eventually(t, "the ended stream is forgotten", func() bool { return to.Info().Streams == 1 })
		again, farAgain := link(t, from, to) // which also shows that the surplus was not seen
		if err := moveBytes(again, farAgain, 10<<10); err != nil {
			t.Fatal(err)
		}
	}
}

// refused wants the mark of a stream that nobody has seen.
func (p Pair) refused(err error) error {
	var reset *carrier.ResetError
	_, unmarked := p.Lacks[RefusalMarked]
	if errors.As(err, &reset) && (reset.Code == carrier.ResetRefused || unmarked) {
		return nil
	}
	return fmt.Errorf("%v; want a reset with code %d", err, carrier.ResetRefused)
}

// moveBytes carries size bytes each way, one way at a time.
func moveBytes(near, far carrier.Stream, size int64) error {
	for i, d := range []struct{ w, r carrier.Stream }{{near, far}, {far, near}} {
		of, wrote := content(40+i), make(chan error, 1)
		go func() { wrote <- pour(d.w, of, size, seeded(uint64(i))) }()
		_, err := io.CopyBuffer(&sink{of: of}, io.LimitReader(onlyReader{d.r}, size), make([]byte, 32<<10))
		if err != nil {
			d.r.Reset(1) // wakes the writer
		}
		if err := errors.Join(err, <-wrote); err != nil {
			return fmt.Errorf("beside other streams: %w", err)
		}
	}
	return nil
}

// onlyReader gives io.Copy no other way than Read, and does not hide a wrapped io.EOF.
type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(b []byte) (int, error) { return o.r.Read(b) }
