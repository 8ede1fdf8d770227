// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func resetCases() []Case {
	return []Case{
		{Name: "reset", body: reset},
		{Name: "reset wakes the own side", body: resetWakes},
		{Name: "reset codes", body: resetCodes},
		{Name: "reset comes after the bytes", body: resetInOrder},
		{Name: "reset of a blocked writer", body: resetBlockedWriter},
		{Name: "reset after CloseWrite", body: resetAfterCloseWrite},
		{Name: "reset before accept", body: resetBeforeAccept},
		{Name: "reset from both sides", body: resetBothSides},
	}
}

func reset(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		// A reader and a writer that wait, and those who come later, all see the code.
		reads, writes := make(chan error, 1), make(chan error, 1)
		o := own(t)
		o.do("read", func() error { _, err := far.Read(make([]byte, 1)); reads <- err; return nil })
		o.do("write", func() error { writes <- writeBlocks(far); return nil })
		if err := near.Reset(4711); err != nil {
			t.Fatal(err)
		}
		isReset(t, "waiting read", <-reads, 4711)
		isReset(t, "waiting write", <-writes, 4711)
		o.wait()
		_, err := far.Read(make([]byte, 1))
		isReset(t, "later read", err, 4711)
		_, err = far.Write([]byte{1})
		isReset(t, "later write", err, 4711)
		if err := near.Reset(1); err != nil {
			t.Fatalf("a second reset: %v", err)
		}
	})
	emptied(t, p)
}

// writeBlocks writes until it fails.
func writeBlocks(w io.Writer) error {
	for block := make([]byte, 256<<10); ; {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
}

func resetWakes(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, _ carrier.Stream) {
		o := own(t)
		isClosed := func(err error) error {
			if _, byDeadline := p.Lacks[EndsAtOnce]; byDeadline {
				return failsNotEOF(0, err)
			}
			if !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("got %v, want net.ErrClosed", err)
			}
			return nil
		}
		o.do("read", func() error { _, err := near.Read(make([]byte, 1)); return isClosed(err) })
		o.do("write", func() error { return isClosed(writeBlocks(near)) })
		near.Reset(1)
		o.wait()
	})
	emptied(t, p)
}

func resetCodes(t *testing.T, p Pair) {
	for _, code := range []uint32{0, 1, 6, 255, 256, 1 << 24, math.MaxUint32} {
		for _, d := range p.sides() {
			for _, openerResets := range []bool{true, false} {
				near, far := link(t, d.from, d.to)
				if !openerResets {
					near, far = far, near
				}
				near.Reset(code)
				_, err := far.Read(make([]byte, 1))
				isReset(t, d.name, err, code)
				far.Close()
			}
		}
	}
	emptied(t, p)
}

// resetInOrder: a reset keeps its place behind what was written before it,
// while the peer's own writes fail without waiting for anyone to read.
func resetInOrder(t *testing.T, p Pair) {
	p.without(t, ResetInOrder)
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		const size = 100 << 10
		if err := pour(near, 1, size, seeded(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write([]byte("never read")); err != nil {
			t.Fatal(err)
		}
		near.Reset(77)
		isReset(t, "write", writeUntilFails(far), 77)
		got, err := receive(far, 1, seeded(2))
		isReset(t, "read", err, 77)
		if got != size {
			t.Fatalf("%d bytes of %d before the reset", got, size)
		}
	})
	emptied(t, p)
}

// resetBlockedWriter: what a write says it has taken arrives, and nothing more.
func resetBlockedWriter(t *testing.T, p Pair) {
	p.without(t, ResetInOrder)
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		took := make(chan int64, 1)
		o := own(t)
		o.do("write", func() error {
			n, err := near.Write(content(9).first(beyond))
			took <- int64(n)
			if !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("got %v, want net.ErrClosed", err)
			}
			return nil
		})
		if _, err := io.CopyN(&sink{of: 9}, onlyReader{far}, 10_000); err != nil {
			t.Fatal(err)
		}
		near.Reset(78)
		want := <-took
		got := &sink{of: 9, got: 10_000}
		_, err := io.Copy(got, onlyReader{far})
		isReset(t, "read", err, 78)
		if got.got != want {
			t.Fatalf("the write took %d bytes, and %d came", want, got.got)
		}
		o.wait()
	})
	emptied(t, p)
}

// resetAfterCloseWrite: a direction that ended in order stays so.
func resetAfterCloseWrite(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		if err := send(near, 1, 5000, seeded(1)); err != nil {
			t.Fatal(err)
		}
		near.Reset(79)
		isReset(t, "write", writeUntilFails(far), 79)
		if err := wantAll(far, 1, 5000, seeded(2)); err != nil {
			t.Fatal(err)
		}
	})
	emptied(t, p)
}

// resetBeforeAccept: a stream that was given up before anyone took it is still
// handed over, for its first bytes may say whose it was.
func resetBeforeAccept(t *testing.T, p Pair) {
	p.without(t, ResetInOrder)
	for _, d := range p.sides() {
		near, err := d.from.OpenStream(within(t), []byte("a request"))
		if err != nil {
			t.Fatal(err)
		}
		near.Reset(3)
		far, err := d.to.AcceptStream(within(t))
		if err != nil {
			t.Fatal(err)
		}
		far.SetDeadline(time.Now().Add(bound))
		got, err := io.ReadAll(far)
		isReset(t, "read", err, 3)
		if string(got) != "a request" {
			t.Fatalf("got %q", got)
		}
		far.Close()
	}
	emptied(t, p)
}

// resetBothSides: both have ended it themselves, whatever crosses on the way.
func resetBothSides(t *testing.T, p Pair) {
	for i := range 100 {
		near, far := link(t, p.A, p.B)
		if i%2 == 1 {
			_, err := near.Write([]byte("unread"))
			if _, farErr := far.Write([]byte("unread")); err != nil || farErr != nil {
				t.Fatal(err, farErr)
			}
		}
		o := own(t)
		for code, s := range []carrier.Stream{near, far} {
			o.do("reset", func() error { return s.Reset(uint32(code)) })
		}
		o.wait()
		for code, s := range []carrier.Stream{far, near} {
			n, err := s.Read(make([]byte, 1))
			// The peer's reset may have come before the own one.
			var first *carrier.ResetError
			byPeer := errors.As(err, &first) && first.Code == uint32(code)
			if n != 0 || !byPeer && !errors.Is(err, net.ErrClosed) {
				t.Fatalf("read after both sides have reset: %d, %v; want net.ErrClosed or the peer's reset", n, err)
			}
			s.Close()
		}
	}
	emptied(t, p)
}
