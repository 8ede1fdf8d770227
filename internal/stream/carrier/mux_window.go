// SPDX-License-Identifier: Apache-2.0

package carrier

import "time"

// window decides how much credit the receiver of a stream gives. It reads no
// clock and does no I/O; all offsets count bytes since the stream's begin.
//
//	consumed       received              granted
//	   |--- unread ---|--- peer may send ---|
//	   |------------- at most size ---------|
type window struct {
	granted  int64
	received int64
	consumed int64

	epoch   time.Duration // begin of the epoch, on the session's clock
	epochAt int64         // consumed at that time
	newest  time.Duration // newest read

	// At most mostWindow each; an idle stream is mostly this struct.
	size     int32 // what the peer may have on the way or unread
	least    int32 // where it started
	reserved int32 // of the session's budget of growth
	eager    bool  // it wanted to be larger when it was judged last
	over     bool  // the stream has ended; nothing is reserved any more
}

const (
	shortestTrip = 250 * time.Microsecond // below it scheduling decides, not the path
	// mostOwed is how much a reader may have consumed without telling the peer: the
	// rest of the window is what travels.
	mostOwed   = 512 << 10
	windowIdle = 2 * time.Second // after which a window is as at the start
)

func newWindow(size int64) window {
	return window{size: int32(size), least: int32(size), granted: size}
}

// receive counts n bytes that came; false if the peer had no credit for them.
func (w *window) receive(n int64) bool {
	w.received += n
	return w.received <= w.granted
}

// consume counts n bytes that were read at now, and says how much of the session's
// budget of growth to take (negative: give back). trip is the smallest round trip;
// room what is left of the budget.
func (w *window) consume(n int64, now, trip time.Duration, room int64) (reserve int64) {
	w.consumed += n
	if now-w.newest > windowIdle {
		w.size, w.eager = w.least, false
		w.epoch, w.epochAt = now, w.consumed
	}
	w.newest = now
	trip = max(trip, shortestTrip)
	if since := now - w.epoch; since >= trip && w.owes() >= w.much()/2 {
		w.grow(float64(w.consumed-w.epochAt)/since.Seconds()*trip.Seconds()*2, room)
		w.epoch, w.epochAt = now, w.consumed
	}
	return w.settle()
}

// owes is how much credit the peer could have beyond what it was given.
func (w *window) owes() int64 { return int64(w.size) - (w.granted - w.consumed) }

// much is how much the reader may owe before the peer gets credit. What owes half of
// it may be told together with another stream that owes all: one write for many.
func (w *window) much() int64 { return int64(min(w.size/4, mostOwed)) }

// grant gives the peer all that it can have.
func (w *window) grant() {
	w.granted = max(w.granted, w.consumed+int64(w.size))
}

// grow raises the window towards target, within room.
func (w *window) grow(target float64, room int64) {
	size := int32(min(target, mostWindow, 2*float64(w.size)))
	w.eager = size > w.size
	// What is reserved already covers sizes up to least+reserved.
	size = min(size, w.least+w.reserved+int32(min(max(room, 0), mostWindow)))
	w.size = max(w.size, size)
}

// settle is the change of what the window takes from the budget of growth: the
// size above its start, or credit that was given before the window shrank.
func (w *window) settle() int64 {
	want := int32(max(int64(w.size), w.granted-w.consumed)) - w.least
	if w.over {
		want = 0
	}
	change := want - w.reserved
	w.reserved = want
	return int64(change)
}

// rest shrinks a window whose stream has been idle, without waiting for its next byte.
func (w *window) rest(now time.Duration) (reserve int64) {
	if now-w.newest <= windowIdle || w.size == w.least {
		return 0
	}
	w.size, w.eager = w.least, false
	return w.settle()
}

// drop gives everything back at the stream's end.
func (w *window) drop() (reserve int64) {
	w.over = true
	return w.settle()
}

// trips keeps the smallest round trip of the last one to two minutes.
type trips struct {
	old, young time.Duration // 0: none
	since      time.Duration // begin of young
}

const tripSpan = time.Minute

func (t *trips) add(d, now time.Duration) {
	if age := now - t.since; age > tripSpan {
		t.old, t.young, t.since = t.young, 0, now
		if age > 2*tripSpan {
			t.old = 0
		}
	}
	if t.young == 0 || d < t.young {
		t.young = d
	}
}

func (t *trips) least() time.Duration {
	if t.old != 0 && t.old < t.young {
		return t.old
	}
	return t.young
}

// pace tells interactive streams from bulk by a bucket that fills with what they
// send and leaks all the time.
type pace struct {
	newest time.Duration
	level  int32 // bytes
	bulk   bool
}

const (
	paceLeak = 2 << 20   // bytes per second
	paceBulk = 256 << 10 // above it a stream is bulk, until the bucket is empty
	paceMost = 1 << 20
	// paceLittle is more than frames of somebody who talks leave in the bucket, and
	// less than one block of a transfer does.
	paceLittle = 8 << 10
)

// sent counts n bytes at now.
func (p *pace) sent(n int, now time.Duration) {
	p.leak(now)
	p.level = int32(min(int(p.level)+n, paceMost))
	if p.level > paceBulk {
		p.bulk = true
	}
}

// little says that the stream has carried little lately. A small frame on any other
// one is the rest of a block, or tells a sender that it may go on.
func (p *pace) little(now time.Duration) bool {
	p.leak(now)
	return p.level <= paceLittle
}

func (p *pace) leak(now time.Duration) {
	p.level -= int32(min((now-p.newest).Seconds()*paceLeak, float64(p.level)))
	p.newest = now
	if p.level == 0 {
		p.bulk = false
	}
}
