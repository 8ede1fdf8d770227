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
