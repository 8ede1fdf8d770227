// SPDX-License-Identifier: Apache-2.0

// Package carriertest is the contract of carrier.Session as one test body, which
// every carrier and every twin of one must pass, and the twin: a pair of
// sessions in memory for the tests of rooms. It is imported by tests only.
package carriertest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Pair is the two ends of one fresh session and a way to break what is below.
type Pair struct {
	A, B carrier.Session // A dialled
	Cut  func()          // the transport dies without a farewell
	// Lacks names the rules that this carrier cannot keep, each with its reason.
	// The cases about them are skipped, visibly.
	Lacks map[Rule]string

	full bool // play with all of the numbers
}

// number is how far a case goes that goes by numbers.
func (p Pair) number(full, less int) int {
	if p.full {
		return full
	}
	return less
}

// Rule is a part of the contract that a carrier may be known not to keep.
type Rule string

// The rules. Our own mux and the twin keep them all.
const (
	// ResetInOrder: the peer reads what was written before a reset.
	ResetInOrder Rule = "a reset comes after the bytes that were written before it"
	// RefusalMarked: a stream that nobody has seen is reset with carrier.ResetRefused.
	RefusalMarked Rule = "a refused stream can be told from a reset one"
	// GoAwayInPeace: GoAway touches no open stream.
	GoAwayInPeace Rule = "a session goes on after GoAway"
	// OpenAtOnce: OpenStream waits for nothing but its first bytes.
	OpenAtOnce Rule = "an open does not wait for the peer to accept"
	// EndsAtOnce: Reset, Close, CloseWrite and GoAway do not wait for the link.
	EndsAtOnce Rule = "the end of a stream does not wait for a link that does not move"
	// SeveralCallers: a stream may have several readers and writers at a time.
	SeveralCallers Rule = "all who wait on one direction of a stream are woken"
	// PatientSources: a source that is silent holds no buffer.
	PatientSources Rule = "a patient source is asked for bytes before it is given a buffer"
	// PromptSinks: what comes is written by who received it, if that needs no waiting.
	PromptSinks Rule = "a sink that takes bytes without waiting gets them at once"
	// UnreadKnown: Info knows the bytes that nobody has read.
	UnreadKnown Rule = "Info tells the bytes that were not read yet"
)

// without skips the rest of a test of a carrier that lacks the rule.
func (p Pair) without(t *testing.T, r Rule) {
	t.Helper()
	if why, lacks := p.Lacks[r]; lacks {
		t.Skipf("%s: %s", r, why)
	}
}

// MakePair makes a pair whose ends both have the options. What it opens beside
// the sessions it registers with t.Cleanup; the sessions are closed by Run.
type MakePair func(t *testing.T, o carrier.Options) Pair

// bound is how long anything here may take; reaching it is a failure, never a wait.
const bound = 30 * time.Second

// incoming is the bound of streams of the pairs of Run.
const incoming = 4_000

// unread is their bound of unread bytes: no stalled stream of ours reaches half of it.
const unread = 2 << 30

// Case is one part of the contract.
type Case struct {
	Name   string
	body   func(*testing.T, Pair)
	make   func(*testing.T, MakePair) // instead of body: makes pairs of its own
	counts bool                       // it goes by numbers: see RunInFull
}

// Run holds a carrier to its contract. The cases that go by numbers do not go far: 2,400 opens instead of 100,000,
// 24 stalled streams instead of 1,000, 300 idle ones instead of 1,000.
func Run(t *testing.T, pair MakePair) { run(t, pair, false) }

// RunInFull plays the cases that go by numbers, with all of them: minutes with the race detector.
func RunInFull(t *testing.T, pair MakePair) { run(t, pair, true) }

func run(t *testing.T, pair MakePair, full bool) {
	for _, cases := range [][]Case{
		openCases(), endCases(), resetCases(), useCases(), copyCases(), sessionCases(), loadCases(),
	} {
		for _, c := range cases {
			if full && !c.counts {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				noLeak(t)
				if c.make != nil {
					c.make(t, pair)
					return
				}
				p := fresh(t, pair)
				p.full = full
				c.body(t, p)
			})
		}
	}
}

// fresh makes a pair that ends with the test.
func fresh(t *testing.T, pair MakePair) Pair {
	t.Helper()
	p := pair(t, carrier.Options{Incoming: incoming, Budget: carrier.NewBudget(unread)})
	t.Cleanup(func() {
		p.A.Close()
		p.B.Close()
	})
	return p
}

// noLeak fails a test that leaves a goroutine behind. It is called first, so
// that its cleanup comes last.
func noLeak(t *testing.T) {
	t.Helper()
	now := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, now) })
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
	for _, d := range p.sides() {
		t.Run(d.name, func(t *testing.T) {
			near, far := link(t, d.from, d.to)
			defer near.Close()
			defer far.Close()
			body(t, near, far)
		})
	}
}

type openingSide struct {
	name     string
	from, to carrier.Session
}

func (p Pair) sides() []openingSide {
	return []openingSide{{"A opens", p.A, p.B}, {"B opens", p.B, p.A}}
}

// owner runs functions and waits for them, so that none outlives its test.
type owner struct {
	t  tester
	wg sync.WaitGroup
}

// tester is a test, or a try of a property.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func own(t tester) *owner { return &owner{t: t} }

// do runs fn; what it returns fails the test.
func (o *owner) do(what string, fn func() error) {
	o.wg.Go(func() {
		if err := fn(); err != nil {
			o.t.Errorf("%s: %v", what, err)
		}
	})
}

func (o *owner) wait() { o.wg.Wait() }

// eventually waits for what no event announces.
func eventually(t tester, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(bound); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// noMoreGoroutines wants as many as before, at last.
func noMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	eventually(t, "the goroutines of ended streams are gone", func() bool { return runtime.NumGoroutine() <= before })
}

// emptied wants both ends to have forgotten all of their streams.
func emptied(t tester, p Pair) {
	t.Helper()
	eventually(t, "no stream is counted", func() bool { return p.A.Info().Streams+p.B.Info().Streams == 0 })
	eventually(t, "no byte is unread", func() bool { return p.A.Info().Unread+p.B.Info().Unread == 0 })
}
