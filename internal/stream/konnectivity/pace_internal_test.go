// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// piece is what the reference's agent sends at a time.
const piece = 4 << 10

// reader takes a number of pieces each time, and waits in between; it stops when its connection ends.
func reader(g *sync.WaitGroup, f *flow, pieces int, every time.Duration) {
	g.Go(func() {
		b := make([]byte, piece)
		for {
			for range pieces {
				if _, err := f.Read(b); err != nil {
					return
				}
			}
			time.Sleep(every)
		}
	})
}

// flooded is a tunnel whose agent sends for its connections in turn as fast as it may, and for a bystander behind each
// round. It says how long the bystander waited at most, and in all, and which connections were reset.
type flooded struct {
	*tunnel
	flows     []*flow
	bystander *flow
	most, all time.Duration
}

func flood(n int) *flooded {
	x := &flooded{tunnel: newTestTunnel(wirePair{})}
	x.bystander, _ = x.link.open(1000, "bystander:1")
	for i := range n {
		f, _ := x.link.open(int64(i+1), "target:1")
		x.flows = append(x.flows, f)
	}
	return x
}

// round sends a piece for each connection that is open, and one for the bystander, which reads it.
func (x *flooded) round() {
	begin := time.Now()
	for _, f := range x.flows {
		if f.writable() == nil {
			x.handle(&packet{kind: data, body: body{connectID: f.id, payload: make([]byte, piece)}})
		}
	}
	x.handle(&packet{kind: data, body: body{connectID: x.bystander.id, payload: make([]byte, 1)}})
	waited := time.Since(begin)
	x.most, x.all = max(x.most, waited), x.all+waited
	x.bystander.Read(make([]byte, 1))
}

func (x *flooded) resets() (n int) {
	for _, f := range x.flows {
		f.mu.Lock()
		if fault.Has(f.end, fault.CodeLimit) {
			n++
		}
		f.mu.Unlock()
	}
	return n
}

// pour sends until the first connection has taken so much, a connection is reset, or a minute is over.
func (x *flooded) pour(bytes int) {
	begin := time.Now()
	for sent := 0; sent < bytes && x.resets() == 0 && time.Since(begin) < time.Minute; sent += piece {
		x.round()
	}
}

// end ends the connections, and waits for their readers.
func (x *flooded) end(g *sync.WaitGroup) {
	for _, f := range x.flows {
		f.Close()
	}
	g.Wait()
}

// TestAPacketASecond resets a connection whose reader takes something all the time, and too little: it would slow its
// tunnel down for ever.
func TestAPacketASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g sync.WaitGroup
		x := flood(1)
		reader(&g, x.flows[0], 1, 900*time.Millisecond)
		x.pour(100 << 20)
		if x.resets() != 1 || x.all > 2*konnectivityPatience {
			t.Errorf("%d resets, and the others have waited for %v", x.resets(), x.all)
		}
		x.end(&g)
	})
}

// TestSlowReaders is which readers a tunnel waits for as long as they read, and when it gives the others up.
func TestSlowReaders(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct {
		pieces int
		every  time.Duration
		waits  time.Duration // 0: for ever
	}{
		"10 MiB/s":                             {10, 4 * time.Millisecond, 0},
		"just above the pace":                  {1, 15 * time.Millisecond, 0},
		"just below the pace":                  {1, 20 * time.Millisecond, 6 * time.Second},
		"half the pace":                        {1, 32 * time.Millisecond, 2500 * time.Millisecond},
		"the pace, in pieces of a socket":      {64, 900 * time.Millisecond, 0},
		"half the pace, in pieces of a socket": {32, 900 * time.Millisecond, 2500 * time.Millisecond},
		"a machine that stands still":          {1000, 950 * time.Millisecond, 0},
		"a reader that stands still too long":  {1000, 1100 * time.Millisecond, konnectivityPatience},
		"one that reads the first alone":       {1, time.Hour, konnectivityPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g sync.WaitGroup
				x := flood(1)
				reader(&g, x.flows[0], c.pieces, c.every)
				x.pour(size)
				want := 0
				if c.waits > 0 {
					want = 1
				}
				if n := x.resets(); n != want {
					t.Errorf("%d resets after %v", n, x.all)
				}
				if c.waits > 0 && (x.all > c.waits || x.most > konnectivityPatience) {
					t.Errorf("the others have waited for %v, and %v at a time", x.all, x.most)
				}
				x.end(&g)
			})
		})
	}
}

// TestALargePieceBehindSmallOnes has room when many of them were taken: a tunnel that wakes for each counts its wait once.
func TestALargePieceBehindSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g sync.WaitGroup
		x := flood(1)
		for range konnectivityQueue / (queueEntry + 1) {
			x.handle(&packet{kind: data, body: body{connectID: 1, payload: make([]byte, 1)}})
		}
		reader(&g, x.flows[0], 2, time.Millisecond) // twice the pace
		x.handle(&packet{kind: data, body: body{connectID: 1, payload: make([]byte, konnectivityData)}})
		if x.resets() != 0 {
			t.Error("the connection was reset")
		}
		x.end(&g)
	})
}

// TestManyReadersThatStandStill has a tunnel wait for all of them together little longer than for a few, and not end
// the one that reads.
func TestManyReadersThatStandStill(t *testing.T) {
	const many = 30
	synctest.Test(t, func(t *testing.T) {
		var g sync.WaitGroup
		x := flood(many + 1)
		reader(&g, x.flows[many], 10, 4*time.Millisecond)
		for begin := time.Now(); x.resets() < many && time.Since(begin) < time.Minute; {
			x.round()
		}
		for range 1000 {
			x.round()
		}
		if x.resets() != many || x.flows[many].writable() != nil {
			t.Errorf("%d were reset; the one that reads: %v", x.resets(), x.flows[many].writable())
		}
		if most := konnectivityPatienceAll + many*konnectivityPatienceLeast + time.Second; x.all > most {
			t.Errorf("the others have waited for %v, and not %v at most", x.all, most)
		}
		x.end(&g)
	})
}

