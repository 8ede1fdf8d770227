// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func testAccount(b func(*Bounds)) (*Account, map[Resource]int) {
	l := Defaults().Agent
	l.Sessions, l.Streams = Unbounded, Unbounded
	b(&l)
	hits := map[Resource]int{}
	return newAccount(ScopeCluster, "c1", "", l, func(_ Scope, k Resource) { hits[k]++ }), hits
}

func testBook(t *testing.T) *Book {
	t.Helper()
	c, err := id.ParseCluster("c1")
	if err != nil {
		t.Fatal(err)
	}
	return NewBook(c, Defaults(), carrier.NewBudget(limit.ClusterUnread), func(Scope, Resource) {}, new(atomic.Bool))
}

// begin begins a dial that waits for nothing.
func begin(a *Account) error {
	_, err := a.begin(0)
	return err
}

// TestADialWaitsForItsTurn: beyond the burst dials come in turn, at the rate; whose
// turn would come after its patience is refused, and holds its place until it is told.
func TestADialWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, hits := testAccount(func(b *Bounds) { b.Dials, b.Burst = 4, 2 })
		for i, want := range []time.Duration{0, 0, 250, 500, 750, 1000} {
			if turn, err := a.begin(dialTurn); err != nil || turn.wait != want*time.Millisecond {
				t.Errorf("dial %d waits %v, %v; want %v ms", i, turn.wait, err, int64(want))
			}
		}
		for range 3 { // a refused one takes nobody's turn
			turn, err := a.begin(dialTurn)
			if f := fault.From(err); f == nil || f.Code != fault.CodeLimit || f.Again != 1250*time.Millisecond || turn.wait != dialTurn {
				t.Errorf("waits %v with %v", turn.wait, err)
			}
		}
		if a.pending.Load() != 9 || a.streams.Load() != 9 || hits[Dials] != 7 {
			t.Errorf("%d under way, %d streams, %v hits", a.pending.Load(), a.streams.Load(), hits)
		}
	})
}

// TestWaitingDialsGiveTheirPlacesBack: those that got their turn, those that are
// refused, and those whose caller leaves.
func TestWaitingDialsGiveTheirPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := testBook(t)
		b := *book.Cluster.bounds.Load()
		b.Dials, b.Burst, b.Pending = 4, 1, 8
		book.Cluster.Bound(b)
		type end struct {
			after time.Duration
			code  fault.Code
		}
		ends := make(chan end, 20)
		leaving, leave := context.WithCancel(t.Context())
		dial := func(ctx context.Context) {
			begin := time.Now()
			p, err := book.Admit(ctx, "me")
			e := end{after: time.Since(begin)}
			if f := fault.From(err); f != nil {
				e.code = f.Code
			} else {
				p.Cancel()
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
			{0, fault.CodeDialCanceled}: 1, {dialTurn, fault.CodeLimit}: 4, {0, fault.CodeLimit}: 1,
		}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, a := range []*Account{book.Cluster, book.Caller("me")} {
			if a.pending.Load() != 0 || a.streams.Load() != 0 {
				t.Errorf("%s: %d under way, %d streams", a.scope, a.pending.Load(), a.streams.Load())
			}
		}
	})
}

