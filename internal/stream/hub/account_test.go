// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func testAccount(b func(*bounds)) (*account, map[resource]int) {
	l := defaultLimits().agent
	l.sessions, l.streams = unbounded, unbounded
	b(&l)
	hits := map[resource]int{}
	return newAccount(scopeCluster, "c1", "", l, func(_ scope, k resource) { hits[k]++ }), hits
}

// A refusal says which bound it was, until when, and costs nothing.
// begin begins a dial that waits for nothing.
func begin(a *account) error {
	_, err := a.begin(0)
	return err
}

// TestADialWaitsForItsTurn: beyond the burst dials come in turn, at the rate; whose
// turn would come after its patience is refused, and holds its place until it is told.
func TestADialWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, hits := testAccount(func(b *bounds) { b.dials, b.burst = 4, 2 })
		for i, want := range []time.Duration{0, 0, 250, 500, 750, 1000} {
			if turn, err := a.begin(limit.DialTurn); err != nil || turn.wait != want*time.Millisecond {
				t.Errorf("dial %d waits %v, %v; want %v ms", i, turn.wait, err, int64(want))
			}
		}
		for range 3 { // a refused one takes nobody's turn
			turn, err := a.begin(limit.DialTurn)
			if f := fault.From(err); f == nil || f.Code != fault.CodeLimit || f.Again != 1250*time.Millisecond || turn.wait != limit.DialTurn {
				t.Errorf("waits %v with %v", turn.wait, err)
			}
		}
		if a.pending.Load() != 9 || a.streams.Load() != 9 || hits[ofDials] != 7 {
			t.Errorf("%d under way, %d streams, %v hits", a.pending.Load(), a.streams.Load(), hits)
		}
	})
}

// TestWaitingDialsGiveTheirPlacesBack: those that got their turn, those that are
// refused, and those whose caller leaves.
func TestWaitingDialsGiveTheirPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Hub{access: newAccess(), clusters: newRegistry(nil)}
		c := h.clusters.add(clusterOf(t, "c1"))
		b := *c.accounts.cluster.bounds.Load()
		b.dials, b.burst, b.pending = 4, 1, 8
		c.accounts.cluster.bound(b)
		type end struct {
			after time.Duration
			code  fault.Code
		}
		ends := make(chan end, 20)
		leaving, leave := context.WithCancel(t.Context())
		dial := func(ctx context.Context) {
			begin := time.Now()
			p, err := h.admitDial(ctx, c, "me")
			e := end{after: time.Since(begin)}
			if f := fault.From(err); f != nil {
				e.code = f.Code
			} else {
				p.end()
			}
			ends <- e
		}
		dial(t.Context()) // the burst
		for range 3 {
			go dial(t.Context())
			synctest.Wait()
		}
		go dial(leaving)
		synctest.Wait()
		for range 4 {
			go dial(t.Context()) // too late, and told so later
		}
		synctest.Wait()
		dial(t.Context()) // has not even a place to wait
		leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		close(ends)
		got := map[end]int{}
		for e := range ends {
			got[e]++
		}
		if want := map[end]int{
			{0, ""}: 1, {250 * time.Millisecond, ""}: 1, {500 * time.Millisecond, ""}: 1, {750 * time.Millisecond, ""}: 1,
			{0, fault.CodeDialCanceled}: 1, {limit.DialTurn, fault.CodeLimit}: 4, {0, fault.CodeLimit}: 1,
		}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, a := range []*account{c.accounts.cluster, c.accounts.caller("me")} {
			if a.pending.Load() != 0 || a.streams.Load() != 0 {
				t.Errorf("%s: %d under way, %d streams", a.scope, a.pending.Load(), a.streams.Load())
			}
		}
	})
}

