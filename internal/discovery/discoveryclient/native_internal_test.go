// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestMembersFindEachOther: what one announces the others know, with its source,
// and a change reaches them; a farewell ends it at once, a silent end with the lease.
func TestMembersFindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services, lease: 10 * time.Minute})
		defer b.stop()
		watcher := w.start(setup{secrets: []string{secret}, services: services, mute: true})
		defer watcher.stop()
		a.knows(settle, "b")
		b.knows(0, "a")
		watcher.knows(0, "a", "b")
		m := b.member("a")
		if m.Key != keyOf("a") || len(m.Endpoints) != 1 || len(m.Entries) != 1 || m.Entries[0].Source != (roster.Source{Tier: roster.TierNative, Name: "one:80"}) {
			t.Errorf("b knows of a: %+v", m)
		}
		if s := a.Status()[0]; s.State != StateAttending || s.Protocol != ProtocolNative || !s.Settled || s.Members != 2 || s.Observed.String() != "192.0.2.77:4711" {
			t.Errorf("the status is %+v", s)
		}
		next := a.cfg.Announce
		next.Hostname = "another"
		if err := a.Announce(next); err != nil {
			t.Fatal(err)
		}
		b.knows(settle, "a")
		if got := b.member("a").Hostname; got != "another" {
			t.Errorf("the host name is %q", got)
		}
		if err := a.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		b.knows(settle)
		b.stop() // no farewell
		watcher.knows(9*time.Minute, "b")
		watcher.knows(time.Minute + settle)
	})
}

// TestLeasesAreRenewed: each third of a lease, with growing versions that are kept on disk.
func TestLeasesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		s := setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}, lease: 30 * time.Minute, dir: dir}
		a := w.start(s)
		time.Sleep(time.Hour + settle)
		id, _ := a.ID()
		a.stop()
		puts := svc.putsOf()
		if len(puts) != 7 {
			t.Errorf("%d announcements in an hour and a moment, want 7", len(puts))
		}
		again := w.start(s) // with the clock of before: the version comes from the disk
		time.Sleep(settle)
		if now, _ := again.ID(); now != id {
			t.Error("the member has another key after a restart")
		}
		again.stop()
		puts = svc.putsOf()
		for i := range puts[1:] {
			if puts[i+1].GetVersion() <= puts[i].GetVersion() {
				t.Errorf("version %d follows %d", puts[i+1].GetVersion(), puts[i].GetVersion())
			}
		}
		if got := lastVersion(dir); got != puts[len(puts)-1].GetVersion() {
			t.Errorf("version %d is kept, %d was announced", got, puts[len(puts)-1].GetVersion())
		}
	})
}

// TestAServiceThatForgetsWipesNobody: away, and back with nothing, it ends no lease.
func TestAServiceThatForgetsWipesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		end := w.serve("one:80", svc.register)
		services := []v1alpha1.MeshService{native("one")}
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		a.knows(settle, "b")
		b.stop()
		end()
		a.knows(5*time.Minute, "b")
		if s := a.Status()[0]; s.State != StateAway || s.Code != fault.CodeServiceAway || s.Errors == 0 || s.Reason == "" {
			t.Errorf("the status of a service that is away: %+v", s)
		}
		empty := newNativeFake(t)
		defer w.serve("one:80", empty.register)()
		a.knows(20*time.Minute, "b")
		if len(empty.putsOf()) == 0 {
			t.Error("a did not announce itself to the new one")
		}
		a.knows(5 * time.Minute)
	})
}

// TestReplaysAndJunkArePassedOver: old versions lose, and what cannot be read harms nobody.
func TestReplaysAndJunkArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		defer b.stop()
		time.Sleep(settle) // its entry is the first that is put
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		a.knows(settle, "b")
		old := svc.putsOf()[0]
		next := b.cfg.Announce
		next.Hostname = "new"
		b.Announce(next)
		a.knows(settle, "b")
		stranger := *newAnnouncer(drawnKey(t), []seal.Keys{secretOf(t, newSecret(t)).Keys()}, time.Minute, 0)
		stranger.changed = make(chan struct{})
		if err := stranger.announce(time.Now(), next); err != nil {
			t.Fatal(err)
		}
		svc.tell(change(old))
		svc.tell(change(stranger.now.entries[0], &discovery.Entry{}, &discovery.Entry{Member: []byte{1}, Version: 3}))
		svc.tell(&discovery.FromService{})
		svc.tell(&discovery.FromService{Frame: &discovery.FromService_Ack{Ack: &discovery.Ack{Version: 99}}})
		svc.tell(&discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Expired: [][]byte{{1}, nil, make([]byte, 32)}}}})
		a.knows(settle, "b")
		if got := a.member("b").Hostname; got != "new" {
			t.Errorf("a replay won: %q", got)
		}
		if s := a.Status()[0]; s.Stale != 1 || s.Junk != 3 || s.State != StateAttending {
			t.Errorf("the status is %+v", s)
		}
		// The removal, and then what was before it: it does not return.
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		a.knows(settle)
		svc.tell(change(old))
		a.knows(settle)
		a.knows(40 * time.Minute)
		svc.tell(change(old)) // long after
		a.knows(settle)
	})
}

