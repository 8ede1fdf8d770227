// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestControlFirst: what the session says comes before what streams say, and
// WINDOW of streams in between.
func TestControlFirst(t *testing.T) {
	x, p := stall(t)
	x.stream(100, false)
	p.send(open1, data(1, 65536), numbered(6, 0, 7), numbered(6, 0, 8))
	far := accept(t, x.s)
	if _, err := io.ReadFull(far, make([]byte, 65536)); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "a PONG is due", func() bool {
		x.l.mu.Lock()
		defer x.l.mu.Unlock()
		return x.l.due && x.l.pong[7] == 8
	})
	x.s.GoAway()
	var got []string
	for _, f := range x.write() {
		got = append(got, fmt.Sprint(f.kind, "/", f.id))
	}
	if want := []string{"8/0", "7/0", "3/1", "2/2", "1/2"}; !slices.Equal(got, want) {
		t.Errorf("the write has %q, want %q", got, want)
	}
}

// TestBulkTurns: beside somebody who talks bulk streams get equal bytes, each one
// record in a write, and one of small frames gets its turn in each.
func TestBulkTurns(t *testing.T) {
	x, _ := stall(t)
	var bulk []*muxStream
	for range 3 {
		bulk = append(bulk, x.records())
	}
	small := x.stream(100, true)
	x.warm()
	for range 100 {
		frames := x.write()
		turns := turnsOf(frames)
		for _, st := range bulk {
			if got := turns[st.id]; !slices.Equal(got, []int{quantum}) {
				t.Fatalf("stream %d has the frames %v in a write", st.id, got)
			}
		}
		// Its writer has given more than half of what may wait, or all.
		if got := turns[small.id]; len(got) <= mostOut/2 || len(got) > mostOut || slices.Max(got) != 100 {
			t.Fatalf("the stream of small frames has the frames %v in a write", got)
		}
		if n := len(frames); n != len(bulk)+len(turns[small.id]) {
			t.Fatalf("%d frames in a write, %v", n, turns)
		}
	}
}

// TestManyBulkStreams: more than fit into a write take turns. At no time one of them is
// ahead by more than a turn, which is 16 KiB of a write of 64 KiB while somebody talks,
// and 32 KiB of one of 256 KiB where nobody does.
func TestManyBulkStreams(t *testing.T) {
	for _, c := range []struct {
		calm            bool
		streams, writes int
		turn, batch     int
		whole           bool // pieces begin and end with a record
	}{
		{false, 10, 500, quantum, batchSize, false},
		{false, 5, 50, quantum, batchSize, true},
		{true, 20, 50, 2 * quantum, bulkBatch, false},
		{true, 9, 90, 2 * quantum, bulkBatch, true},
	} {
		t.Run(fmt.Sprintf("calm %v, whole records %v", c.calm, c.whole), func(t *testing.T) {
			x, _ := stall(t)
			x.calm = c.calm
			for range c.streams {
				if c.whole {
					x.records()
				} else {
					x.stream(1<<20, true)
				}
			}
			x.warm()
			each, sum := c.batch/(c.turn+headerSize), map[uint32]int{}
			for range c.writes {
				turns := sizes(x.write())
				if len(turns) != each || x.l.batch.most != c.batch || x.l.batch.quantum != c.turn {
					t.Fatalf("%d streams in a write of %d with turns of %d", len(turns), x.l.batch.most, x.l.batch.quantum)
				}
				for id, n := range turns {
					if sum[id] += n; n != c.turn {
						t.Fatalf("stream %d has %d bytes in its turn", id, n)
					}
				}
				if ahead := lead(x.full, sum); ahead > c.turn {
					t.Fatalf("a stream is %d bytes ahead", ahead)
				}
			}
			if ahead := lead(x.full, sum); ahead != 0 {
				t.Errorf("after whole rounds a stream is %d bytes ahead", ahead)
			}
		})
	}
}

// lead is how many bytes one of the streams is ahead of another.
func lead(streams []*muxStream, sum map[uint32]int) int {
	least, most := 1<<40, 0
	for _, st := range streams {
		least, most = min(least, sum[st.id]), max(most, sum[st.id])
	}
	return most - least
}

// turnsOf are the sizes of the DATA frames by stream.
func turnsOf(frames []frameSeen) map[uint32][]int {
	turns := map[uint32][]int{}
	for _, f := range frames {
		if f.kind == frameData {
			turns[f.id] = append(turns[f.id], len(f.payload))
		}
	}
	return turns
}