func TestARefusedDialSaysWhichBound(t *testing.T) {
	for name, c := range map[string]struct {
		bound func(*bounds)
		of    resource
		free  int // dials that go through first
		says  []string
		again time.Duration
	}{
		"streams":      {func(b *bounds) { b.streams = 2 }, ofStreams, 2, []string{"cluster c1 may have 2 streams", "the bound cluster.streams is reached", "raise limits.cluster.streams"}, 0},
		"dials at all": {func(b *bounds) { b.pending = 3 }, ofPending, 3, []string{"cluster c1 may have 3 dials under way", "cluster.pendingDials", "tombolo status c1"}, 0},
		"dials a second": {func(b *bounds) { b.dials, b.burst = 4, 5 }, ofDials, 5,
			[]string{"cluster c1 may make 4 dials a second", "cluster.dialsPerSecond", "try again in 250ms"}, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, hits := testAccount(c.bound)
				for range c.free {
					if err := begin(a); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 { // the refused one costs nothing, or the wait would grow
					f := fault.From(begin(a))
					if f == nil || f.Code != fault.CodeLimit || f.Again != c.again {
						t.Fatalf("got %#v", f)
					}
					for _, say := range c.says {
						if !strings.Contains(f.Explain(), say) {
							t.Errorf("%q does not say %q", f.Explain(), say)
						}
					}
					answer := refusal(f)
					if got := strings.Contains(answer, "\r\nRetry-After: 1\r\n"); got != (c.again > 0) || statusOf(f) != http.StatusTooManyRequests {
						t.Errorf("the answer of CONNECT: %s", answer)
					}
				}
				if a.hits[c.of].Load() != 3 || hits[c.of] != 3 || len(hits) != 1 {
					t.Errorf("counted %d, told %v", a.hits[c.of].Load(), hits)
				}
				if n := a.streams.Load(); n != int64(c.free) || a.pending.Load() != n {
					t.Errorf("%d streams, %d under way", n, a.pending.Load())
				}
				if c.again > 0 {
					time.Sleep(c.again)
				} else {
					a.end()
				}
				if err := begin(a); err != nil {
					t.Errorf("later: %v", err)
				}
			})
		})
	}
}

// Other bounds count at once and drop nothing.
func TestBoundsMoveUnderALiveAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := testAccount(func(b *bounds) { b.streams, b.dials, b.burst = 100, 1, 2 })
		set := func(change func(*bounds)) {
			b := *a.bounds.Load()
			change(&b)
			a.bound(b)
		}
		dial := func() bool { return begin(a) == nil }
		if count(dial, 10) != 2 {
			t.Fatal("a burst of 2 is not 2")
		}
		set(func(b *bounds) { b.dials, b.burst = 100, 200 })
		time.Sleep(100 * time.Millisecond)
		if got := count(dial, 50); got != 10 {
			t.Errorf("at the raised rate %d dials in 100 ms", got)
		}
		set(func(b *bounds) { b.dials, b.burst = unbounded, unbounded })
		if got := count(dial, 200); got != 88 {
			t.Errorf("%d dials until the streams are 100", got)
		}
		set(func(b *bounds) { b.streams, b.dials, b.burst = 5, 10, 10 })
		if dial() || a.streams.Load() != 100 {
			t.Errorf("below what is open: %d streams", a.streams.Load())
		}
		for range 96 {
			a.end()
		}
		time.Sleep(time.Hour)
		if got := count(dial, 50); got != 1 {
			t.Errorf("%d dials up to the lowered bound", got)
		}
	})
}

func count(dial func() bool, tries int) (n int) {
	for range tries {
		if dial() {
			n++
		}
	}
	return n
}

// A cluster does not remember every identity that ever came.
func TestIdentitiesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(nil)
		a := r.add(clusterOf(t, "c1")).accounts
		live := a.caller("live")
		if live.connect() != nil {
			t.Fatal("no place")
		}
		for i := range 3 * limit.CallerRecords {
			if i%limit.CallerRecords == 0 {
				time.Sleep(2 * limit.CallerKept)
			}
			a.caller("caller-" + itoa(i))
		}
		if n := len(a.callers); n > limit.CallerRecords+1 {
			t.Errorf("%d are remembered", n)
		}
		if a.caller("live") != live {
			t.Error("one with a connection was forgotten")
		}
	})
}
