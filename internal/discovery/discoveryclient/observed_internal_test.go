// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestWhereServicesSeeThisNode: those that are attended say it, in the order of the
// configuration, and what one has said goes with it.
func TestWhereServicesSeeThisNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two := newNativeFake(t), newSideroFake()
		m := w.start(setup{name: "a", id: "cluster", secrets: []string{newSecret(t)}, services: []v1alpha1.MeshService{sidero("two"), native("one")}})
		defer m.stop()
		want := func(what, want string) {
			t.Helper()
			seen := []netip.Addr{}
			for _, s := range m.Status() {
				if s.State == StateAttending && s.Observed.IsValid() {
					seen = append(seen, s.Observed.Addr())
				}
			}
			if got := fmt.Sprint(seen); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		want("before any is there", "[]")
		endOne := w.serve("one:80", one.register)
		time.Sleep(limit.DiscoveryBackoff + settle)
		want("with one", "[192.0.2.77]")
		endTwo := w.serve("two:80", two.register)
		time.Sleep(limit.DiscoveryBackoff + settle)
		want("with both", "[192.0.2.78 192.0.2.77]")
		endOne()
		time.Sleep(limit.DiscoveryBackoff + settle)
		want("when one has gone", "[192.0.2.78]")
		endTwo()
		time.Sleep(limit.DiscoveryBackoff + settle)
		want("when both have", "[]")
	})
}
