// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"
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
	halt(x.l)
	t.Cleanup(func() {
		s.Close()
		x.writers.Wait()
	})
	return x, p
}

// stream opens one with plenty of credit, whose writer gives pieces of a size.
func (x *stalled) stream(piece int, bulk bool) *muxStream {
	x.t.Helper()
	st := open(x.t, x.s, "")
	st.mu.Lock()
	st.limit = 1 << 40
	if bulk {
		st.pace = bulkPace(x.s)
	}
	st.mu.Unlock()
	x.writers.Go(func() { st.CopyFrom(&pieces{piece}, nil) })
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
		eventually(x.t, "the writer has given a piece", func() bool {
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
	eventually(t, "a PONG is due", func() bool {
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

// TestBulkTurns: bulk streams get equal bytes, each at most one record in a write,
// and one of small frames gets its turn in each.
func TestBulkTurns(t *testing.T) {
	x, _ := stall(t)
	var bulk []*muxStream
	for range 3 {
		bulk = append(bulk, x.stream(1<<20, true))
	}
	small := x.stream(100, true)
	x.warm()
	sum := map[uint32]int{}
	const writes = 100
	for range writes {
		frames := x.write()
		for _, st := range append(bulk, small) {
			if n := sizes(frames)[st.id]; n == 0 || n > quantum {
				t.Fatalf("stream %d has %d bytes in a write", st.id, n)
			}
		}
		for id, n := range sizes(frames) {
			sum[id] += n
		}
	}
	for _, st := range bulk {
		if n := sum[st.id]; n != writes*quantum {
			t.Errorf("stream %d sent %d bytes in %d turns", st.id, n, writes)
		}
	}
}

// TestManyBulkStreams: more than fit into a write take turns.
func TestManyBulkStreams(t *testing.T) {
	x, _ := stall(t)
	for range 10 {
		x.stream(1<<20, true)
	}
	sum := map[uint32]int{}
	for range 500 {
		for id, n := range sizes(x.write()) {
			sum[id] += n
		}
	}
	least, most := 1<<40, 0
	for _, n := range sum {
		least, most = min(least, n), max(most, n)
	}
	if len(sum) != 10 || most-least > 2*quantum { // one turn, and the one in which it began

		t.Errorf("%d streams sent between %d and %d bytes", len(sum), least, most)
	}
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
	least, most := 1<<40, 0
	for _, st := range talk {
		least, most = min(least, sum[st.id]), max(most, sum[st.id])
	}
	if most-least > 2*quantum {
		t.Errorf("interactive streams sent between %d and %d bytes", least, most)
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

// TestCalm: where nobody talks writes and turns are larger, and as fair.
func TestCalm(t *testing.T) {
	x, _ := stall(t)
	x.calm = true
	for range 20 {
		x.stream(1<<20, true)
	}
	x.warm()
	sum := map[uint32]int{}
	for range 50 {
		sizes := sizes(x.write())
		for id, n := range sizes {
			sum[id] += n
		}
		if n := len(sizes); n != bulkBatch/(2*quantum) && n != bulkBatch/(2*quantum)+1 {
			t.Fatalf("%d streams in a write", n)
		}
	}
	least, most := 1<<40, 0
	for _, n := range sum {
		least, most = min(least, n), max(most, n)
	}
	if len(sum) != 20 || most-least > 2*quantum {
		t.Errorf("%d streams sent between %d and %d bytes", len(sum), least, most)
	}
	x.stream(100, false) // somebody talks
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
		st := newMuxStream(x.s, x.s.nextID(), x.l, 0, 100)
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

// TestCloseOfStuckLink: a link that does not move keeps nobody: neither the
// writers, nor who closes, nor a goroutine.
func TestCloseOfStuckLink(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	s := session(t, Wrap(near), false, Options{Incoming: 10})
	p := newPeer(t, far)
	p.send("02 000008 00000001 00040000 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(st, &pieces{1 << 20})
		wrote <- err
	}()
	eventually(t, "the link is full", func() bool {
		s.lanes[0].mu.Lock()
		defer s.lanes[0].mu.Unlock()
		return s.lanes[0].waits
	})
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("close took %v", took)
	}
	if err := done(t, "the writer ends", wrote); err == nil {
		t.Error("the writer has no error")
	}
	if n := s.queued.Load(); n != 0 {
		t.Errorf("%d bytes are queued for ever", n)
	}
}

// TestCloseOfFullLink: the same when nobody waits for it yet.
func TestCloseOfFullLink(t *testing.T) {
	noLeak(t)
	near, far := pair(t, true)
	wrapped := Wrap(near)
	s := session(t, wrapped, false, Options{Incoming: 10})
	newPeer(t, far).settle()
	release := halt(s.lanes[0])
	near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	for _, err := near.Write(make([]byte, 1<<20)); err == nil; _, err = near.Write(make([]byte, 1<<20)) {
	}
	near.SetWriteDeadline(time.Time{})
	release()
	s.Close()
	eventually(t, "the connection is closed", func() bool { return s.Info().Connections == 0 })
}

// TestNoWindowAfterEnd: credit that was due when the stream ended is not given.
func TestNoWindowAfterEnd(t *testing.T) {
	s, p := scripted(t, false, Options{})
	s.pinged.Store(int64(time.Hour))
	p.send(open1, data(1, 65536))
	p.settle()
	st := accept(t, s)
	release := halt(s.lanes[0])
	if _, err := io.ReadFull(st, make([]byte, 65536)); err != nil {
		t.Fatal(err)
	}
	p.send("05 000004 00000001 00000001")
	eventually(t, "the stream has ended", func() bool { return s.Info().Streams == 0 })
	release()
	p.quiet()
}

// TestFarewellBehindATurn: who has the turn says the last word and closes.
func TestFarewellBehindATurn(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.settle()
	release := halt(s.lanes[0])
	s.Close()
	p.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := p.frame(); err == nil {
		t.Error("the session speaks although the turn is taken")
	}
	p.conn.SetReadDeadline(time.Now().Add(patience))
	release()
	if frames := p.rest(); len(frames) != 1 || frames[0] != "08 000004 00000000 00000002" {
		t.Errorf("the last words are %q", frames)
	}
}

// TestGivenUp: a write that waits for credit behind other pieces when the stream
// ends has written nothing, not less.
func TestGivenUp(t *testing.T) {
	x, p := stall(t)
	st := open(t, x.s, "")
	st.mu.Lock()
	st.limit, st.pace = 3*sendPayload+10, bulkPace(x.s)
	st.mu.Unlock()
	for range 3 {
		if n, err := st.Write(make([]byte, sendPayload)); n != sendPayload || err != nil {
			t.Fatal(n, err)
		}
	}
	wrote := make(chan int, 1)
	go func() {
		n, _ := st.Write(make([]byte, 100))
		wrote <- n
	}()
	eventually(t, "it waits for credit", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.out.n == 3*sendPayload+100
	})
	p.send("05 000004 00000002 00000007")
	if n := done(t, "write", wrote); n != 0 {
		t.Errorf("it wrote %d bytes", n)
	}
}

// TestStarvedOnce: a peer that wakes a writer again and again for which there is no
// room does not make the list of those that wait grow.
func TestStarvedOnce(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send(open1)
	st := accept(t, s)
	s.queued.Add(mostQueued)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write([]byte("x"))
		wrote <- err
	}()
	eventually(t, "it waits", func() bool { return s.starved.n.Load() > 0 })
	for i := range 100 {
		p.send(numbered(3, 1, uint64(300000+i)))
		p.settle()
	}
	if n := s.starved.n.Load(); n != 1 {
		t.Errorf("%d wait", n)
	}
	s.queued.Add(-mostQueued)
	s.feed()
	if err := done(t, "write", wrote); err != nil {
		t.Error(err)
	}
}

// TestDownloadsDoNotTalk: streams that asked for much are no talk when they end.
func TestDownloadsDoNotTalk(t *testing.T) {
	s, p := scripted(t, false, Options{})
	for range 20 {
		st := open(t, s, "a question")
		st.mu.Lock()
		st.offset = paceBulk
		st.mu.Unlock()
		st.Reset(1)
	}
	p.settle()
	if !s.busy.quiet(s.now()) {
		t.Error("their ends count as talk")
	}
}

// TestShortStreamsTalk: many short streams are something interactive, though none of
// them says much; a few transfers are not.
func TestShortStreamsTalk(t *testing.T) {
	for streams, talk := range map[int]bool{heartbeatFrames: false, 20: true} {
		s, p := scripted(t, false, Options{})
		for range streams {
			st := open(t, s, "a question")
			st.Write([]byte("and one more"))
			st.Reset(1)
		}
		p.settle()
		if quiet := s.busy.quiet(s.now()); quiet == talk {
			t.Errorf("after %d short streams it is quiet: %v", streams, quiet)
		}
	}
}
