// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func endCases() []Case {
	return []Case{
		{Name: "half-close", body: halfClose},
		{Name: "half-close in every order", body: halfCloseOrders},
		{Name: "close with unread bytes", body: closeDelivers},
		{Name: "close while the peer writes", body: closeWhilePeerWrites},
		{Name: "use after close", body: useAfterClose},
	}
}

// halfClose: the direction that is left carries more than any first window.
func halfClose(t *testing.T, p Pair) {
	const size = 1 << 20
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		if _, err := near.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		if err := near.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(far); err != nil || string(got) != "question" {
			t.Fatalf("got %q, %v", got, err)
		}
		if err := errors.Join(wantEnd(far), wantEnd(far)); err != nil {
			t.Fatalf("the end again: %v", err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("a write after CloseWrite: %v, want net.ErrClosed", err)
		}
		if err := near.CloseWrite(); err != nil {
			t.Fatalf("a second CloseWrite: %v", err)
		}
		o := own(t)
		o.do("answer", func() error { return send(far, 1, size, seeded(2)) })
		if err := wantAll(near, 1, size, seeded(3)); err != nil {
			t.Fatalf("the answer: %v", err)
		}
		o.wait()
	})
	emptied(t, p)
}

// step is one thing that is done to a stream.
type step func(near, far carrier.Stream) error

// halfCloseOrders ends both directions in every order, with and without bytes,
// before and after the peer has read the other end.
func halfCloseOrders(t *testing.T, p Pair) {
	closeNear := func(near, _ carrier.Stream) error { return near.CloseWrite() }
	closeFar := func(_, far carrier.Stream) error { return far.CloseWrite() }
	readNear := func(near, _ carrier.Stream) error { return wantAll(near, 2, 5000, seeded(4)) }
	readFar := func(_, far carrier.Stream) error { return wantAll(far, 1, 5000, seeded(5)) }
	writeNear := func(near, _ carrier.Stream) error { return pour(near, 1, 5000, seeded(6)) }
	writeFar := func(_, far carrier.Stream) error { return pour(far, 2, 5000, seeded(7)) }
	atOnce := func(steps ...step) step {
		return func(near, far carrier.Stream) error {
			failed := make(chan error)
			for _, s := range steps {
				go func() { failed <- s(near, far) }()
			}
			var err error
			for range steps {
				err = errors.Join(err, <-failed)
			}
			return err
		}
	}
	for name, steps := range map[string][]step{
		"opener first":              {writeNear, closeNear, readFar, writeFar, closeFar, readNear},
		"acceptor first":            {writeFar, closeFar, readNear, writeNear, closeNear, readFar},
		"both before anyone reads":  {writeNear, writeFar, closeNear, closeFar, readFar, readNear},
		"the other way round":       {writeFar, writeNear, closeFar, closeNear, readNear, readFar},
		"a late word after the end": {writeNear, closeNear, writeFar, readFar, closeFar, readNear},
		"at once":                   {writeNear, writeFar, atOnce(closeNear, closeFar), atOnce(readNear, readFar)},
		"all at once":               {atOnce(chain(writeNear, closeNear), chain(writeFar, closeFar), readNear, readFar)},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, p, func(t *testing.T, near, far carrier.Stream) {
				for i, s := range steps {
					if err := s(near, far); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
				}
				if err := errors.Join(near.Close(), far.Close()); err != nil {
					t.Fatalf("close after both ends: %v", err)
				}
			})
			emptied(t, p)
		})
	}
	t.Run("without a byte", func(t *testing.T) {
		both(t, p, func(t *testing.T, near, far carrier.Stream) {
			if err := errors.Join(near.CloseWrite(), wantEnd(far), far.CloseWrite(), wantEnd(near)); err != nil {
				t.Fatal(err)
			}
		})
		emptied(t, p)
	})
}

// chain runs steps one after the other.
func chain(steps ...step) step {
	return func(near, far carrier.Stream) error {
		for i, s := range steps {
			if err := s(near, far); err != nil {
				return fmt.Errorf("part %d: %w", i, err)
			}
		}
		return nil
	}
}

// closeDelivers: Close loses nothing that was written, even if the peer meets a
// failed write before it reads.
func closeDelivers(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		want := content(3).first(100 << 10)
		if _, err := near.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		isReset(t, "write", writeUntilFails(far), 0)
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(want), err)
		}
	})
	emptied(t, p)
}

func writeUntilFails(w io.Writer) error {
	for block := make([]byte, 1000); ; {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
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
		if err := wantEnd(far); err != nil {
			t.Fatal(err)
		}
	})
	emptied(t, p)
}

func isReset(t tester, what string, err error, code uint32) {
	t.Helper()
	var r *carrier.ResetError
	if !errors.As(err, &r) || r.Code != code {
		t.Fatalf("%s: %v, want a reset with code %d", what, err, code)
	}
}

func useAfterClose(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, _ carrier.Stream) {
		near.Close()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v, want net.ErrClosed", err)
		}
		if _, err := near.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v, want net.ErrClosed", err)
		}
		if srcErr, err := near.CopyFrom(bytes.NewReader([]byte{1}), nil); srcErr != nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("copy from: %v, %v, want net.ErrClosed from the stream", srcErr, err)
		}
		if dstErr, err := near.CopyTo(io.Discard, nil); dstErr != nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("copy to: %v, %v, want net.ErrClosed from the stream", dstErr, err)
		}
		if err := errors.Join(near.Close(), near.Reset(1)); err != nil {
			t.Errorf("a second end: %v", err)
		}
	})
	emptied(t, p)
}
