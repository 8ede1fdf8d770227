// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"container/heap"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

const unbounded = mostGrowth

func TestWindowSteps(t *testing.T) {
	type read struct {
		comes          int64 // received before it
		n              int64
		at, trip       time.Duration
		room           int64
		grant, reserve int64
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		least int64
		reads []read
	}{
		"nothing before a quarter is used": {1000, []read{
			{comes: 249, n: 249, at: ms}, {comes: 1, n: 1, at: 2 * ms, grant: 250},
		}},
		"nothing before 512 KiB of a large one": {mostWindow, []read{
			{comes: 512<<10 - 1, n: 512<<10 - 1, at: ms}, {comes: 1, n: 1, at: 2 * ms, grant: 512 << 10},
		}},
		"everything at once": {1000, []read{{comes: 1000, n: 1000, at: ms, trip: 10 * ms, room: unbounded, grant: 1000}}},
		"twice when the peer waits and the reader is fast": {1000, []read{
			{comes: 1000, n: 1000, at: 10 * ms, trip: 10 * ms, room: unbounded, grant: 2000, reserve: 1000},
			{comes: 2000, n: 2000, at: 20 * ms, trip: 10 * ms, room: unbounded, grant: 4000, reserve: 2000},
		}},
		"as much as the reader reads in two round trips": {1000, []read{
			{comes: 1000, n: 1000, at: 16 * ms, trip: 10 * ms, room: unbounded, grant: 1250, reserve: 250},
		}},
		"not for a slow reader": {1000, []read{
			{comes: 1000, n: 1000, at: 20 * ms, trip: 10 * ms, room: unbounded, grant: 1000},
			{comes: 1000, n: 1000, at: 60 * ms, trip: 10 * ms, room: unbounded, grant: 1000},
		}},
		"not for a slow sender": {1000, []read{
			{comes: 400, n: 400, at: 10 * ms, trip: 10 * ms, room: unbounded, grant: 400},
			{comes: 400, n: 400, at: 20 * ms, trip: 10 * ms, room: unbounded, grant: 400},
		}},
		"not without room": {1000, []read{{comes: 1000, n: 1000, at: 10 * ms, trip: 10 * ms, grant: 1000}}},
		"not beyond the room": {1000, []read{
			{comes: 1000, n: 1000, at: 10 * ms, trip: 10 * ms, room: 300, grant: 1300, reserve: 300},
			{comes: 1300, n: 1300, at: 20 * ms, trip: 10 * ms, room: 0, grant: 1300},
			{comes: 1300, n: 1300, at: 30 * ms, trip: 10 * ms, room: -5000, grant: 1300},
		}},
		"not beyond the most": {mostWindow - 10, []read{
			{comes: mostWindow - 10, n: mostWindow - 10, at: ms, trip: ms, room: unbounded, grant: mostWindow, reserve: 10},
		}},
		"a shorter round trip than scheduling takes": {1000, []read{
			{comes: 1000, n: 1000, at: ms / 5, trip: ms / 20, room: unbounded, grant: 1000}, // too early to judge
			{comes: 1000, n: 1000, at: ms, trip: ms / 20, room: unbounded, grant: 1000},     // 2 MB/s is less than 1000 in 250 us
			{comes: 1000, n: 1000, at: ms + ms/4, trip: ms / 20, room: unbounded, grant: 2000, reserve: 1000},
		}},
		"back to the start after idleness": {1000, []read{
			{comes: 1000, n: 1000, at: 10 * ms, trip: 10 * ms, room: unbounded, grant: 2000, reserve: 1000},
			{comes: 400, n: 400, at: 2011 * ms, trip: 10 * ms, room: unbounded, reserve: -400}, // 1600 are granted still
			{comes: 600, n: 600, at: 2012 * ms, trip: 10 * ms, room: unbounded, reserve: -600},
			{comes: 500, n: 500, at: 2013 * ms, trip: 10 * ms, room: unbounded, grant: 500},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(c.least)
			for i, r := range c.reads {
				if !w.receive(r.comes) {
					t.Fatalf("read %d: the peer has no credit for %d", i, r.comes)
				}
				if grant, reserve := readFrom(&w, r.n, r.at, r.trip, r.room); grant != r.grant || reserve != r.reserve {
					t.Fatalf("read %d: grant %d, reserve %d; want %d, %d", i, grant, reserve, r.grant, r.reserve)
				}
			}
			if reserve := w.drop(); reserve != -(max(int64(w.size), w.granted-w.consumed) - c.least) {
				t.Errorf("drop gives %d back", reserve)
			}
			if w.drop() != 0 || w.reserved != 0 {
				t.Error("the second drop gives something back")
			}
		})
	}
}

