// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// A plan says what both sides of some streams do at the same time. What a reader
// must get follows from what the other side did, as through a plain pipe.

type endKind string

const (
	inOrder endKind = "CloseWrite" // when all is written; Close when the peer has ended
	early   endKind = "Close"      // when all is written and some is read
	aborted endKind = "Reset"      // likewise
)

type sidePlan struct {
	Size    int64 // bytes to write
	Copies  bool  // by CopyFrom and CopyTo instead of Write and Read
	Prompt  bool  // CopyTo a sink that can be written without waiting
	End     endKind
	Code    uint32 // of a reset
	EndRead int64  // what an early end waits for
}

type streamPlan struct {
	ByB   bool // B opens
	First int  // bytes that go with the opening
	Sides [2]sidePlan
}

func (s streamPlan) String() string {
	return fmt.Sprintf("{B opens: %v, first: %d, opener: %+v, acceptor: %+v}", s.ByB, s.First, s.Sides[0], s.Sides[1])
}

func sizes() *rapid.Generator[int64] {
	small, large := rapid.Int64Range(1, 5_000), rapid.Int64Range(200_000, 600_000) // below and above a first window
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 10), small, small, rapid.Int64Range(1, 100_000), large)
}

func sidePlans() *rapid.Generator[sidePlan] {
	return rapid.Custom(func(t *rapid.T) sidePlan {
		return sidePlan{
			Size: sizes().Draw(t, "size"), Copies: rapid.Bool().Draw(t, "copies"),
			Prompt:  rapid.Bool().Draw(t, "prompt"),
			End:     rapid.SampledFrom([]endKind{inOrder, inOrder, early, aborted}).Draw(t, "end"),
			Code:    rapid.Uint32Range(1, 6).Draw(t, "code"),
			EndRead: sizes().Draw(t, "end after reading"),
		}
	})
}

func streamPlans() *rapid.Generator[streamPlan] {
	return rapid.Custom(func(t *rapid.T) streamPlan {
		return streamPlan{
			ByB: rapid.Bool().Draw(t, "B opens"), First: rapid.IntRange(0, 20_000).Draw(t, "first"),
			Sides: [2]sidePlan{sidePlans().Draw(t, "opener"), sidePlans().Draw(t, "acceptor")},
		}
	})
}

// randomPlans is the property: whatever the plans, all bytes are where they
// belong and every end is the one that was meant.
func randomPlans(t *testing.T, pair MakePair) {
	rapid.Check(t, func(rt *rapid.T) {
		plans := rapid.SliceOfN(streamPlans(), 1, 4).Draw(rt, "streams")
		p := pair(t, carrier.Options{Incoming: incoming, Budget: carrier.NewBudget(unread)})
		defer p.B.Close()
		defer p.A.Close()
		for _, err := range carryOut(t.Context(), p, plans) {
			rt.Errorf("%v", err)
		}
		emptied(rt, p)
	})
}

// carryOut runs all streams at once.
func carryOut(ctx context.Context, p Pair, plans []streamPlan) []error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	check := func(what string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	_, overtakes := p.Lacks[ResetInOrder]
	acts := make([][2]*act, len(plans))
	for i, plan := range plans {
		for side := range acts[i] {
			own, other := plan.Sides[side], plan.Sides[1-side]
			own.EndRead = min(own.EndRead, other.Size) // or both might wait for more than will come
			acts[i][side] = newAct(content(2*i+side), own)
		}
		if overtakes { // a reset that comes too early hides the number of the stream
			acts[i][0].wait = acts[i][1].known
		}
	}
	for i, plan := range plans {
		from, to := p.A, p.B
		if plan.ByB {
			from, to = to, from
		}
		all.Go(func() { check(fmt.Sprintf("open of stream %d", i), open(ctx, from, i, plan, acts[i][0])) })
		all.Go(func() { // this need not be stream i
			stream, i, err := accept(ctx, to)
			if err == nil {
				close(acts[i][1].known)
				acts[i][1].run(ctx, stream)
			}
			check("accept", err)
		})
	}
	all.Wait()
	for i, plan := range plans {
		for side, a := range acts[i] {
			check(fmt.Sprintf("stream %d %v, side %d", i, plan, side), a.judge(acts[i][1-side], !overtakes))
		}
	}
	return failed
}

// open sends the number of the stream as its first byte.
func open(ctx context.Context, from carrier.Session, i int, plan streamPlan, a *act) error {
	first := make([]byte, 1+min(plan.First, int(a.plan.Size)))
	first[0] = byte(i)
	a.of.fill(first[1:], 0)
	s, err := from.OpenStream(ctx, first)
	if err != nil {
		return err
	}
	a.wrote.Add(int64(len(first) - 1))
	a.run(ctx, s)
	return nil
}