// TestAVersionThatTheServiceKnowsIsPassed: a lost version file heals by itself, and a
// service that lies about it takes nothing away.
func TestAVersionThatTheServiceKnowsIsPassed(t *testing.T) {
	for name, tc := range map[string]struct {
		known func() uint64
		taken bool
	}{
		"ahead":      {func() uint64 { return uint64(time.Now().Add(24 * time.Hour).UnixNano()) }, true},
		"centuries":  {func() uint64 { return uint64(time.Now().Add(60 * 365 * 24 * time.Hour).UnixNano()) }, false},
		"the last":   {func() uint64 { return math.MaxInt64 }, false},
		"beyond":     {func() uint64 { return math.MaxUint64 }, false},
		"not at all": {func() uint64 { return 0 }, false},
		"an old one": {func() uint64 { return 17 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), newSecret(t)
				svc, honest := newNativeFake(t), newNativeFake(t)
				known := tc.known()
				svc.onPut = func(e *discovery.Entry) *discovery.FromService {
					if e.GetVersion() <= known || !tc.taken {
						return refusal("entry_stale", e.GetVersion(), known)
					}
					return nil
				}
				defer w.serve("one:80", svc.register)()
				defer w.serve("two:80", honest.register)()
				a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one"), native("two")}})
				defer a.stop()
				time.Sleep(settle)
				synctest.Wait()
				puts, fine := svc.putsOf(), honest.putsOf()
				if last := puts[len(puts)-1].GetVersion(); tc.taken && last <= known || !tc.taken && len(puts) != 1 {
					t.Errorf("%d announcements, the last with version %d; %d is known", len(puts), last, known)
				}
				if len(fine) == 0 || a.Status()[1].State != StateAttending {
					t.Error("the other service suffers")
				}
				if s := a.Status()[0]; (s.Refused == "") != tc.taken {
					t.Errorf("the status says %q", s.Refused)
				}
				time.Sleep(15 * time.Minute)
				if now, _ := a.self.current(); now.version > uint64(time.Now().Add(48*time.Hour).UnixNano()) {
					t.Errorf("version %d", now.version)
				}
			})
		})
	}
}

// TestRotation: during the rotation of secrets everybody knows everybody who shares one.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, young := newWorld(t), newSecret(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		both := w.start(setup{name: "both", secrets: []string{young, old}, services: services})
		defer both.stop()
		before := w.start(setup{name: "before", secrets: []string{old}, services: services})
		defer before.stop()
		after := w.start(setup{name: "after", secrets: []string{young}, services: services})
		defer after.stop()
		also := w.start(setup{name: "also", secrets: []string{young, old}, services: services})
		defer also.stop()
		both.knows(settle, "after", "also", "before")
		before.knows(0, "also", "both")
		after.knows(0, "also", "both")
		also.knows(15*time.Minute, "after", "before", "both")
		if r, _ := both.Result(); len(r.Conflicts) != 0 {
			t.Errorf("conflicts: %+v", r.Conflicts)
		}
		if len(both.Status()) != 2 {
			t.Errorf("a session for each secret: %+v", both.Status())
		}
	})
}

// TestExpiredEndsWhatWasListed: how much of a lease was left when we came, the service knows.
func TestExpiredEndsWhatWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		time.Sleep(settle)
		b.stop()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		a.knows(settle+returnGrace, "b") // the grace of a service that we know since now
		id, _ := b.ID()
		svc.tell(&discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Expired: [][]byte{id[:]}}}})
		a.knows(settle)
	})
}

// TestExpiredByASessionThatIsLeft: an instance of a service that is being left, and has not heard that a member is
// back, takes nothing away that the next instance has listed. That one would not tell it again.
func TestExpiredByASessionThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		old, next := newNativeFake(t), newNativeFake(t)
		defer w.serve("one:80", old.register)()
		back := setup{name: "b", dir: dir, secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}}
		b := w.start(back)
		time.Sleep(settle)
		b.stop()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: back.services})
		defer a.stop()
		a.knows(settle+returnGrace, "b")
		own, _ := a.ID()
		next.onPut = func(e *discovery.Entry) *discovery.FromService {
			if seal.MemberOf(e.GetMember()) == own {
				return &discovery.FromService{} // no answer: the old session goes on
			}
			return nil
		}
		defer w.serve("one:80", next.register)() // a load balancer leads there from now on
		b = w.start(back)
		defer b.stop()
		time.Sleep(settle)
		old.tell(&discovery.FromService{Frame: &discovery.FromService_Drain{Drain: &discovery.Drain{}}})
		a.knows(10*time.Second, "b")
		if next.mu.Lock(); next.attended != 2 {
			t.Fatalf("%d sessions at the next instance", next.attended)
		}
		next.mu.Unlock()
		id, _ := b.ID()
		change := &discovery.Change{Expired: [][]byte{id[:]}}
		expired := &discovery.FromService{Frame: &discovery.FromService_Change{Change: change}}
		old.tell(expired)
		a.knows(settle, "b")
		next.tell(expired)
		a.knows(settle)
	})
}

// TestARefusedAnnouncementIsTriedAgain, and the session goes on.
func TestARefusedAnnouncementIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		full := true
		svc.onPut = func(e *discovery.Entry) *discovery.FromService {
			if full {
				return refusal("limit_reached", e.GetVersion(), 0)
			}
			return nil
		}
		defer w.serve("one:80", svc.register)()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}})
		defer a.stop()
		time.Sleep(settle)
		synctest.Wait()
		if s := a.Status()[0]; s.State != StateAttending || s.Refused == "" {
			t.Errorf("the status is %+v", s)
		}
		svc.mu.Lock()
		full = false
		svc.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := a.Status()[0]; s.Refused != "" || len(svc.entries) != 1 {
			t.Errorf("the status is %+v, %d entries are there", s, len(svc.entries))
		}
	})
}

func secretOf(t *testing.T, file string) seal.Secret {
	t.Helper()
	s, err := ReadSecret(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
