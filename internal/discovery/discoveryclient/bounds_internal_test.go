// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestWhatAServiceGrants: no more is asked for, whatever it says harms no other
// service, and what it refuses is not tried in a loop.
func TestWhatAServiceGrants(t *testing.T) {
	for name, tc := range map[string]struct {
		ttl, sealed uint32
		lease       uint32 // asked for there; 0: nothing
		refused     string
		puts        int // at the other service in an hour
	}{
		"what the protocol has": {ttl: 1800, sealed: limit.DiscoverySealed, lease: 1800, puts: 7},
		"nothing is said":       {lease: 1800, puts: 7},
		"all that there is":     {ttl: math.MaxUint32, sealed: math.MaxUint32, lease: 1800, puts: 7},
		"shorter leases":        {ttl: 300, lease: 300, puts: 37},
		"the shortest":          {ttl: 60, lease: 60, puts: 181},
		"too short":             {ttl: 59, refused: "59s, and 1m0s", puts: 7},
		"no time":               {ttl: 1, refused: "1s, and 1m0s", puts: 7},
		"small members":         {sealed: 60, refused: "bytes sealed, and the service takes 60", puts: 7},
		"no members":            {sealed: 1, refused: "bytes sealed, and the service takes 1", puts: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				odd, fine := newNativeFake(t), newNativeFake(t)
				odd.ttlMax, odd.sealedMax = tc.ttl, tc.sealed
				defer w.serve("odd:80", odd.register)()
				defer w.serve("fine:80", fine.register)()
				services := []v1alpha1.MeshService{native("odd"), native("fine")}
				a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
				defer a.stop()
				b := w.start(setup{name: "b", secrets: []string{secret}, services: services[1:]})
				defer b.stop()
				a.knows(settle, "b")
				b.knows(time.Hour, "a")
				status := a.Status()[0]
				if status.State != StateAttending || (status.Refused == "") != (tc.refused == "") || !strings.Contains(status.Refused, tc.refused) {
					t.Errorf("the status is %+v", status)
				}
				if a.Status()[1].Refused != "" {
					t.Error("the other service suffers")
				}
				if n := len(odd.putsOf()); (n == 0) != (tc.refused != "") {
					t.Errorf("%d announcements there", n)
				}
				for _, e := range odd.putsOf() {
					if e.GetTtl() != tc.lease {
						t.Errorf("a lease of %d s is asked for", e.GetTtl())
					}
				}
				puts := 0
				for _, e := range fine.putsOf() {
					if string(e.GetMember()) == string(a.self.now.id.key.Public()) {
						if puts++; e.GetTtl() != 1800 {
							t.Errorf("at the other service a lease of %d s is asked for", e.GetTtl())
						}
					}
				}
				if puts != tc.puts {
					t.Errorf("%d announcements at the other service in an hour, want %d", puts, tc.puts)
				}
				if len(odd.putsOf()) > tc.puts || odd.attended != 1 {
					t.Errorf("%d announcements in %d sessions", len(odd.putsOf()), odd.attended)
				}
				if err := a.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				b.knows(settle)
			})
		})
	}
}

// TestTooLargeNamesBothSizes, of the very entry.
func TestTooLargeNamesBothSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		end := w.serve("one:80", svc.register)
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		defer a.stop()
		time.Sleep(settle)
		n := len(svc.putsOf()[0].GetSealed())
		end()
		svc.sealedMax = uint32(n) // the next session
		defer w.serve("one:80", svc.register)()
		time.Sleep(time.Minute)
		next := a.cfg.Announce
		next.Hostname = "longer"
		if err := a.Announce(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := a.Status()[0]; !strings.Contains(s.Refused, "limit_reached") || !strings.Contains(s.Refused, fmt.Sprintf("has %d bytes sealed, and the service takes %d", n+8, n)) {
			t.Errorf("the status says %q", s.Refused)
		}
		next.Hostname = ""
		if err := a.Announce(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle)
		if s := a.Status()[0]; s.Refused != "" {
			t.Errorf("it fits again, and the status says %q", s.Refused)
		}
	})
}

// TestTheLongerLeaseCounts: a service that gives short ones takes nothing from what
// another one has.
func TestTheLongerLeaseCounts(t *testing.T) {
	for _, order := range [][]string{{"short", "long"}, {"long", "short"}} {
		synctest.Test(t, func(t *testing.T) {
			w, secret := newWorld(t), newSecret(t)
			short, long := newNativeFake(t), newNativeFake(t)
			short.ttlMax = 120
			defer w.serve("short:80", short.register)()
			defer w.serve("long:80", long.register)()
			services := []v1alpha1.MeshService{native(order[0]), native(order[1])}
			a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
			b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
			defer b.stop()
			only := w.start(setup{secrets: []string{secret}, services: []v1alpha1.MeshService{native("short")}, mute: true})
			defer only.stop()
			b.knows(time.Minute, "a")
			a.stop()
			only.knows(time.Minute, "a", "b")
			b.knows(28*time.Minute, "a")
			if s := b.Status(); s[0].Junk+s[1].Junk+s[0].Stale+s[1].Stale != 0 {
				t.Errorf("the status is %+v", s)
			}
			only.knows(0, "b")
			b.knows(3 * time.Minute)
		})
	}
}
