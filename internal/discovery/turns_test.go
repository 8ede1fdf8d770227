// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(10, Rates{15, 60})
		a, ctx := netip.MustParseAddr("192.0.2.1"), t.Context()
		begin := time.Now()
		for i := range 75 { // the burst, and then one after the other
			if err := c.turn(ctx, a, 1); err != nil {
				t.Fatalf("call %d after %v: %v", i, time.Since(begin), err)
			}
		}
		if took := time.Since(begin); took < 990*time.Millisecond || took > 1010*time.Millisecond {
			t.Errorf("75 calls took %v", took)
		}
		// Many at once: those whose turn comes before their deadline wait, the others are
		// refused at once; without a deadline those of discoveryTurn wait.
		second, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for _, many := range []struct {
			ctx   context.Context
			calls int
			want  int
			took  time.Duration
		}{{second, 100, 15, time.Second}, {ctx, 500, 450, discoveryTurn}} {
			begin = time.Now()
			g := run.NewGroup(many.ctx)
			refused := make(chan error, many.calls)
			for range many.calls {
				g.Do(func(ctx context.Context) {
					err := c.turn(ctx, a, 1)
					if err != nil && time.Since(begin) > 0 {
						t.Errorf("refused after %v", time.Since(begin))
					}
					if err != nil {
						refused <- err
					}
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if n := many.calls - len(refused); n != many.want || time.Since(begin) > many.took {
				t.Errorf("%d of %d were taken within %v, want %d", n, many.calls, time.Since(begin), many.want)
			}
			if err := <-refused; !fault.Has(err, fault.CodeLimit) {
				t.Error(err)
			}
			if c.waiting.Load() != 0 || len(c.nets) != 0 {
				t.Errorf("%d wait, and %d networks are known", c.waiting.Load(), len(c.nets))
			}
		}
		// One who goes while he waits gives his turn back.
		for range 10 {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			if err := c.turn(gone, a, 1); err == nil {
				t.Error("one who has gone has his turn")
			}
		}
		begin = time.Now()
		if err := c.turn(ctx, a, 1); err != nil || time.Since(begin) > time.Second/15+time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		// A reload counts at once.
		c.bound(Rates{1000, 1000})
		time.Sleep(2 * time.Second)
		for range 1000 {
			if err := c.turn(ctx, a, 1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestAllowances: what is paid, and when a call's turn is.
func TestAllowances(t *testing.T) {
	const second = time.Second
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		was      allowance
		rates    Rates
		cost     int
		patience time.Duration
		left     float64
		wait     time.Duration
		ok       bool
	}{
		"the first":                     {allowance{}, Rates{10, 60}, 1, 0, 59, 0, true},
		"the last at once":              {allowance{1, now}, Rates{10, 60}, 1, 0, 0, 0, true},
		"one beyond":                    {allowance{0, now}, Rates{10, 60}, 1, second, -1, second / 10, true},
		"one behind others":             {allowance{-19, now}, Rates{10, 60}, 1, 2 * second, -20, 2 * second, true},
		"one too many for its caller":   {allowance{-20, now}, Rates{10, 60}, 1, 2 * second, -20, 0, false},
		"one whose caller has gone":     {allowance{0, now}, Rates{10, 60}, 1, -second, 0, 0, false},
		"time fills it":                 {allowance{-20, now.Add(-3 * second)}, Rates{10, 60}, 1, 0, 9, 0, true},
		"and no further than the burst": {allowance{0, now.Add(-time.Hour)}, Rates{10, 60}, 1, 0, 59, 0, true},
		"a smaller burst":               {allowance{60, now}, Rates{10, 5}, 1, 0, 4, 0, true},
		"a dear one":                    {allowance{40, now}, Rates{10, 60}, 33, 0, 7, 0, true},
		"a dear one that waits":         {allowance{0, now}, Rates{10, 60}, 33, 4 * second, -33, 3300 * time.Millisecond, true},
		"one above the burst":           {allowance{}, Rates{10, 5}, 33, 0, 0, 0, true},
	} {
		got, wait, ok := c.was.take(now, c.rates, c.cost, c.patience)
		if math.Abs(got.left-c.left) > 1e-9 || wait != c.wait || ok != c.ok {
			t.Errorf("%s: %v left, a wait of %v, %v; want %v, %v, %v", name, got.left, wait, ok, c.left, c.wait, c.ok)
		}
	}
	if got := costOf(sdr.Cluster_List_FullMethodName); discoveryBurst/got > 60 || costOf(sdr.Cluster_Watch_FullMethodName) != 1 {
		t.Errorf("a List costs %d", got)
	}
}

// TestCallsThatWaitAreBounded, of an address, of its network, and in all; and go ahead
// when the drain begins, after which none waits.
func TestCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, draining := newCallers(1000, Rates{1000, 1}), make(chan struct{})
		c.draining = draining
		g := run.NewGroup(t.Context())
		var taken, refused atomic.Int64
		call := func(a string) {
			at := netip.MustParseAddr(a)
			g.Do(func(ctx context.Context) {
				if err := c.turn(ctx, at, 1); err == nil {
					taken.Add(1)
				} else if fault.Has(err, fault.CodeLimit) {
					refused.Add(1)
				}
			})
		}
		many := func(calls int, want int64, address func(i int) string) {
			t.Helper()
			before := c.waiting.Load()
			for i := range calls {
				call(address(i))
			}
			synctest.Wait()
			if n := c.waiting.Load() - before; n != want {
				t.Errorf("%d of %d calls wait, want %d", n, calls, want)
			}
		}
		for i := range 3 { // their burst
			call(fmt.Sprintf("192.0.2.%d", i))
		}
		synctest.Wait()
		many(2000, discoveryWaiting, func(int) string { return "192.0.2.0" })
		many(2000, 0, func(i int) string { return "192.0.2.0" })
		many(2000, 0, func(i int) string { return fmt.Sprintf("192.0.2.%d", 1+i%2) }) // a quarter of all is the network's
		many(20000, discoveryAllWaiting-discoveryWaiting, func(i int) string { return fmt.Sprintf("10.0.%d.1", i%20) })
		many(100, 0, func(i int) string { return "10.1.0.1" })
		begin := time.Now()
		close(draining)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := taken.Load(); time.Since(begin) > 0 || n < discoveryAllWaiting || c.waiting.Load() != 0 || len(c.nets) != 0 {
			t.Errorf("%d calls were taken after %v; %d wait, %d networks are known", n, time.Since(begin), c.waiting.Load(), len(c.nets))
		}
		c.turn(t.Context(), netip.MustParseAddr("10.2.0.1"), 1)
		if err := c.turn(t.Context(), netip.MustParseAddr("10.2.0.1"), 1); !fault.Has(err, fault.CodeDraining) {
			t.Errorf("a call that would wait while the service drains: %v", err)
		}
	})
}

// awayFor is a store that is away until a time.
type awayFor struct {
	away
	until time.Time
	taken int
}

func (s *awayFor) Update(context.Context, Place, roster.Update) error {
	if time.Now().Before(s.until) {
		return s.gone()
	}
	s.taken++
	return nil
}

func (s *awayFor) Delete(ctx context.Context, p Place) error {
	return s.Update(ctx, p, roster.Update{})
}

// TestAStoreThatIsBrieflyAway: updates wait for it as long as their callers do.
func TestAStoreThatIsBrieflyAway(t *testing.T) {
	for name, c := range map[string]struct {
		away, deadline, drain time.Duration // 0: none
		least, most           time.Duration
		code                  fault.Code
	}{
		"it is there":              {0, 0, 0, 0, 0, ""},
		"20 s":                     {20 * time.Second, 30 * time.Second, 0, 20 * time.Second, 21 * time.Second, ""},
		"20 s, without a deadline": {20 * time.Second, 0, 0, 20 * time.Second, 21 * time.Second, ""},
		"beyond a deadline":        {20 * time.Second, 5 * time.Second, 0, 3 * time.Second, 5 * time.Second, fault.CodeStoreAway},
		"for long":                 {time.Hour, 0, 0, 28 * time.Second, discoveryTurn, fault.CodeStoreAway},
		"while the service ends":   {time.Hour, 0, 5 * time.Second, 5 * time.Second, 5 * time.Second, fault.CodeStoreAway},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &awayFor{until: time.Now().Add(c.away)}
				s := &Service{store: store, callers: newCallers(10, Rates{15, 60}), draining: make(chan struct{})}
				s.settings.Store(&Reloadable{limits: Limits{Endpoints: 64}})
				ctx := t.Context()
				if c.deadline > 0 {
					short, cancel := context.WithTimeout(ctx, c.deadline)
					defer cancel()
					ctx = short
				}
				if c.drain > 0 {
					time.AfterFunc(c.drain, func() { close(s.draining) })
				}
				begin := time.Now()
				_, err := older{s: s}.AffiliateUpdate(ctx, affiliateUpdate("a", "x"))
				if (c.code == "") != (err == nil) || c.code != "" && !fault.Has(err, c.code) {
					t.Errorf("%v, want %q", err, c.code)
				}
				if took := time.Since(begin); took < c.least || took > c.most {
					t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
				}
				if s.callers.waiting.Load() != 0 {
					t.Error("a place is held for ever")
				}
			})
		})
	}
}

// TestWaitingUpdatesAreSmall: an endpoint of a byte takes three of a request, and the head
// of a slice once that was read.
func TestWaitingUpdatesAreSmall(t *testing.T) {
	const calls = 40
	for name, blob := range map[string][]byte{"small": {1}, "refused": {}} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, func(c *v1alpha1.DiscoveryConfig) {
				perSecond, burst := 2, 1
				c.Rates.PerSecond, c.Rates.Burst = &perSecond, &burst
			})
			update := affiliateUpdate("a", "x")
			for range 20_000 {
				update.AffiliateEndpoints = append(update.AffiliateEndpoints, blob)
			}
			d, before := r.deaf(1<<20), heap()
			for range calls {
				d.call("/sidero.discovery.server.Cluster/AffiliateUpdate", update)
			}
			runtest.Eventually(t, "they wait", func() bool { // none is being read, which takes more
				ended := d.endedAll()
				waiting := int(r.callers.waiting.Load())
				return r.begun.count() == 0 && waiting > calls/2 && waiting+ended == calls
			})
			if grown := heap() - before; grown > calls*discoveryMessage {
				t.Errorf("%d calls that wait take %d bytes", calls, grown)
			}
		})
	}
}