// TestInteractiveFirst: interactive streams come before bulk ones, in turn, and
// leave them half of a write.
func TestInteractiveFirst(t *testing.T) {
	x, _ := stall(t)
	bulk := x.stream(1<<20, true)
	var talk []*muxStream
	for range 6 {
		st := x.stream(1<<20, false)
		talk = append(talk, st)
	}
	x.warm()
	sum := map[uint32]int{}
	for range 60 {
		for _, st := range talk { // a source that never ends would make them bulk
			st.mu.Lock()
			st.pace = pace{newest: x.s.now()}
			st.mu.Unlock()
		}
		frames := x.write()
		kinds := sizes(frames)
		if frames[0].id == bulk.id {
			t.Fatalf("the bulk stream comes first: %v", kinds)
		}
		total := 0
		for _, n := range kinds {
			total += n
		}
		if half := total - kinds[bulk.id]; half > batchSize/2+quantum || kinds[bulk.id] == 0 {
			t.Fatalf("interactive streams have %d bytes of a write, the bulk one %d", half, kinds[bulk.id])
		}
		for id, n := range kinds {
			sum[id] += n
		}
	}
	if ahead := lead(talk, sum); ahead > quantum {
		t.Errorf("an interactive stream is %d bytes ahead", ahead)
	}
}

// TestSmallFramesLeaveHalf: interactive streams with many small frames do not
// keep bulk from being sent.
func TestSmallFramesLeaveHalf(t *testing.T) {
	x, _ := stall(t)
	bulk := x.stream(1<<20, true)
	for range 200 {
		x.stream(1000, false)
	}
	x.warm()
	for range 10 {
		kinds := sizes(x.write())
		talk := -kinds[bulk.id]
		for _, n := range kinds {
			talk += n
		}
		if kinds[bulk.id] < quantum/2 || talk < batchSize/2-quantum {
			t.Fatalf("interactive streams have %d bytes of a write, the bulk one %d", talk, kinds[bulk.id])
		}
	}
}

// TestSmallBesideLarge: an interactive stream of small frames is in every write,
// whatever else there is.
func TestSmallBesideLarge(t *testing.T) {
	x, _ := stall(t)
	for i := range 12 {
		x.stream(1<<20, i%2 == 0)
	}
	small := x.stream(10, false)
	x.warm()
	skipped, longest := 0, 0
	for range 60 {
		if sizes(x.write())[small.id] == 0 {
			skipped++
		} else {
			skipped = 0
		}
		longest = max(longest, skipped)
	}
	if longest > 6 { // as many as wait before it, two in a write
		t.Errorf("the stream of small frames waits for %d writes", longest)
	}
}

// TestAlone: a stream that nobody competes with fills a write with whole chunks.
func TestAlone(t *testing.T) {
	for calm, bounds := range map[bool][2]int{false: {batchSize - quantum, batchSize}, true: {batchSize, bulkBatch}} {
		x, _ := stall(t)
		x.calm = calm
		st := x.stream(1<<20, true)
		x.warm()
		for range 5 {
			if n := sizes(x.write())[st.id]; n <= bounds[0] || n > bounds[1] {
				t.Fatalf("calm %v: %d bytes in a write", calm, n)
			}
		}
	}
}

// TestTalkEndsCalm: the first word of somebody makes writes and turns small at once.
func TestTalkEndsCalm(t *testing.T) {
	x, _ := stall(t)
	x.calm = true
	for range 20 {
		x.stream(1<<20, true)
	}
	x.warm()
	if x.write(); x.l.batch.most != bulkBatch || x.l.batch.quantum != 2*quantum {
		t.Errorf("nobody waits, and there are writes of %d and turns of %d", x.l.batch.most, x.l.batch.quantum)
	}
	x.stream(100, false)
	if x.write(); x.l.batch.most != batchSize || x.l.batch.quantum != quantum {
		t.Errorf("an interactive stream waits for writes of %d and turns of %d", x.l.batch.most, x.l.batch.quantum)
	}
}

// TestManyControls: more WINDOWs than fit into a write come in the next ones,
// each once.
func TestManyControls(t *testing.T) {
	x, _ := stall(t)
	const streams = 1000
	for range streams {
		st := newMuxStream(x.s, x.s.nextIDLocked(), x.l, 0, 100)
		x.s.streams[st.id] = st
		st.windowDue = true
		st.sendControl((*lane).kick)
	}
	seen := map[uint32]int{}
	for {
		frames := x.write()
		if len(frames) == 0 {
			break
		}
		for _, f := range frames {
			if f.kind != frameWindow {
				t.Fatalf("type %d", f.kind)
			}
			seen[f.id]++
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("WINDOW %d came %d times", id, n)
		}
	}
	if len(seen) != streams {
		t.Errorf("%d of %d came", len(seen), streams)
	}
}
