// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// stalled is a session whose link does not move: the test has its turn, and sees
// what each write would carry.
type stalled struct {
	t       testing.TB
	s       *muxSession
	l       *lane
	writers sync.WaitGroup
	full    []*muxStream // streams whose writers never run dry
	calm    bool         // nobody talks
}

func stall(t testing.TB) (*stalled, *peer) {
	t.Helper()
	s, p := scripted(t, false, Options{})
	p.settle()
	x := &stalled{t: t, s: s, l: s.lanes[0]}
	release := halt(x.l)
	t.Cleanup(func() {
		release()
		s.Close()
		x.writers.Wait()
	})
	return x, p
}

// stream opens one with plenty of credit, whose writer gives pieces of a size.
func (x *stalled) stream(piece int, bulk bool) *muxStream {
	x.t.Helper()
	return x.opened(bulk, func(st *muxStream) { st.CopyFrom(&pieces{piece}, nil) })
}

// records opens a bulk stream whose writer gives pieces of two whole records each.
func (x *stalled) records() *muxStream {
	x.t.Helper()
	block := make([]byte, sendPayload)
	return x.opened(true, func(st *muxStream) {
		for _, err := st.Write(block); err == nil; _, err = st.Write(block) {
		}
	})
}

func (x *stalled) opened(bulk bool, write func(st *muxStream)) *muxStream {
	x.t.Helper()
	st := open(x.t, x.s, "")
	st.mu.Lock()
	st.limit = 1 << 40
	if bulk {
		st.pace = bulkPace(x.s)
	}
	st.mu.Unlock()
	x.writers.Go(func() { write(st) })
	x.full = append(x.full, st)
	return st
}

// bulkPace is one that stays bulk.
func bulkPace(s *muxSession) pace { return pace{bulk: true, level: paceMost, newest: s.now()} }

// pieces is a source that never ends.
type pieces struct{ size int }

func (p *pieces) Read(b []byte) (int, error) { return min(p.size, len(b)), nil }

// write gives the frames of the next write, after all writers have filled up.
func (x *stalled) write() (frames []frameSeen) {
	x.t.Helper()
	for _, st := range x.full {
		runtest.Eventually(x.t, "the writer has given a piece", func() bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			least := 1
			if st.pace.bulk {
				st.pace = bulkPace(x.s)
				least = mostOut/2 + 1 // else its writer is woken
			}
			return int(st.outs) >= least && st.queued
		})
	}
	for range heartbeatFrames + 1 {
		if !x.calm {
			x.l.busy.note(x.s.now())
		}
	}
	if !x.l.gather() {
		return nil
	}
	var all bytes.Buffer
	for i := range x.l.batch.segs {
		seg := &x.l.batch.segs[i]
		if seg.bytes == nil {
			all.Write(x.l.batch.small[seg.from:seg.to])
		}
		all.Write(seg.bytes)
		if seg.recycle != nil {
			x.s.budget.pools.put(seg.recycle)
		}
		*seg = segment{}
	}
	if n := all.Len(); n > x.l.batch.most+quantum || n != x.l.batch.size {
		x.t.Errorf("one write has %d bytes, counted as %d", n, x.l.batch.size)
	}
	return parsed(x.t, all.Bytes())
}

// warm lets OPENs pass and the writers find their size.
func (x *stalled) warm() {
	x.t.Helper()
	for range 2 * min(len(x.full), 20) {
		x.write()
	}
}

// sizes sums the bytes of DATA by stream.
func sizes(frames []frameSeen) map[uint32]int {
	sum := map[uint32]int{}
	for _, f := range frames {
		if f.kind == frameData {
			sum[f.id] += len(f.payload)
		}
	}
	return sum
}

// halt keeps a connection from sending until it is released.
func halt(l *lane) (release func()) {
	for l.mu.Lock(); l.turn; l.mu.Lock() {
		l.mu.Unlock()
		runtime.Gosched()
	}
	l.turn = true
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.turn = false
		l.mu.Unlock()
		l.kick()
	}
}
