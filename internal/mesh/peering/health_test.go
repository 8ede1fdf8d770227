// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// TestAlone: peers hear at once that a node reaches no other one of its cluster, and that it does again.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		for _, is := range []bool{true, false} {
			before := a.w.count()
			b.p.Alone(is)
			b.p.Alone(is) // changes nothing
			took := w.until(time.Second, "a knows", func() bool { return a.p.Healths()[0].Alone == is })
			if took > 100*time.Millisecond || a.w.count() > before+4 {
				t.Errorf("%v after %v and %d packets", is, took, a.w.count()-before)
			}
			if b.p.Healths()[0].Alone {
				t.Error("what b says of itself it takes for a's")
			}
			if why := a.report(b).Why; strings.Contains(why, "it reaches no other node of its own cluster") != is {
				t.Errorf("%v: the report says %q", is, why)
			}
			<-time.After(5 * time.Second)
		}
	})
}

// TestTogether: a peer without traffic is down as soon as one with traffic, if both are asked together.
func TestTogether(t *testing.T) {
	for _, together := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, a, b := settled(t)
			c := w.add("c", nil)
			meet(a, b, c)
			w.until(5*time.Second, "direct", both(a, c, path.Direct))
			one, two := b.peer(), c.peer()
			for _, p := range []*peering.Peer{&one, &two} {
				p.Together, p.Facts.Relays = together, nil
			}
			if err := a.p.Set([]peering.Peer{one, two}); err != nil {
				t.Fatal(err)
			}
			talk(a, b, 100*time.Millisecond, time.Minute) // sizes are known, and c is silent
			w.mu.Lock()
			w.cut = func(_, _ netip.Addr) bool { return true }
			w.mu.Unlock()
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				talk(a, b, 100*time.Millisecond, 10*time.Second)
			}()
			first := w.until(10*time.Second, "b is down", func() bool { return a.state(b) == path.Down })
			took := first + w.until(time.Minute, "c is down", func() bool { return a.state(c) == path.Down })
			if (took < 5*time.Second) != together {
				t.Errorf("together %v: b is down after %v, c after %v", together, first, took)
			}
			<-stopped
		})
	}
}

// TestHealths: they say what reports say, of peers that are up, down and refused.
func TestHealths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		c := w.add("c", nil)
		meet(a, b, c)
		w.until(5*time.Second, "direct", both(a, c, path.Direct))
		certified := map[string]bool{"id-b": true} // a hub has led a probe of it
		same := func(down ...string) {
			t.Helper()
			var want []peering.Health
			for _, r := range a.p.Reports() {
				var at []netip.Addr
				for _, c := range r.Candidates {
					if a := c.Path.Addr.Addr(); c.Path.Direct() && c.Answers > 0 && !slices.Contains(at, a) {
						at = append(at, a)
					}
				}
				slices.SortFunc(at, netip.Addr.Compare)
				want = append(want, peering.Health{ID: r.ID, Name: r.Name, Key: r.Key, Down: slices.Contains(down, r.ID), MTU: r.MTU, At: at, Certified: certified[r.ID]})
			}
			got := a.p.Healths()
			slices.SortFunc(got, func(x, y peering.Health) int { return strings.Compare(x.ID, y.ID) })
			if !reflect.DeepEqual(got, want) || len(got[0].At) == 0 {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		same()
		w.mu.Lock()
		w.cut = func(_, _ netip.Addr) bool { return true }
		b.hubbed = false
		w.mu.Unlock()
		b.stop()
		a.p.Moved()
		w.until(time.Minute, "down", func() bool { return a.state(b) == path.Down })
		certified["id-c"] = true
		same("id-b")
		twin := c.peer()
		twin.ID, twin.Name = "id-twin", "twin" // with c's key
		if err := a.p.Set([]peering.Peer{b.peer(), c.peer(), twin}); err == nil {
			t.Error("two peers have one key")
		}
		same("id-b", "id-twin")
	})
}
