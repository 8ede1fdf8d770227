// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

func testAccount(b func(*bounds)) (*account, map[resource]int) {
	l := defaultLimits().agent
	l.sessions, l.streams = unbounded, unbounded
	b(&l)
	hits := map[resource]int{}
	return newAccount(scopeCluster, "c1", "", l, func(_ scope, k resource) { hits[k]++ }), hits
}

// A refusal says which bound it was, until when, and costs nothing.
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
					if err := a.begin(time.Now()); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 { // the refused one costs nothing, or the wait would grow
					f := fault.From(a.begin(time.Now()))
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
				if err := a.begin(time.Now()); err != nil {
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
		dial := func() bool { return a.begin(time.Now()) == nil }
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
