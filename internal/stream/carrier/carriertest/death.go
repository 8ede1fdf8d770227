// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Over makes a pair whose sessions talk over a and b.
type Over func(t *testing.T, a, b net.Conn) Pair

// Deaths cuts a short exchange after each of its bytes, in either direction: at
// every border of a frame and within each. Nobody hangs, nobody takes the half
// for the whole, nothing is left behind.
func Deaths(t *testing.T, over Over) {
	noLeak(t)
	total := [2]int64{}
	run := func(fromA bool, at int64) bool {
		w := NewWire()
		if at >= 0 {
			w.CutAfter(fromA, at)
		}
		p := over(t, w.A, w.B)
		defer p.B.Close()
		defer p.A.Close()
		err := exchange(t.Context(), p, func() bool { return !w.Dead() })
		if err != nil {
			t.Errorf("cut after byte %d of A's (%v): %v", at, fromA, err)
		}
		if at < 0 {
			total = [2]int64{w.Carried(true), w.Carried(false)}
		}
		if !w.Dead() {
			return false
		}
		ended(t, p)
		return true
	}
	run(true, -1)
	if t.Failed() {
		return
	}
	for _, fromA := range []bool{true, false} {
		cuts := 0
		for at := range total[side(fromA)] {
			if run(fromA, at); t.Failed() {
				return
			}
			cuts++
		}
		if cuts < 100 {
			t.Errorf("only %d bytes went from A's (%v) side; the exchange is not what it was", cuts, fromA)
		}
	}
}

// exchange is a dialogue with every kind of frame that an application causes. It
// fails if a step fails for another reason than the end of the session, or if
// the session is whole.
func exchange(ctx context.Context, p Pair, whole func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var both sync.WaitGroup
	var errs [2]error
	both.Go(func() { errs[0] = exchangeA(ctx, p.A) })
	both.Go(func() { errs[1] = exchangeB(ctx, p) })
	both.Wait()
	for _, err := range errs {
		if err != nil && (whole() || !fault.Has(err, fault.CodeSessionLost)) {
			return errors.Join(errs[:]...)
		}
	}
	return nil
}

const (
	questionSize = 40
	answerSize   = 30
)

func exchangeA(ctx context.Context, a carrier.Session) error {
	one, err := a.OpenStream(ctx, content(1).first(10))
	if err != nil {
		return err
	}
	defer one.Close()
	one.SetDeadline(time.Now().Add(bound))
	rest := source{of: 1, offset: 10, size: questionSize, rng: seeded(1)}
	if srcErr, err := one.CopyFrom(&rest, nil); err != nil || srcErr != io.EOF {
		return errors.Join(srcErr, err)
	}
	if err := errors.Join(one.CloseWrite(), wantDialogue(one, 2, answerSize)); err != nil {
		return err
	}
	two, err := a.OpenStream(ctx, content(3).first(10))
	if err != nil {
		return err
	}
	two.SetDeadline(time.Now().Add(bound))
	if _, err := io.ReadFull(two, make([]byte, 2)); err != nil {
		return honest(err)
	}
	two.Reset(9)
	three, err := a.AcceptStream(ctx)
	if err != nil {
		return err
	}
	three.SetDeadline(time.Now().Add(bound))
	defer three.Close()
	if err := wantDialogue(three, 4, questionSize); err != nil {
		return err
	}
	return pour(three, 5, answerSize, seeded(5))
}

func exchangeB(ctx context.Context, p Pair) error {
	one, err := p.B.AcceptStream(ctx)
	if err != nil {
		return err
	}
	defer one.Close()
	one.SetDeadline(time.Now().Add(bound))
	if err := wantDialogue(one, 1, questionSize); err != nil {
		return err
	}
	if err := send(one, 2, answerSize, seeded(2)); err != nil {
		return err
	}
	two, err := p.B.AcceptStream(ctx)
	if err != nil {
		return err
	}
	two.SetDeadline(time.Now().Add(bound))
	if _, err := two.Write([]byte("ok")); err != nil {
		return err
	}
	_, overtakes := p.Lacks[ResetInOrder]
	var reset *carrier.ResetError
	got, err := receive(two, 3, seeded(3))
	switch {
	case !errors.As(err, &reset):
		return honest(err)
	case reset.Code != 9 || got != 10 && !overtakes:
		return fmt.Errorf("%d bytes, then %v; want 10 and code 9", got, err)
	}
	if _, lacks := p.Lacks[GoAwayInPeace]; !lacks {
		p.B.GoAway()
	}
	three, err := p.B.OpenStream(ctx, content(4).first(questionSize))
	if err != nil {
		return err
	}
	three.SetDeadline(time.Now().Add(bound))
	if err := three.CloseWrite(); err != nil {
		return err
	}
	defer three.Close()
	return wantDialogue(three, 5, answerSize)
}

