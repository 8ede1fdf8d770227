// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func sessionCases() []Case {
	return []Case{
		{Name: "session close", body: sessionClose},
		{Name: "orderly session close is no EOF", body: noFalseEOF},
		{Name: "transport death", body: transportDeath},
		{Name: "death after every step", make: deathAfterSteps},
		{Name: "go away", body: goAway},
		{Name: "go away under load", body: goAwayUnderLoad},
		{Name: "traffic", body: traffic},
		{Name: "info", body: info},
	}
}

// failsNotEOF wants an error that is not, and does not wrap, the clean end.
func failsNotEOF(_ int, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.Join(errors.New("an abnormal end looks like a clean one"), err)
	}
	return nil
}

func sessionClose(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	ctx := within(t)
	o := own(t)
	for name, s := range map[string]carrier.Session{"A": p.A, "B": p.B} {
		o.do(name+" accepts", func() error {
			for { // the streams that are being opened below may come
				if _, err := s.AcceptStream(ctx); err != nil {
					return lostNow(ctx, err)
				}
			}
		})
		o.do(name+" opens", func() error {
			_, err := s.OpenStream(ctx, make([]byte, beyond))
			var reset *carrier.ResetError
			if errors.As(err, &reset) && reset.Code == carrier.ResetRefused {
				return nil // it came to a session that was closed, whose connection was not yet
			}
			return lostNow(ctx, err)
		})
	}
	o.do("read", func() error { return failsNotEOF(near.Read(make([]byte, 1))) })
	o.do("copy", func() error {
		dstErr, err := far.CopyTo(io.Discard, nil)
		return errors.Join(dstErr, failsNotEOF(0, err))
	})
	o.do("write", func() error { return failsNotEOF(0, writeBlocks(near)) })
	eventually(t, "the write has begun", func() bool { return p.A.Traffic().Sent > 1000 })
	p.A.Close()
	o.wait()
	ended(t, p, near, far)
	p.A.Close() // again is harmless
	p.B.Close()
	for _, s := range []carrier.Stream{near, far} {
		s.CloseWrite()
		s.Reset(1)
		s.Close()
	}
	p.A.GoAway()
}

func lostNow(ctx context.Context, err error) error {
	if ctx.Err() != nil || !fault.Has(err, fault.CodeSessionLost) {
		return fmt.Errorf("got %v, want session_lost", err)
	}
	return nil
}