// readFrom reads, and gives the peer credit when much is owed.
func readFrom(w *window, n int64, now, trip time.Duration, room int64) (grant, reserve int64) {
	reserve = w.consume(n, now, trip, room)
	if w.owes() < w.much() {
		return 0, reserve
	}
	before := w.granted
	w.grant()
	return w.granted - before, reserve
}

func TestWindowRest(t *testing.T) {
	grown := func() window {
		w := newWindow(1000)
		w.receive(1000)
		readFrom(&w, 1000, time.Second, time.Second, unbounded)
		if w.reserved != 1000 {
			t.Fatalf("%+v", w)
		}
		return w
	}
	w := grown()
	if n := w.rest(time.Second + windowIdle); n != 0 {
		t.Errorf("it gives %d back too early", n)
	}
	if n := w.rest(time.Second + windowIdle + 1); n != 0 { // its 2000 are granted
		t.Errorf("it gives %d back although they may still be sent", n)
	}
	w.receive(2000)
	if grant, reserve := readFrom(&w, 2000, 10*time.Second, time.Second, unbounded); grant != 1000 || reserve != -1000 {
		t.Errorf("grant %d, reserve %d", grant, reserve)
	}
	if n := w.rest(time.Hour); n != 0 {
		t.Errorf("a window at its start gives %d back", n)
	}
}

func TestWindowCredit(t *testing.T) {
	w := newWindow(10)
	if !w.receive(4) || !w.receive(6) || w.receive(1) {
		t.Error("10 bytes of credit are not 10 bytes")
	}
	if w := newWindow(0); w.receive(1) {
		t.Error("a byte without credit")
	}
}

// path is what lies between a sender that always has something to send and a
// reader, in simulated time.
type path struct {
	rate   float64 // of the link, bytes per second
	trip   time.Duration
	reader float64                            // bytes per second
	pause  func(read int64) (d time.Duration) // of the reader after so many bytes; nil: none
	room   func() int64
	check  func(w *window, grant int64)
}

type happening struct {
	at    time.Duration
	kind  byte // arrives, is read, is granted
	bytes int64
}

type agenda []happening

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func took(bytes int64, rate float64) time.Duration {
	return max(1, time.Duration(float64(bytes)/rate*float64(time.Second)))
}

// run simulates until the end or so many steps, and gives the rate of its last half.
func (p path) run(t rapid.TB, w *window, end time.Duration, steps int) (rate float64) {
	const piece = 16 << 10
	var (
		todo                     agenda
		now, linkFree            time.Duration
		sent, unread             int64
		limit                    = w.granted
		reading                  bool
		halfAt                   time.Duration
		half, reserved, granted0 int64
	)
	granted0 = w.granted
	for step := 0; step < steps && now < end; step++ {
		for sent < limit {
			n := min(piece, limit-sent)
			sent += n
			linkFree = max(now, linkFree) + took(n, p.rate)
			heap.Push(&todo, happening{linkFree + p.trip/2, 'a', n})
		}
		if len(todo) == 0 {
			t.Fatalf("nothing happens any more after %v: %+v", now, *w)
		}
		next := heap.Pop(&todo).(happening)
		now = next.at
		switch next.kind {
		case 'a':
			if !w.receive(next.bytes) {
				t.Fatalf("the sender has no credit for what it was granted: %+v", *w)
			}
			unread += next.bytes
		case 'r':
			reading = false
			unread -= next.bytes
			grant, reserve := readFrom(w, next.bytes, now, p.trip, p.room())
			reserved += reserve
			if reserved != int64(w.reserved) || reserved < 0 {
				t.Fatalf("%d were reserved in all, the window says %d", reserved, w.reserved)
			}
			if grant < 0 || w.granted != granted0+grant || grant > 0 && w.granted-w.consumed != int64(w.size) || w.size > mostWindow || w.size < w.least {
				t.Fatalf("granted %d beyond %d: %+v", grant, granted0, *w)
			}
			granted0 = w.granted
			if grant > 0 {
				heap.Push(&todo, happening{now + p.trip/2, 'g', w.granted})
			}
			if p.check != nil {
				p.check(w, grant)
			}
		case 'g':
			limit = max(limit, next.bytes)
		}
		if !reading && unread > 0 {
			reading = true
			n := min(unread, 2*piece)
			wait := took(n, p.reader)
			if p.pause != nil {
				wait += p.pause(w.consumed)
			}
			heap.Push(&todo, happening{now + wait, 'r', n})
		}
		if halfAt == 0 && now > end/2 {
			halfAt, half = now, w.consumed
		}
	}
	if reserved += w.drop(); reserved != 0 {
		t.Fatalf("after the end %d are reserved", reserved)
	}
	if halfAt == 0 || now <= halfAt {
		return 0
	}
	return float64(w.consumed-half) / (now - halfAt).Seconds()
}

