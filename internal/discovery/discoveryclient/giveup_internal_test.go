// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// farewells are the removals that a service was given for a cluster.
func (f *nativeFake) farewells(under seal.Keys) (out []*discovery.Entry) {
	for _, e := range f.putsOf() {
		if _, err := seal.Verify(under.Cluster(), under.Verifier(), e); err == nil && e.GetRemoved() {
			out = append(out, e)
		}
	}
	return out
}

// keeps checks that a node knows another one all the time.
func (n *node) keeps(other string, d time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if synctest.Wait(); n.member(other) == nil {
			n.t.Fatalf("it lost %s", other)
		}
	}
}

// TestASecretIsGivenUpWithoutAFarewell, also in an outage: who has both knows this node all the time, and for
// who was left with the old one alone its lease ends. A farewell would open its ranges there, and they
// would go in clear to a node that lives.
func TestASecretIsGivenUpWithoutAFarewell(t *testing.T) {
	for _, outage := range []bool{false, true} {
		t.Run(fmt.Sprintf("outage %v", outage), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, old, fresh := newWorld(t), newSecret(t), newSecret(t)
				svc := newNativeFake(t)
				end := w.serve("one:80", svc.register)
				of := func(name, dir string, secrets ...string) setup {
					return setup{name: name, dir: dir, secrets: secrets, services: []v1alpha1.MeshService{native("one")}}
				}
				dir := t.TempDir()
				a := w.start(of("a", dir, fresh, old))
				defer a.stop()
				both := w.start(of("both", t.TempDir(), fresh, old))
				defer both.stop()
				late := w.start(of("late", t.TempDir(), old))
				defer late.stop()
				both.knows(settle, "a", "late")
				late.knows(settle, "a", "both")
				if outage {
					end()
					time.Sleep(5 * time.Minute) // they ask once a minute
				}
				if _, err := a.Reload(w.config(of("a", dir, fresh))); err != nil {
					t.Fatal(err)
				}
				if outage {
					both.keeps("a", 5*time.Minute)
					end = w.serve("one:80", svc.register)
				}
				defer end()
				both.keeps("a", 2*limit.DiscoveryTTL)
				a.knows(0, "both")
				late.knows(0, "both")
				if result, _ := late.Result(); len(result.Removed) > 0 {
					t.Errorf("who has the old secret alone has heard a farewell of %v", result.Removed)
				}
				if bye := svc.farewells(secretOf(t, old).Keys()); len(bye) > 0 {
					t.Errorf("%d farewells", len(bye))
				}
			})
		})
	}
}

// TestASecretThatComesBack at once loses nobody.
func TestASecretThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, fresh := newWorld(t), newSecret(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		of := func(name, dir string, secrets ...string) setup {
			return setup{name: name, dir: dir, secrets: secrets, services: []v1alpha1.MeshService{native("one")}}
		}
		dir := t.TempDir()
		a := w.start(of("a", dir, fresh, old))
		defer a.stop()
		late := w.start(of("late", t.TempDir(), old))
		defer late.stop()
		late.knows(settle, "a")
		for range 3 {
			for _, secrets := range [][]string{{fresh}, {fresh, old}} {
				if _, err := a.Reload(w.config(of("a", dir, secrets...))); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		late.keeps("a", time.Minute)
		a.knows(0, "late")
		if bye := svc.farewells(secretOf(t, old).Keys()); len(bye) > 0 {
			t.Errorf("%d farewells under a secret that it has", len(bye))
		}
		a.knows(time.Hour, "late")
	})
}

// TestAReloadIsTakenAsAWhole: what cannot be announced leaves the secrets as they are, and
// the key that is proven.
func TestAReloadIsTakenAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, fresh := newWorld(t), newSecret(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := setup{name: "a", dir: t.TempDir(), secrets: []string{old}, services: []v1alpha1.MeshService{native("one")}}
		a := w.start(s)
		defer a.stop()
		a.knows(settle)
		before, _ := a.self.current()
		statuses := len(a.Status())
		s.secrets, s.member = []string{fresh, old}, func(m *v1alpha1.MeshAnnounce) {
			for i := range limit.DiscoveryEndpoints {
				m.Endpoints = append(m.Endpoints[:i], fmt.Sprintf("[2001:db8::%x]:51820", i+1))
			}
			for i := range limit.DiscoveryFacts { // each list is within its bound, and all of them are too much
				m.Addresses = append(m.Addresses, fmt.Sprintf("2001:db8::%x", i+1))
				m.Ranges = append(m.Ranges, fmt.Sprintf("2001:db8:1:%x::/64", i))
				m.Excluded = append(m.Excluded, fmt.Sprintf("2001:db8:2:%x::/64", i))
			}
		}
		next := w.config(s)
		if _, err := a.Reload(next); !fault.Has(err, fault.CodeEntryInvalid) {
			t.Errorf("it is %v, want entry_invalid", err)
		}
		time.Sleep(settle)
		synctest.Wait()
		now, _ := a.self.current()
		if len(a.Clusters()) != 1 || len(a.Status()) != statuses || now.version != before.version {
			t.Errorf("it goes on under %d secrets, at version %d after %d", len(a.Clusters()), now.version, before.version)
		}
		next.Announce = *before.member
		if _, err := a.Reload(next); err != nil || len(a.Clusters()) != 2 {
			t.Errorf("the next one: %v, %d secrets", err, len(a.Clusters()))
		}
		a.knows(settle)
		if s := a.Status(); slices.ContainsFunc(s, func(s Status) bool { return s.State != StateAttending }) {
			t.Errorf("%+v", s)
		}
	})
}

// TestTheWordUnderTheOtherSecretComesLater: it takes the place of the one under a secret that
// was given up meanwhile, so that the cache has it; and who had that secret alone is believed
// again when it comes back, but for what he said before.
func TestTheWordUnderTheOtherSecretComesLater(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	old, fresh := secretOf(t, newSecret(t)).Keys(), secretOf(t, newSecret(t)).Keys()
	both, alone := drawnKey(t), drawnKey(t)
	from := heardFrom{name: "s", at: now}
	b, version := newNativeBook(), uint64(now.UnixNano())
	says := func(k seal.Keys, m seal.MemberKey, more uint64) hearing {
		t.Helper()
		e := sealedAs(t, k, m, seal.Content{Version: version + more, TTL: limit.DiscoveryTTL, Member: &discovery.Member{Node: "n"}})
		_, how, err := b.hear(now, k, from, e)
		if err != nil {
			t.Fatal(err)
		}
		return how
	}
	says(old, both, 1)
	says(fresh, both, 1)
	says(old, both, 2)
	says(old, alone, 2)
	b.drop(now, old.Cluster())
	if how := says(fresh, both, 2); how == heardStale {
		t.Error("the word under the secret that stays is passed over")
	}
	cached, past := b.cache(now)
	if len(cached) != 1 || cached[0].Cluster != fresh.Cluster() || len(past) != 1 || past[0].ID != alone.ID() {
		t.Fatalf("the cache has %+v, and of the past %+v", cached, past)
	}
	e := new(discovery.Entry)
	if err := proto.Unmarshal(cached[0].Entry, e); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fresh.Open(e); err != nil {
		t.Errorf("who has the secret that stays cannot read the cache: %v", err)
	}
	if how := says(old, alone, 1); how != heardStale {
		t.Errorf("an old word of who was dropped is %s", how)
	}
	if how := says(old, alone, 2); how != heardNews {
		t.Errorf("the same word of who was dropped is %s", how)
	}
}