// wantDialogue is wantAll for a session that may end in between.
func wantDialogue(r io.Reader, of content, size int64) error {
	got, err := receive(r, of, seeded(uint64(of)))
	if err == io.EOF && got == size {
		return nil
	}
	return fmt.Errorf("%d bytes of %d: %w", got, size, honest(err))
}

// honest keeps an error that says that a stream was cut short. A clean end
// where there was none becomes an error that nobody forgives.
func honest(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the end of the session looks like the end of the stream")
	}
	return err
}

// deathAfterSteps is the same for a pair that has no bytes below it: it is cut
// after each step of a dialogue.
func deathAfterSteps(t *testing.T, pair MakePair) {
	for cut := 0; ; cut++ {
		p := fresh(t, pair)
		d := &dialogue{ctx: within(t), p: p}
		steps := d.steps()
		for i, step := range steps[:cut] {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		p.Cut()
		ended(t, p)
		if err := d.afterwards(); err != nil {
			t.Fatalf("cut after step %d: %v", cut, err)
		}
		p.A.Close()
		p.B.Close()
		if cut == len(steps) {
			return
		}
	}
}

// dialogue is a stream from A to B, step by step.
type dialogue struct {
	ctx          context.Context
	p            Pair
	a, b         carrier.Stream
	aRead        int64
	aEnd, bEnd   bool // CloseWrite was called
	bRead        int64
	aSent, bSent int64
}

const stepSize = 1000

func (d *dialogue) steps() []func() error {
	return []func() error{
		func() (err error) { d.aSent = 10; d.a, err = d.p.A.OpenStream(d.ctx, content(1).first(10)); return err },
		func() (err error) { d.b, err = d.p.B.AcceptStream(d.ctx); return err },
		func() error { return d.read(d.b, 1, &d.bRead, 4) },
		func() error { return d.write(d.a, 1, &d.aSent) },
		func() error { return d.write(d.b, 2, &d.bSent) },
		func() error { return d.read(d.a, 2, &d.aRead, stepSize/2) },
		func() error { d.bEnd = true; return d.b.CloseWrite() },
		func() error { return d.read(d.a, 2, &d.aRead, stepSize/2) },
		func() error { return wantEnd(d.a) },
		func() error { return d.write(d.a, 1, &d.aSent) },
		func() error { d.aEnd = true; return d.a.CloseWrite() },
		func() error { return d.read(d.b, 1, &d.bRead, stepSize) },
	}
}

func (d *dialogue) write(s carrier.Stream, of content, sent *int64) error {
	b := make([]byte, stepSize)
	of.fill(b, *sent)
	*sent += stepSize
	_, err := s.Write(b)
	return err
}

func (d *dialogue) read(s carrier.Stream, of content, got *int64, n int64) error {
	s.SetDeadline(time.Now().Add(bound))
	to := &sink{of: of, got: *got}
	*got += n
	_, err := io.CopyN(to, onlyReader{s}, n)
	return err
}

// afterwards reads what is left: no more than was sent, and io.EOF only after all of it.
func (d *dialogue) afterwards() error {
	check := func(s carrier.Stream, of content, from, sent int64, over bool) error {
		if s == nil {
			return nil
		}
		s.SetDeadline(time.Now().Add(bound))
		to := &sink{of: of, got: from}
		switch _, err := io.Copy(to, onlyReader{s}); {
		case to.got > sent:
			return fmt.Errorf("%d bytes of %d", to.got, sent)
		case err == nil && (to.got < sent || !over):
			return fmt.Errorf("io.EOF after %d bytes of %d, ended: %v", to.got, sent, over)
		case err != nil && !fault.Has(err, fault.CodeSessionLost):
			return err
		}
		return nil
	}
	return errors.Join(check(d.a, 2, d.aRead, d.bSent, d.bEnd), check(d.b, 1, d.bRead, d.aSent, d.aEnd))
}