// TestWindowAlways: whatever the path and the reader, credit never goes back or
// beyond the size, the budget is respected, and everything is given back.
func TestWindowAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.Int64Range(0, 2*mostWindow).Draw(t, "budget")
		p := path{
			rate:   float64(rapid.Int64Range(1e5, 4e9).Draw(t, "rate")),
			trip:   time.Duration(rapid.Int64Range(10_000, 400_000_000).Draw(t, "round trip")),
			reader: float64(rapid.Int64Range(1e5, 8e9).Draw(t, "reader")),
		}
		pauses := rapid.SliceOfN(rapid.Int64Range(0, 5e9), 0, 5).Draw(t, "pauses")
		p.pause = func(read int64) time.Duration {
			if i := int(read >> 22); read%(1<<22) < 32<<10 && i < len(pauses) {
				return time.Duration(pauses[i])
			}
			return 0
		}
		w := newWindow(rapid.SampledFrom([]int64{1, 16 << 10, 64 << 10, 256 << 10}).Draw(t, "first"))
		p.room = func() int64 { return budget - int64(w.reserved) }
		most := int64(w.least)
		p.check = func(w *window, _ int64) {
			most = max(most, int64(w.size))
			if int64(w.reserved) > budget {
				t.Fatalf("%d of %d are reserved", w.reserved, budget)
			}
		}
		p.run(t, &w, 20*time.Second, 3000)
	})
}

// TestWindowFollowsThePath: fast readers get what the path needs, slow ones and
// those on short paths keep their start.
func TestWindowFollowsThePath(t *testing.T) {
	all := func() int64 { return unbounded }
	for _, c := range []struct {
		what        string
		path        path
		size        int64   // at most, at the end
		least, rate float64 // at least
	}{
		{"far and fast", path{rate: 2e9, trip: 50 * time.Millisecond, reader: 4e9}, mostWindow, mostWindow, 0.75 * mostWindow / 0.05},
		{"far, the link is the limit", path{rate: 125e6, trip: 50 * time.Millisecond, reader: 4e9}, mostWindow, 8 << 20, 0.95 * 125e6},
		{"near and fast", path{rate: 1.25e9, trip: time.Millisecond, reader: 4e9}, 4 << 20, 1 << 20, 0.95 * 1.25e9},
		{"far, a slow reader", path{rate: 1e9, trip: 50 * time.Millisecond, reader: 2.5e6}, firstWindow, firstWindow, 0.95 * 2.5e6},
		{"far, a reader of 50 MB/s", path{rate: 1e9, trip: 50 * time.Millisecond, reader: 50e6}, 8 << 20, 2 << 20, 0.95 * 50e6},
		{"a short path", path{rate: 4e9, trip: 50 * time.Microsecond, reader: 500e6}, firstWindow, firstWindow, 0.95 * 500e6},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWindow(firstWindow)
			c.path.room = all
			rate := c.path.run(t, &w, 3*time.Second, 2e6)
			if int64(w.size) > c.size || float64(w.size) < c.least || rate < c.rate {
				t.Errorf("a window of %d KiB, want %.0f to %d; %.1f MB/s, want %.1f", w.size>>10, c.least/1024, c.size>>10, rate/1e6, c.rate/1e6)
			}
			t.Logf("%d KiB, %.1f MB/s", w.size>>10, rate/1e6)
		})
	}
}

