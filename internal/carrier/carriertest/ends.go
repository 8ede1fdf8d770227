// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
)

func reset(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		// A reader and a writer that wait, and those who come later, all see the code.
		reads, writes := make(chan error, 1), make(chan error, 1)
		o := own(t)
		o.do("read", func() error { _, err := far.Read(make([]byte, 1)); reads <- err; return nil })
		o.do("write", func() error {
			for block := make([]byte, 1<<20); ; {
				if _, err := far.Write(block); err != nil {
					writes <- err
					return nil
				}
			}
		})
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
}

func resetWakes(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, _ carrier.Stream) {
		o := own(t)
		o.do("read", func() error { return failsNotEOF(near.Read(make([]byte, 1))) })
		o.do("write", func() error {
			for block := make([]byte, 1<<20); ; {
				if _, err := near.Write(block); err != nil {
					return failsNotEOF(0, err)
				}
			}
		})
		near.Reset(1)
		o.wait()
	})
}

// failsNotEOF wants an error that is not, and does not wrap, the clean end.
func failsNotEOF(_ int, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.Join(errors.New("an abnormal end looks like a clean one"), err)
	}
	return nil
}

func deadlines(t *testing.T, p Pair) {
	both(t, p, func(t *testing.T, near, far carrier.Stream) {
		near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		var err error
		for block := make([]byte, 1<<20); err == nil; {
			_, err = near.Write(block)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write: %v", err)
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
		o.do("drain", func() error { _, err := io.Copy(io.Discard, far); return err })
		if err := writeChunks(near, make([]byte, 1<<20), rand.New(rand.NewPCG(5, 5))); err != nil {
			t.Fatal(err)
		}
		o.wait()
	})
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
		if err := errors.Join(near.Close(), near.Reset(1)); err != nil {
			t.Errorf("a second end: %v", err)
		}
	})
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
	near, far := link(t, p.A, p.B) // the session itself is untouched
	near.Close()
	far.Close()
}

// ended wants everything of a pair to have ended, without a clean EOF.
func ended(t *testing.T, p Pair, streams ...carrier.Stream) {
	t.Helper()
	ctx := within(t)
	for name, s := range map[string]carrier.Session{"A": p.A, "B": p.B} {
		select {
		case <-s.Done():
		case <-ctx.Done():
			t.Fatalf("%s is not done", name)
		}
		if _, err := s.OpenStream(ctx, nil); !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("%s opens: %v", name, err)
		}
		if _, err := s.AcceptStream(ctx); !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("%s accepts: %v", name, err)
		}
	}
	for i, s := range streams {
		n, err := io.Copy(io.Discard, onlyReader{s})
		if !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("stream %d reads %d bytes and %v, want session_lost", i, n, err)
		}
		if _, err := s.Write([]byte{1}); !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("stream %d writes: %v, want session_lost", i, err)
		}
	}
}

// onlyReader gives io.Copy no other way than Read, and does not hide a wrapped io.EOF.
type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(b []byte) (int, error) { return o.r.Read(b) }
