// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestPresence: when a member ends, by what services told in the meantime.
func TestPresence(t *testing.T) {
	start := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	at := func(m int) time.Time { return start.Add(time.Duration(m) * time.Minute) }
	type step struct {
		at   int
		what string
	}
	for _, c := range []struct {
		name  string
		steps []step
		until int
		want  map[int]int // at a minute: the minute of the end
	}{
		{"nobody ever told", nil, 30, map[int]int{0: 30, 30: 30 + 24*60, 25 * 60: 30 + 24*60}},
		{"a service tells", []step{{0, "tells"}}, 30, map[int]int{0: 30, 30: 30, 90: 30}},
		{"it is away when the lease ends", []step{{0, "tells"}, {20, "ends"}}, 30, map[int]int{29: 30, 31: 30 + 24*60}},
		{"and comes back", []step{{0, "tells"}, {20, "ends"}, {60, "tells"}}, 30, map[int]int{61: 62, 62: 30, 99: 30}},
		{"and goes in the grace", []step{{0, "tells"}, {20, "ends"}, {60, "tells"}, {61, "ends"}}, 30, map[int]int{63: 30 + 24*60}},
		{"and goes after it: who ended stays so", []step{{0, "tells"}, {20, "ends"}, {60, "tells"}, {70, "ends"}}, 30, map[int]int{71: 30}},
		{"it had ended before", []step{{0, "tells"}, {40, "ends"}}, 30, map[int]int{50: 30}},
		{"one of two goes", []step{{0, "tells"}, {1, "tells"}, {20, "ends"}}, 30, map[int]int{31: 30}},
	} {
		var p presence
		for _, s := range c.steps {
			if s.what == "tells" {
				p.tells(at(s.at), 2*time.Minute)
			} else {
				p.ends(at(s.at))
			}
		}
		for now, want := range c.want {
			if got := p.end(at(now), at(c.until)); !got.Equal(at(want)) {
				t.Errorf("%s: at minute %d it ends at %v, want %v", c.name, now, got, at(want))
			}
		}
	}
}

func (n *node) stale(name string) bool {
	m := n.member(name)
	return m != nil && m.Stale
}

// TestOutageBeyondTheLease: a service that is away for longer than leases parts nobody
// who lives. Who is not there when it is back is gone after the grace.
func TestOutageBeyondTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		end := w.serve("one:80", svc.register)
		s := []v1alpha1.MeshService{native("one")}
		a := w.start(setup{name: "a", dir: t.TempDir(), secrets: []string{secret}, services: s})
		b := w.start(setup{name: "b", secrets: []string{secret}, services: s})
		defer b.stop()
		c := w.start(setup{name: "c", secrets: []string{secret}, services: s})
		a.knows(settle, "b", "c")
		watch := a.Watch()
		watch.Now()
		end()
		time.Sleep(29 * time.Minute)
		if a.stale("b") {
			t.Error("b is stale before its lease is over")
		}
		a.knows(3*time.Hour, "b", "c")
		if !a.stale("b") || !a.stale("c") {
			t.Error("who is held is not marked")
		}
		for _, e := range watch.Now() {
			if e.What != roster.Altered || !slices.Contains(e.Fields, roster.FieldStale) {
				t.Errorf("an outage is told as %s %v", e.What, e.Fields)
			}
		}
		c.stop()
		svc = newNativeFake(t) // it comes back knowing nobody
		defer w.serve("one:80", svc.register)()
		a.knows(limit.DiscoveryBackoff+settle, "b", "c")
		if a.stale("b") {
			t.Error("b has come back, and is stale")
		}
		a.knows(returnGrace, "b")
		a.stop()
	})
}

