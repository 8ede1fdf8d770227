// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestAFarewellOutlivesWhatIsHeld: a member that left does not come back by what a
// service of the older protocol said of it, which is away or comes back as it was;
// neither after a restart. What the member itself says there later counts.
func TestAFarewellOutlivesWhatIsHeld(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, secret := newWorld(t), newSecret(t)
			svc, old := newNativeFake(t), newSideroFake()
			defer w.serve("two:80", svc.register)()
			endOld := w.serve("one:80", old.register)
			services := []v1alpha1.MeshService{native("two"), sidero("one")}
			set := setup{name: "a", id: "cluster", dir: t.TempDir(), secrets: []string{secret}, services: services}
			a := w.start(set)
			defer func() { a.stop() }()
			other := setup{name: "b", id: "cluster", dir: t.TempDir(), secrets: []string{secret}, services: services, member: proves(t)}
			b := w.start(other)
			a.knows(settle, "b")
			endOld()
			time.Sleep(time.Minute)
			b.Leave(t.Context()) // the older service is away
			b.stop()
			a.knows(saveInterval + settle)
			for _, after := range []time.Duration{15 * time.Minute, 17 * time.Minute, 10 * time.Minute, 10 * time.Hour} {
				if restart {
					a.stop()
				}
				time.Sleep(after)
				if restart {
					a = w.start(set)
				}
				a.knows(saveInterval + settle)
			}
			defer w.serve("one:80", old.register)() // with all that it had
			a.knows(5 * time.Minute)
			other.services = services[1:]
			b = w.start(other)
			defer b.stop()
			a.knows(5*time.Minute, "b")
		})
	}
}

// TestARemovalInTheCache counts for as long as it would have counted, and no longer.
func TestARemovalInTheCache(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		rest        time.Duration
		until, past time.Duration
	}{
		"at once":                  {removalCounts, limit.DiscoveryTTL, 0},
		"a moment before":          {staleHold + 1, 1, 0},
		"when nothing is lasting":  {staleHold, staleHold, -limit.DiscoveryTTL},
		"when nothing can be held": {1, 1, 1 - removalCounts},
	} {
		w := &signedWord{until: now.Add(tc.rest)}
		until, past := w.removal(now)
		if until.Sub(now) != tc.until || past.IsZero() != (tc.past == 0) || tc.past != 0 && past.Sub(now) != tc.past {
			t.Errorf("%s: until %v, past %v", name, until.Sub(now), past.Sub(now))
		}
	}
}
