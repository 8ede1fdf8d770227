// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Slow halts the link below a session: nothing that the application calls waits
// for it longer than its deadline, and when the link moves again everything has
// kept its place.
func Slow(t *testing.T, over Over) {
	for name, body := range map[string]func(*testing.T, Pair, *Wire){
		"deadlines":       haltedDeadlines,
		"ends of A":       func(t *testing.T, p Pair, w *Wire) { haltedEnds(t, p, w, p.sides()[0]) },
		"ends of B":       func(t *testing.T, p Pair, w *Wire) { haltedEnds(t, p, w, p.sides()[1]) },
		"streams of A":    func(t *testing.T, p Pair, w *Wire) { haltedStreams(t, p, w, p.sides()[0]) },
		"streams of B":    func(t *testing.T, p Pair, w *Wire) { haltedStreams(t, p, w, p.sides()[1]) },
		"close":           haltedClose,
		"death meanwhile": haltedDeath,
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			w := NewWire()
			p := over(t, w.A, w.B)
			t.Cleanup(func() {
				p.A.Close()
				p.B.Close()
			})
			body(t, p, w)
		})
	}
}

func haltedDeadlines(t *testing.T, p Pair, w *Wire) {
	for _, d := range p.sides() {
		near, far := link(t, d.from, d.to)
		w.Halt(true)
		taken := cram(t, near, 1, 0)
		near.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		srcErr, err := near.CopyFrom(&source{of: 2, size: 1 << 20, rng: seeded(1)}, nil)
		if srcErr != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("copy from: %v, %v", srcErr, err)
		}
		near.SetDeadline(time.Now().Add(bound))
		w.Halt(false)
		near.CloseWrite()
		if err := wantAll(far, 1, taken, seeded(1)); err != nil {
			t.Fatal(err)
		}
		near.Close()
		far.Close()
	}
	emptied(t, p)
}

// haltedEnds: each end is called while nothing moves, and comes in its place.
func haltedEnds(t *testing.T, p Pair, w *Wire, d openingSide) {
	p.without(t, EndsAtOnce)
	var near, far [4]carrier.Stream
	var taken [4]int64
	for i := range near {
		near[i], far[i] = link(t, d.from, d.to)
	}
	w.Halt(true)
	for i, s := range near {
		taken[i] = cram(t, s, content(i), 0)
	}
	if err := errors.Join(near[0].Reset(5), near[1].CloseWrite(), near[2].Close()); err != nil {
		t.Error(err)
	}
	d.from.GoAway()
	w.Halt(false)
	near[3].SetWriteDeadline(time.Time{})
	rest := make([]byte, 1000)
	content(3).fill(rest, taken[3])
	o := own(t)
	o.do("write on", func() error { _, err := near[3].Write(rest); return errors.Join(err, near[3].CloseWrite()) })
	got, err := receive(far[0], 0, seeded(1))
	isReset(t, "read", err, 5)
	if got != taken[0] {
		t.Errorf("%d bytes of %d before the reset", got, taken[0])
	}
	if err := errors.Join(wantAll(far[1], 1, taken[1], seeded(2)), wantAll(far[2], 2, taken[2], seeded(3)),
		wantAll(far[3], 3, taken[3]+1000, seeded(4))); err != nil {
		t.Error(err)
	}
	isReset(t, "write", writeUntilFails(far[2]), 0)
	o.wait()
	eventually(t, "the peer drains", func() bool {
		s, err := d.to.OpenStream(within(t), nil)
		if err == nil {
			s.Close()
		}
		return fault.Has(err, fault.CodeDraining)
	})
	for i := range near {
		near[i].Close()
		far[i].Close()
	}
	emptied(t, p)
}

// haltedStreams: neither Close nor Reset of a stream waits for the link, and what Close
// ends arrives as a whole. A goroutine for each stream is all that may wait.
func haltedStreams(t *testing.T, p Pair, w *Wire, d openingSide) {
	const n = 150 // more frames than any queue takes
	var near, far [n]carrier.Stream
	var taken [n]int64
	for i := range near {
		near[i], far[i] = link(t, d.from, d.to)
	}
	w.Halt(true)
	for i, s := range near {
		taken[i] = cram(t, s, content(i), 0)
	}
	before, begin := runtime.NumGoroutine(), time.Now()
	for i, s := range near {
		end := s.Close
		if i%3 == 0 {
			end = func() error { return s.Reset(uint32(i)) }
		}
		if err := errors.Join(end(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begin); took > atOnce {
		t.Errorf("the ends took %v", took)
	}
	if more := runtime.NumGoroutine() - before; more > n {
		t.Errorf("%d goroutines wait for the ends of %d streams", more, n)
	}
	w.Halt(false)
	for i, s := range far {
		if i%3 == 0 {
			_, err := receive(s, content(i), seeded(1))
			isReset(t, "read", err, uint32(i))
			continue
		}
		if err := wantAll(s, content(i), taken[i], seeded(1)); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
		isReset(t, "write", writeUntilFails(s), 0)
	}
	for _, s := range far {
		s.Close()
	}
	emptied(t, p)
}

// haltedClose: the end of a session waits for nobody.
func haltedClose(t *testing.T, p Pair, w *Wire) {
	near, far := link(t, p.A, p.B)
	w.Halt(true)
	cram(t, near, 1, 0)
	cram(t, far, 2, 0)
	begin := time.Now()
	p.A.Close()
	if took := time.Since(begin); took > atOnce {
		t.Errorf("Close took %v", took)
	}
	<-p.A.Done()
	w.Halt(false)
	ended(t, p, near, far)
}

// atOnce is what a call may take that waits for nothing, on a machine that is busy.
const atOnce = 2 * time.Second

// haltedDeath: a link that dies while it does not move wakes everyone.
func haltedDeath(t *testing.T, p Pair, w *Wire) {
	near, far := link(t, p.A, p.B)
	w.Halt(true)
	cram(t, near, 1, 0)
	near.SetDeadline(time.Now().Add(bound))
	o := own(t)
	for _, s := range []carrier.Stream{near, far} {
		o.do("read", func() error { return failsNotEOF(s.Read(make([]byte, 1))) })
	}
	o.do("write", func() error { return failsNotEOF(0, writeBlocks(near)) })
	w.Cut()
	o.wait()
	ended(t, p, near)
}

// Stuck is Slow for a real transport whose far end is not read at all: session
// is over one that swallows some bytes and then none.
func Stuck(t *testing.T, session func(t *testing.T) carrier.Session) {
	noLeak(t)
	s := session(t)
	t.Cleanup(func() { s.Close() })
	var streams []carrier.Stream
	for i := range 64 { // more than the buffers of a kernel
		stream, err := s.OpenStream(within(t), fmt.Appendf(nil, "stream %d", i))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	for i, stream := range streams {
		cram(t, stream, content(i), 0)
	}
	o := own(t)
	for _, stream := range streams[:8] {
		stream.SetDeadline(time.Time{})
		o.do("write", func() error { return failsNotEOF(0, writeBlocks(stream)) })
	}
	timed := func(what string, call func() error) {
		begin := time.Now()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begin); took > atOnce {
			t.Errorf("%s took %v", what, took)
		}
	}
	for i, stream := range streams[:48] {
		timed([]string{"Close", "Reset", "CloseWrite"}[i%3], []func() error{
			stream.Close, func() error { return stream.Reset(1) }, stream.CloseWrite}[i%3])
	}
	timed("GoAway", func() error { s.GoAway(); return nil })
	timed("Close of the session", s.Close)
	o.wait()
}