// TestOutageAndRestart: who starts anew in the middle of an outage finds those whom it
// knew, for a day after their leases and no longer.
func TestOutageAndRestart(t *testing.T) {
	for _, protocol := range []string{"native", "older"} {
		synctest.Test(t, func(t *testing.T) {
			w, secret := newWorld(t), newSecret(t)
			svc, register := native("one"), newNativeFake(t).register
			if protocol == "older" {
				svc, register = sidero("one"), newSideroFake().register
			}
			end := w.serve("one:80", register)
			s := setup{name: "a", id: "c", dir: t.TempDir(), secrets: []string{secret}, services: []v1alpha1.MeshService{svc}}
			a := w.start(s)
			b := w.start(setup{name: "b", id: "c", secrets: []string{secret}, services: s.services})
			a.knows(settle, "b")
			end()
			b.stop()
			for _, off := range []time.Duration{0, 20 * time.Hour} {
				time.Sleep(40 * time.Minute)
				a.stop()
				time.Sleep(off)
				a = w.start(s)
				a.knows(settle, "b")
				if !a.stale("b") {
					t.Errorf("%s: b is not marked", protocol)
				}
			}
			a.stop()
			time.Sleep(4 * time.Hour)
			a = w.start(s)
			a.knows(settle)
			a.stop()
		})
	}
}

// TestOlderOutage: the same where services of the older protocol are all there is.
func TestOlderOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newSideroFake()
		svc.members["b"] = affiliate(t, secret, "b", "b")
		end := w.serve("one:80", svc.register)
		a := older(w, secret, "a")
		defer a.stop()
		a.knows(settle, "b")
		end()
		a.knows(5*time.Hour, "b")
		if !a.stale("b") {
			t.Error("b is not marked")
		}
		svc = newSideroFake()
		defer w.serve("one:80", func(s *grpc.Server) { svc.register(s) })()
		a.knows(returnGraceSlow, "b")
		a.knows(limit.DiscoveryBackoff + settle)
	})
}

// TestReplayAfterRestart: who has left does not come back by an old entry, though the
// node that hears it was restarted since.
func TestReplayAfterRestart(t *testing.T) {
	for _, off := range []time.Duration{0, 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
			defer w.serve("one:80", svc.register)()
			keys := secretOf(t, secret).Keys()
			m := drawnKey(t)
			old := sealed(t, keys, m, uint64(time.Now().UnixNano()), "b")
			s := setup{name: "a", dir: t.TempDir(), secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}}
			a := w.start(s)
			time.Sleep(settle)
			svc.tell(change(old))
			a.knows(settle, "b")
			svc.tell(change(keys.Remove(m, uint64(time.Now().UnixNano()), 30*time.Minute)))
			a.knows(settle)
			time.Sleep(time.Hour - off/2)
			for range 2 { // the second time from what the first one has written of it
				a.stop()
				time.Sleep(off)
				a = w.start(s)
				time.Sleep(settle)
				svc.tell(change(old))
				a.knows(settle)
			}
			a.stop()
		})
	}
}

// TestServiceThatTakesNothing: a service whose store is away parts nobody, though it is
// there, and for shorter leases as well. Who has died by then is gone once it takes
// entries again and the others had time to come back.
func TestServiceThatTakesNothing(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
			defer w.serve("one:80", svc.register)()
			s := []v1alpha1.MeshService{native("one")}
			a := w.start(setup{name: "a", secrets: []string{secret}, services: s, lease: lease})
			defer a.stop()
			b := w.start(setup{name: "b", secrets: []string{secret}, services: s, lease: lease})
			defer b.stop()
			c := w.start(setup{name: "c", secrets: []string{secret}, services: s, lease: lease})
			a.knows(5*time.Minute, "b", "c")
			svc.mu.Lock()
			svc.onPut = func(e *discovery.Entry) *discovery.FromService {
				return refusal("store_unavailable", e.GetVersion(), 0)
			}
			svc.mu.Unlock()
			a.knows(3*time.Hour, "b", "c")
			if !a.stale("b") {
				t.Error("who cannot renew its lease is not marked")
			}
			c.stop()
			svc.mu.Lock()
			svc.onPut = nil
			svc.mu.Unlock()
			a.knows(announceRetry+settle, "b", "c")
			if a.stale("b") {
				t.Error("b has renewed its lease, and is stale")
			}
			a.knows(returnGrace, "b")
		})
	}
}