// TestATunnelForgets gives a reader all of the time again, some time after others have used theirs up.
func TestATunnelForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := flood(5)
		for x.resets() < 5 {
			x.round()
		}
		for _, c := range []struct{ later, waits time.Duration }{
			{0, konnectivityPatienceLeast},
			{konnectivityForgives * konnectivityPatienceAll, konnectivityPatience},
		} {
			time.Sleep(c.later)
			late, _ := x.link.open(100, "target:1")
			x.flows, x.most, x.all = []*flow{late}, 0, 0
			x.pour(2 * konnectivityQueue)
			if x.resets() != 1 || x.all != c.waits {
				t.Errorf("%v later: %d resets, and the others have waited for %v", c.later, x.resets(), x.all)
			}
			late.ends("")
		}
	})
}

// readsOnce is an observer that has a connection read as soon as its tunnel waits.
type readsOnce struct {
	unobserved
	flow *flow
}

func (r readsOnce) Waits(_ Segment, change int) {
	if change > 0 {
		r.flow.Read(make([]byte, piece))
	}
}

// TestRoomAfterAll does not reset a connection that has room, however far its reader is behind: what was late may have
// been the machine.
func TestRoomAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := flood(1)
		f := x.flows[0]
		x.link.observe = readsOnce{flow: f}
		f.behind = konnectivityPatience
		x.link.late = lateness{all: time.Hour, when: time.Now()}
		x.pour(2 * konnectivityQueue)
		if x.resets() != 0 || x.all != 0 {
			t.Errorf("%d resets, and the others have waited for %v", x.resets(), x.all)
		}
	})
}

// TestLags is how long a tunnel waits for a reader: by what it has taken, and by what the others are behind.
func TestLags(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	for _, c := range []struct {
		own, all, waited      time.Duration
		took                  int64
		left, behind, behinds time.Duration
	}{
		{own: 400 * ms, all: 400 * ms, left: 600 * ms, behind: 400 * ms, behinds: 400 * ms},
		{own: 400 * ms, all: 2600 * ms, left: 400 * ms, behind: 400 * ms, behinds: 2600 * ms},
		{own: 400 * ms, all: 2600 * ms, waited: 50 * ms, left: 350 * ms, behind: 450 * ms, behinds: 2650 * ms},
		{own: 400 * ms, all: 2600 * ms, took: konnectivityPace, left: 800 * ms, behinds: 2200 * ms},
		{own: 400 * ms, waited: 5000 * ms, left: 550 * ms, behind: 450 * ms, behinds: 50 * ms}, // the machine stood still
		{own: 400 * ms, all: 100 * ms, took: konnectivityPace, left: konnectivityPatience},
	} {
		x := flood(1)
		f := x.flows[0]
		f.behind, f.took, x.link.late = c.own, c.took, lateness{all: c.all, when: now}
		left := f.lags(c.waited, now)
		if left != c.left || f.behind != c.behind || x.link.late.all != c.behinds || f.took != 0 {
			t.Errorf("%+v: %v are left; it is %v behind, all %v; %d", c, left, f.behind, x.link.late.all, f.took)
		}
	}
}

func TestBehind(t *testing.T) {
	const ms, second = time.Millisecond, konnectivityPace
	for _, c := range []struct {
		before, waited time.Duration
		taken          int64
		want           time.Duration
	}{
		{0, 0, 0, 0},
		{0, 300 * ms, 0, 300 * ms},
		{500 * ms, 300 * ms, 0, 800 * ms},
		{500 * ms, 300 * ms, second / 8, 675 * ms},
		{500 * ms, 0, second / 2, 0},
		{0, 1000 * ms, second, 0},
		{0, 0, 10 * second, 0},              // nothing is saved
		{900 * ms, 5000 * ms, 0, 1000 * ms}, // the machine stood still
		{900 * ms, 0, 1 << 62, 0},           // taken without a wait, for years
		{900 * ms, 600 * ms, second / 4, 1000 * ms},
		{0, konnectivityPatience, second / 4, 750 * ms},
	} {
		if got := behind(c.before, c.waited, c.taken); got != c.want {
			t.Errorf("%v behind, after %v and %d bytes: %v, not %v", c.before, c.waited, c.taken, got, c.want)
		}
	}
}

func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ own, others, want time.Duration }{
		{0, 0, konnectivityPatience},
		{400 * ms, 0, 600 * ms},
		{1000 * ms, 0, 0},
		{400 * ms, 2000 * ms, 600 * ms},
		{0, 2500 * ms, 500 * ms},
		{200 * ms, 2500 * ms, 300 * ms},
		{800 * ms, 2500 * ms, -300 * ms},
		{0, 3000 * ms, konnectivityPatienceLeast},
		{30 * ms, time.Hour, 70 * ms},
	} {
		if got := patience(c.own, c.others); got != c.want {
			t.Errorf("%v behind, and the others %v: %v, not %v", c.own, c.others, got, c.want)
		}
	}
}

func TestForgiven(t *testing.T) {
	for _, c := range []struct{ all, later, want time.Duration }{
		{3 * time.Second, 0, 3 * time.Second},
		{3 * time.Second, 10 * time.Second, 2 * time.Second},
		{3 * time.Second, time.Hour, 0},
		{0, 1<<63 - 1, 0},
	} {
		if got := forgiven(c.all, c.later); got != c.want {
			t.Errorf("%v, %v later: %v, not %v", c.all, c.later, got, c.want)
		}
	}
}