// noFalseEOF: a session that its peer ends in order cuts its streams short. That
// must never look like the end of their data.
func noFalseEOF(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	if _, err := far.Write([]byte("half of a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	p.B.Close()
	ended(t, p, near, far)
}

func transportDeath(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	o := own(t)
	o.do("read", func() error { return failsNotEOF(near.Read(make([]byte, 1))) })
	o.do("read", func() error { return failsNotEOF(far.Read(make([]byte, 1))) })
	p.Cut()
	o.wait()
	ended(t, p, near, far)
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

func goAway(t *testing.T, p Pair) {
	p.without(t, GoAwayInPeace)
	near, far := link(t, p.A, p.B)
	defer near.Close()
	defer far.Close()
	p.B.GoAway()
	p.B.GoAway()
	eventually(t, "the peer knows", func() bool {
		s, err := p.A.OpenStream(within(t), nil)
		if err == nil {
			s.Close()
		}
		return fault.Has(err, fault.CodeDraining)
	})
	if err := moveBytes(near, far, 100<<10); err != nil {
		t.Errorf("a stream from before: %v", err)
	}
	back, backFar := link(t, p.B, p.A) // the other direction takes new ones
	defer back.Close()
	defer backFar.Close()
	if err := moveBytes(back, backFar, 100<<10); err != nil {
		t.Error(err)
	}
	p.A.GoAway()
	eventually(t, "the peer knows", func() bool {
		s, err := p.B.OpenStream(within(t), nil)
		if err == nil {
			s.Close()
		}
		return fault.Has(err, fault.CodeDraining)
	})
	if err := moveBytes(back, backFar, 100<<10); err != nil {
		t.Error(err)
	}
	select {
	case <-p.A.Done():
		t.Error("A has ended")
	case <-p.B.Done():
		t.Error("B has ended")
	default:
	}
}

// goAwayUnderLoad: streams are being opened, some carry bytes. Each one that was
// opened works to its end or was never seen.
func goAwayUnderLoad(t *testing.T, p Pair) {
	p.without(t, GoAwayInPeace)
	ctx := within(t)
	o, servers := own(t), own(t)
	var served, worked, refusals int
	var mu sync.Mutex
	accepting, stop := context.WithCancel(ctx)
	defer stop()
	servers.do("accept", func() error {
		for {
			s, err := p.B.AcceptStream(accepting)
			if err != nil {
				return unless(accepting, err)
			}
			served++
			servers.do("echo", func() error { return echo(s) })
		}
	})
	begun := make(chan struct{}, 1_000_000)
	for i := range 8 {
		o.do("load", func() error {
			for {
				s, err := p.A.OpenStream(ctx, []byte("a first word"))
				if fault.Has(err, fault.CodeDraining) {
					return nil
				}
				if err == nil {
					begun <- struct{}{}
					s.SetDeadline(time.Now().Add(bound))
					err = ask(s, int64(1+i*30_000))
				}
				mu.Lock()
				if err == nil {
					worked++
				} else {
					refusals++
					err = p.refused(err)
				}
				mu.Unlock()
				if err != nil {
					return err
				}
			}
		})
	}
	for range 40 {
		select {
		case <-begun:
		case <-ctx.Done():
			t.Fatal("no load")
		}
	}
	p.B.GoAway()
	o.wait()
	stop()
	servers.wait()
	if served != worked {
		t.Errorf("%d streams were served, %d worked, %d were refused", served, worked, refusals)
	}
	emptied(t, p)
}

// unless forgives a failure that is only the end of ctx.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ask sends a request to an echo and wants it back.
func ask(s carrier.Stream, size int64) error {
	defer s.Close()
	var writer sync.WaitGroup
	var wrote error
	writer.Go(func() { wrote = send(s, 8, size, seeded(8)) })
	head := make([]byte, len("a first word"))
	_, err := io.ReadFull(s, head)
	if err == nil {
		err = wantAll(s, 8, size, seeded(9))
	}
	if err != nil {
		s.Reset(1)
	}
	writer.Wait()
	return errors.Join(err, wrote)
}

func echo(s carrier.Stream) error {
	defer s.Close()
	s.SetDeadline(time.Now().Add(bound))
	if _, err := io.Copy(struct{ io.Writer }{s}, onlyReader{s}); err != nil {
		return err
	}
	return s.CloseWrite()
}

func traffic(t *testing.T, p Pair) {
	const size = 300_000
	near, far := link(t, p.A, p.B)
	defer near.Close()
	a, b := p.A.Traffic(), p.B.Traffic()
	if a.LastReceived.IsZero() {
		t.Error("LastReceived is zero; it should be the session's begin")
	}
	sent := time.Now()
	o := own(t)
	o.do("write", func() error { _, err := near.Write(make([]byte, size)); return err })
	if _, err := io.ReadFull(far, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	o.wait()
	// The peer may have read the last bytes before our own write returned.
	eventually(t, "A has sent them", func() bool { return p.A.Traffic().Sent-a.Sent >= size })
	got := p.B.Traffic()
	if moved := got.Received - b.Received; moved < size {
		t.Errorf("B received %d bytes, want at least %d", moved, size)
	}
	if got.LastReceived.Before(sent) || got.LastReceived.After(time.Now()) {
		t.Errorf("B last received at %v, sent at %v", got.LastReceived, sent)
	}
	if p.A.RemoteAddr() == nil || p.B.RemoteAddr() == nil || near.RemoteAddr() == nil || near.LocalAddr() == nil {
		t.Error("no address of the peer")
	}
}

func info(t *testing.T, p Pair) {
	var near, far [3]carrier.Stream
	for i := range near {
		near[i], far[i] = link(t, p.A, p.B)
	}
	for name, s := range map[string]carrier.Session{"A": p.A, "B": p.B} {
		if got := s.Info(); got.Streams != len(near) || got.Connections != 1 {
			t.Errorf("%s: %+v, want 3 streams on 1 connection", name, got)
		}
	}
	if _, err := near[0].Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, lacks := p.Lacks[UnreadKnown]; !lacks {
		eventually(t, "the bytes count as unread", func() bool { return p.B.Info().Unread == 1000 })
		if _, err := io.ReadFull(far[0], make([]byte, 600)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rest counts as unread", func() bool { return p.B.Info().Unread == 400 })
	}
	far[0].Reset(1) // drops the rest
	for i := range near {
		near[i].Close()
		far[i].Close()
	}
	emptied(t, p)
}