// TestRetrySoonForShortLeases: a lease of a minute does not end for a refusal that
// passes at once.
func TestRetrySoonForShortLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		svc.onPut = func(e *discovery.Entry) *discovery.FromService {
			return refusal("store_unavailable", e.GetVersion(), 0)
		}
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}, lease: time.Minute})
		defer a.stop()
		time.Sleep(settle)
		before := len(svc.putsOf())
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if after := len(svc.putsOf()); before != 1 || after != 2 {
			t.Errorf("it was put %d times, and %d times by a tenth of its lease later; want 1, 2", before, after)
		}
		svc.mu.Lock()
		svc.onPut = func(e *discovery.Entry) *discovery.FromService {
			return refusal("limit_reached", e.GetVersion(), 0)
		}
		svc.mu.Unlock()
		time.Sleep(12 * time.Second)
		before = len(svc.putsOf())
		time.Sleep(announceRetry - 13*time.Second)
		synctest.Wait()
		if after := len(svc.putsOf()); after != before {
			t.Errorf("what a bound refuses was put %d times in less than a minute", after-before)
		}
	})
}

// TestClosedService: one who only watches puts nothing, and forgets nobody while the
// service says that it takes no entries.
func TestClosedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := []v1alpha1.MeshService{native("one")}
		a := w.start(setup{name: "a", mute: true, secrets: []string{secret}, services: s})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: s})
		a.knows(5*time.Minute, "b")
		svc.tell(standing(true, true))
		b.stop()
		a.knows(3*time.Hour, "b")
		if !a.stale("b") {
			t.Error("b is not marked")
		}
		svc.tell(standing(false, true))
		a.knows(returnGrace-settle, "b")
		a.knows(2 * settle)
	})
}

// TestSettledLater: a service that began without its state says when it has settled, and
// of one that does not the node believes it after a while.
func TestSettledLater(t *testing.T) {
	for _, says := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
			svc.unready = true
			defer w.serve("one:80", svc.register)()
			a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
			defer a.stop()
			a.knows(settle)
			if len(a.Settled()) != 1 {
				t.Error("it is settled at once")
			}
			if says {
				svc.tell(standing(false, true))
			} else {
				a.knows(returnGraceSlow - 2*settle)
				if len(a.Settled()) != 1 {
					t.Error("it is settled before it may be")
				}
				time.Sleep(settle)
			}
			a.knows(settle)
			if waiting := a.Settled(); len(waiting) != 0 {
				t.Errorf("it is awaited for ever: %v", waiting)
			}
		})
	}
}

func standing(closed, settled bool) *discovery.FromService {
	return &discovery.FromService{Frame: &discovery.FromService_Standing{Standing: &discovery.Standing{Closed: closed, Settled: settled}}}
}

// TestAnotherServiceIsThere: who is known by one service alone is held while that one is
// away, though another one tells; who is known by both ends when one of them says so.
func TestAnotherServiceIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		one, two := newNativeFake(t), newNativeFake(t)
		end := w.serve("one:80", one.register)
		defer w.serve("two:80", two.register)()
		both := []v1alpha1.MeshService{native("one"), native("two")}
		a := w.start(setup{name: "a", secrets: []string{secret}, services: both})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: both[:1]})
		defer b.stop()
		c := w.start(setup{name: "c", secrets: []string{secret}, services: both})
		a.knows(settle, "b", "c")
		end()
		c.stop()
		a.knows(40*time.Minute, "b")
		if !a.stale("b") {
			t.Error("b is not marked")
		}
	})
}

// TestExpiredInTheGrace: who is said to have run out by a service that has come back has
// the time of all others to come back to it.
func TestExpiredInTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), newNativeFake(t)
		end := w.serve("one:80", svc.register)
		s := []v1alpha1.MeshService{native("one")}
		dir := t.TempDir()
		b := w.start(setup{name: "b", dir: dir, secrets: []string{secret}, services: s})
		time.Sleep(time.Minute)
		a := w.start(setup{name: "a", secrets: []string{secret}, services: s})
		defer a.stop()
		a.knows(settle, "b")
		key, err := memberKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		id := key.ID()
		expired := &discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Expired: [][]byte{id[:]}}}}
		end()
		b.stop()
		time.Sleep(20 * time.Minute)
		defer w.serve("one:80", svc.register)()
		time.Sleep(limit.DiscoveryBackoff + settle)
		svc.tell(expired)
		a.knows(settle, "b")
		if !a.stale("b") {
			t.Error("b is not marked")
		}
		a.knows(returnGrace)
	})
}