// TestSlowReadersNeverGrow: a reader that takes less than half of the first
// window in a round trip keeps it, however the bytes come.
func TestSlowReadersNeverGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trip := time.Duration(rapid.Int64Range(10_000, 200_000_000).Draw(t, "round trip"))
		most := firstWindow / 2 / max(trip, shortestTrip).Seconds()
		p := path{
			rate:   float64(rapid.Int64Range(1e6, 4e9).Draw(t, "rate")),
			trip:   trip,
			reader: most * rapid.Float64Range(0.05, 0.95).Draw(t, "reader"),
			room:   func() int64 { return unbounded },
			check: func(w *window, _ int64) {
				if w.size != firstWindow {
					t.Fatalf("the window is %d KiB", w.size>>10)
				}
			},
		}
		w := newWindow(firstWindow)
		p.run(t, &w, 20*time.Second, 3000)
	})
}

// TestFirst is the ladder of first windows under pressure.
func TestFirst(t *testing.T) {
	for _, c := range []struct{ used, most, want int64 }{
		{0, 0, 0}, {0, 1, 256 << 10}, {1, 1, 0}, {0, 4, 256 << 10}, {2, 4, 256 << 10}, {3, 4, 64 << 10}, {4, 4, 0}, {5, 4, 0},
		{500, 1000, 256 << 10}, {501, 1000, 64 << 10}, {750, 1000, 64 << 10}, {751, 1000, 16 << 10}, {999, 1000, 16 << 10},
		{1000, 1000, 0}, {3, 7, 256 << 10}, {4, 7, 64 << 10}, {6, 7, 16 << 10}, {7, 8, 16 << 10}, {6, 8, 64 << 10}, {5, 8, 64 << 10},
	} {
		if got := first(c.used, c.most); got != c.want {
			t.Errorf("first(%d, %d) is %d, want %d", c.used, c.most, got, c.want)
		}
	}
}

// TestGrowthBudget: the windows of a session together stay within their budget,
// and it is whole again when the streams have ended.
func TestGrowthBudget(t *testing.T) {
	s, p := scripted(t, false, Options{})
	s.least.Store(int64(time.Hour)) // a reader of anything is fast
	s.growth.Store(mostGrowth - 300_000)
	var streams []*muxStream
	for id := 1; id <= 3; id += 2 {
		p.send(opens(id, firstWindow))
		for range 4 {
			p.send(data(uint32(id), 65536))
		}
		p.settle()
		streams = append(streams, accept(t, s))
	}
	for i, want := range []int64{firstWindow, 300_000 - firstWindow} {
		st := streams[i]
		st.mu.Lock()
		st.window.epoch, st.window.epochAt = s.now()-time.Hour, -1<<30 // it reads fast
		st.mu.Unlock()
		st.Read(make([]byte, 262144))
		if got := int64(st.window.size) - firstWindow; got != want {
			t.Errorf("stream %d grows by %d, want %d", st.id, got, want)
		}
		p.want(numbered(3, st.id, uint64(2*firstWindow+want)))
	}
	if got := s.growth.Load(); got != mostGrowth {
		t.Errorf("the growth is %d, want %d", got, mostGrowth)
	}
	streams[0].Close()
	p.send("05 000004 00000003 00000001")
	p.settle()
	if got := s.growth.Load(); got != mostGrowth-300_000 {
		t.Errorf("after the end of the streams the growth is %d, want %d", got, mostGrowth-300_000)
	}
}

// An idle stream is mostly its struct. The allocator rounds it up to a size class: one more word
// here is 32 bytes of each stream.
func TestAStreamFillsItsSizeClass(t *testing.T) {
	if n := unsafe.Sizeof(muxStream{}); n > 416 {
		t.Errorf("a stream takes %d bytes; the size class is 416", n)
	}
}