// TestARefusedDialSaysWhichBound: it says which bound it was, until when, and costs nothing.
func TestARefusedDialSaysWhichBound(t *testing.T) {
	for name, c := range map[string]struct {
		bound func(*Bounds)
		of    Resource
		free  int // dials that go through first
		says  []string
		again time.Duration
	}{
		"streams":      {func(b *Bounds) { b.Streams = 2 }, Streams, 2, []string{"cluster c1 may have 2 streams", "the bound cluster.streams is reached", "raise limits.cluster.streams"}, 0},
		"dials at all": {func(b *Bounds) { b.Pending = 3 }, PendingDials, 3, []string{"cluster c1 may have 3 dials under way", "cluster.pendingDials", "tombolo status c1"}, 0},
		"dials a second": {func(b *Bounds) { b.Dials, b.Burst = 4, 5 }, Dials, 5,
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
		a, _ := testAccount(func(b *Bounds) { b.Streams, b.Dials, b.Burst = 100, 1, 2 })
		set := func(change func(*Bounds)) {
			b := *a.bounds.Load()
			change(&b)
			a.Bound(b)
		}
		dial := func() bool { return begin(a) == nil }
		if count(dial, 10) != 2 {
			t.Fatal("a burst of 2 is not 2")
		}
		set(func(b *Bounds) { b.Dials, b.Burst = 100, 200 })
		time.Sleep(100 * time.Millisecond)
		if got := count(dial, 50); got != 10 {
			t.Errorf("at the raised rate %d dials in 100 ms", got)
		}
		set(func(b *Bounds) { b.Dials, b.Burst = Unbounded, Unbounded })
		if got := count(dial, 200); got != 88 {
			t.Errorf("%d dials until the streams are 100", got)
		}
		set(func(b *Bounds) { b.Streams, b.Dials, b.Burst = 5, 10, 10 })
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
		a := testBook(t)
		live := a.Caller("live")
		if live.Connect() != nil {
			t.Fatal("no place")
		}
		for i := range 3 * callerRecords {
			if i%callerRecords == 0 {
				time.Sleep(2 * callerKept)
			}
			a.Caller("caller-" + strconv.Itoa(i))
		}
		if n := len(a.callers); n > callerRecords+1 {
			t.Errorf("%d are remembered", n)
		}
		if a.Caller("live") != live {
			t.Error("one with a connection was forgotten")
		}
	})
}

// TestTheRateHoldsForManyAtOnce: callers that dial at the same time do not get more
// out of a rate than one after the other.
func TestTheRateHoldsForManyAtOnce(t *testing.T) {
	a, _ := testAccount(func(b *Bounds) { b.Dials, b.Burst = 1, 100 })
	a.counted = func(Scope, Resource) {}
	begun := time.Now()
	var got atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 2000 {
				if begin(a) == nil {
					got.Add(1)
				}
			}
		})
	}
	all.Wait()
	if most := 100 + int64(time.Since(begun).Seconds()) + 1; got.Load() < 100 || got.Load() > most {
		t.Errorf("%d dials, want 100 to %d", got.Load(), most)
	}
}

// TestARefusedCallerCostsItsClusterNothing: what one caller is refused by its own
// bound is there for the others.
func TestARefusedCallerCostsItsClusterNothing(t *testing.T) {
	book := testBook(t)
	b := *book.Cluster.bounds.Load()
	b.Dials, b.Burst, b.Pending = 1, 10, 10
	book.Cluster.Bound(b)
	loud := book.Caller("loud")
	own := *loud.bounds.Load()
	own.Streams = 1
	loud.Bound(own)
	for i := range 1000 {
		p, err := book.Admit(t.Context(), "loud")
		if (err == nil) != (i == 0) {
			t.Fatalf("dial %d: %v", i, err)
		}
		if i == 0 {
			t.Cleanup(p.Cancel)
		}
	}
	for range 9 {
		p, err := book.Admit(t.Context(), "calm")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Cancel)
	}
}

// TestWhoHasAPlaceKeepsItsAccount: each kind of place alone does.
func TestWhoHasAPlaceKeepsItsAccount(t *testing.T) {
	now := time.Now()
	for name, take := range map[string]func(*Account){
		"":                        func(*Account) {},
		"a connection":            func(a *Account) { a.sessions.Add(1) },
		"a stream":                func(a *Account) { a.streams.Add(1) },
		"a session that comes":    func(a *Account) { a.coming.Add(1) },
		"bytes that are unread":   func(a *Account) { a.unread.Add(1) },
		"was looked for just now": func(a *Account) { a.newest.Store(now.UnixNano()) },
	} {
		a, _ := testAccount(func(*Bounds) {})
		take(a)
		if a.idle(now, callerKept) != (name == "") {
			t.Errorf("%q: idle is %v", name, name != "")
		}
	}
}