func accept(ctx context.Context, to carrier.Session) (carrier.Stream, int, error) {
	s, err := to.AcceptStream(ctx)
	if err != nil {
		return nil, 0, err
	}
	var number [1]byte
	s.SetDeadline(time.Now().Add(bound))
	_, err = io.ReadFull(s, number[:])
	return s, int(number[0]), err
}

// act is one side of a stream as it is carried out.
type act struct {
	of   content
	plan sidePlan

	wrote    atomic.Int64
	writeErr error
	got      int64
	readErr  error
	ended    atomic.Bool   // this side has ended the stream before it was told of the end
	enough   chan struct{} // closed when EndRead bytes are read, or all
	known    chan struct{} // closed when the acceptor knows which stream it has
	wait     chan struct{} // nil, or what a reset waits for
	once     sync.Once
}

func newAct(of content, plan sidePlan) *act {
	return &act{of: of, plan: plan, enough: make(chan struct{}), known: make(chan struct{})}
}

func (a *act) run(ctx context.Context, s carrier.Stream) {
	s.SetDeadline(time.Now().Add(bound))
	var reader sync.WaitGroup
	reader.Go(func() {
		a.read(s)
		a.once.Do(func() { close(a.enough) })
	})
	a.write(s)
	switch a.plan.End {
	case inOrder:
		s.CloseWrite()
		reader.Wait()
		s.Close()
	case early:
		<-a.enough
		a.ended.Store(true)
		s.Close()
	case aborted:
		<-a.enough
		if a.wait != nil {
			select {
			case <-a.wait:
			case <-ctx.Done():
			}
		}
		a.ended.Store(true)
		s.Reset(a.plan.Code)
	}
	reader.Wait()
}

// Write is the sink of what this side reads.
func (a *act) Write(b []byte) (int, error) {
	want := sink{of: a.of ^ 1, got: a.got} // the other side's content
	n, err := want.Write(b)
	if a.got += int64(n); a.got >= a.plan.EndRead {
		a.once.Do(func() { close(a.enough) })
	}
	return n, err
}

func (a *act) read(s carrier.Stream) {
	if a.plan.EndRead == 0 {
		a.once.Do(func() { close(a.enough) })
	}
	if a.plan.Copies {
		var dst io.Writer = a
		if a.plan.Prompt {
			dst = &prompt{Writer: a, rng: seeded(uint64(a.of) + 2)}
		}
		var dstErr error
		dstErr, a.readErr = s.CopyTo(dst, nil)
		a.readErr = errors.Join(dstErr, a.readErr)
		if dstErr == nil && errors.Is(a.readErr, io.EOF) {
			a.readErr = io.EOF
		}
		return
	}
	rng, buf := seeded(uint64(a.of)), make([]byte, mostChunk)
	for a.readErr == nil {
		var n int
		n, a.readErr = s.Read(buf[:chunk(rng)])
		if _, wrong := a.Write(buf[:n]); wrong != nil {
			a.readErr = wrong
		}
	}
}

func (a *act) write(s carrier.Stream) {
	src := &source{of: a.of, offset: a.wrote.Load(), size: a.plan.Size, rng: seeded(uint64(a.of) + 1)}
	if a.plan.Copies {
		var srcErr error
		srcErr, a.writeErr = s.CopyFrom(src, func(n int) { a.wrote.Add(int64(n)) })
		if a.writeErr == nil && srcErr != io.EOF {
			a.writeErr = fmt.Errorf("the source ended with %v", srcErr)
		}
		return
	}
	buf := make([]byte, mostChunk)
	for a.writeErr == nil {
		n, err := src.Read(buf)
		if err == io.EOF {
			return
		}
		n, a.writeErr = s.Write(buf[:n])
		a.wrote.Add(int64(n))
	}
}

// judge holds what this side has seen against what the other one did.
func (a *act) judge(peer *act, resetInOrder bool) error {
	var reset *carrier.ResetError
	if err := a.writeErr; err != nil {
		code := uint32(0)
		if peer.plan.End == aborted {
			code = peer.plan.Code
		}
		if !errors.As(err, &reset) || reset.Code != code || peer.plan.End == inOrder {
			return fmt.Errorf("a write failed with %w, and the peer did %s with code %d", err, peer.plan.End, code)
		}
	}
	wrong := func(want string) error {
		return fmt.Errorf("read %d of %d bytes, then %v; want %s", a.got, peer.wrote.Load(), a.readErr, want)
	}
	wrote := peer.wrote.Load()
	switch err := a.readErr; {
	case a.got > wrote:
		return wrong("no more than was written")
	case err == io.EOF:
		if a.got != wrote || peer.plan.End == aborted {
			return wrong("no io.EOF")
		}
	case errors.As(err, &reset):
		if peer.plan.End != aborted || reset.Code != peer.plan.Code || resetInOrder && a.got != wrote {
			return wrong(fmt.Sprintf("%s with code %d", peer.plan.End, peer.plan.Code))
		}
	case !a.ended.Load() || !errors.Is(err, net.ErrClosed):
		return wrong(string(peer.plan.End))
	}
	return nil
}
