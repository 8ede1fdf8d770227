// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// eyes notes all that a node's watcher is told, until the node stops.
type eyes struct {
	mu  sync.Mutex
	all []roster.Event
}

func (n *node) looks() *eyes {
	e := &eyes{}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	w := n.Watch()
	go func() {
		defer close(done)
		for {
			events, _, err := w.Next(ctx)
			if err != nil {
				return
			}
			e.mu.Lock()
			e.all = append(e.all, events...)
			e.mu.Unlock()
		}
	}()
	n.t.Cleanup(func() { cancel(); <-done })
	return e
}

// told are the events since it was asked last, a word each.
func (e *eyes) told() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, v := range e.all {
		line := string(v.What)
		if v.Member != nil {
			line += " " + v.Member.Node
		}
		for _, f := range v.Fields {
			line += " " + string(f)
		}
		out = append(out, line)
	}
	e.all = nil
	return strings.Join(out, "; ")
}

// TestANewKeyTakesOver: nobody sees the member go, two secrets and two services
// alike; the old key is over everywhere, and forgotten.
func TestANewKeyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, young, dir := newWorld(t), newSecret(t), newSecret(t), t.TempDir()
		one, two := newNativeFake(t), newNativeFake(t)
		defer w.serve("one:80", one.register)()
		defer w.serve("two:80", two.register)()
		services := []v1alpha1.MeshService{native("one"), native("two")}
		s := setup{name: "a", secrets: []string{young, secret}, services: services, dir: dir}
		a := w.start(s)
		defer func() { a.stop() }()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		defer b.stop()
		onlyTwo := w.start(setup{secrets: []string{young}, services: services[1:], mute: true})
		defer onlyTwo.stop()
		b.knows(settle, "a")
		seen, alsoSeen := b.looks(), onlyTwo.looks()
		time.Sleep(settle)
		seen.told()
		alsoSeen.told()
		for round := range 3 {
			before, _ := a.ID()
			puts := one.putsOf()
			r, err := Rotate(a.cfg)
			if err != nil || r.Old != before {
				t.Fatalf("round %d: %+v, %v", round, r, err)
			}
			if _, err := Rotate(a.cfg); !fault.Has(err, fault.CodeStateBusy) {
				t.Errorf("a second key before the first one is told of: %v", err)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			for name, e := range map[string]*eyes{"both": seen, "one service": alsoSeen} {
				if got := e.told(); got != "changed a id" {
					t.Errorf("round %d: a watcher of %s is told %q", round, name, got)
				}
			}
			if got := b.member("a").ID; got != r.New.String() {
				t.Errorf("b knows %v, the new one is %v", got, r.New)
			}
			for _, n := range []*node{a, b, onlyTwo} {
				if r, _ := n.Result(); len(r.Conflicts) != 0 {
					t.Errorf("conflicts: %+v", r.Conflicts)
				}
			}
			if now := onDisk(t, dir); now.key.ID() != r.New || !now.old.IsZero() || len(now.past) != 2 {
				t.Errorf("on disk: %v, old %v, %d words", now.key.ID(), now.old, len(now.past))
			}
			for _, svc := range []*nativeFake{one, two} {
				over := 0
				for _, e := range svc.putsOf() {
					if seal.MemberOf(e.GetMember()) == before && e.GetRemoved() && e.GetVersion() == math.MaxInt64 {
						over++
					}
				}
				if over != 2 {
					t.Errorf("the old key was removed %d times, of 2 secrets", over)
				}
			}
			one.tell(change(puts...)) // all that was ever said, again
			b.knows(settle, "a")
			if got := seen.told(); got != "" {
				t.Errorf("a replay tells %q", got)
			}
		}
		id, _ := a.ID()
		a.stop()
		a = w.start(s)
		b.knows(settle, "a")
		if again, _ := a.ID(); again != id || seen.told() != "" {
			t.Errorf("after a restart it is %v, was %v", again, id)
		}
		if err := a.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		b.knows(settle) // and none of the old ones comes back
	})
}

// TestTheOldKeyIsNotAskedForAgain: a service that comes back late is told then; one
// that never does keeps the old key no longer than the longest lease.
func TestAServiceThatIsAwayHoldsTheOldKey(t *testing.T) {
	for name, tc := range map[string]struct {
		back, until time.Duration
	}{
		"comes back": {10 * time.Minute, 12 * time.Minute},
		"never":      {0, limit.DiscoveryTTL + 20*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
				one, late := newNativeFake(t), newNativeFake(t)
				defer w.serve("one:80", one.register)()
				a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one"), native("late")}, dir: dir})
				defer a.stop()
				time.Sleep(settle)
				r, err := Rotate(a.cfg)
				if err != nil {
					t.Fatal(err)
				}
				at := time.Now()
				if tc.back > 0 {
					time.Sleep(tc.back)
					if onDisk(t, dir).old.IsZero() {
						t.Error("the old key is forgotten, and one service does not know it")
					}
					defer w.serve("late:80", late.register)()
				}
				time.Sleep(tc.until - time.Since(at))
				synctest.Wait()
				if now := onDisk(t, dir); now.key.ID() != r.New || !now.old.IsZero() {
					t.Errorf("after %v the disk still holds the old key", tc.until)
				}
				if puts := late.putsOf(); tc.back > 0 && (len(puts) < 2 || !puts[len(puts)-1].GetRemoved() || puts[0].GetSuccession() == nil) {
					t.Errorf("the late service was told %d things", len(puts))
				}
			})
		})
	}
}

// TestMakeBeforeBreak: where the new key is not taken, the old one is not removed.
func TestMakeBeforeBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc, full := newNativeFake(t), false
		svc.onPut = func(e *discovery.Entry) *discovery.FromService {
			if full && e.GetSuccession() != nil {
				return refusal("limit_reached", e.GetVersion(), 0)
			}
			return nil
		}
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		defer b.stop()
		b.knows(settle, "a")
		svc.mu.Lock()
		full = true
		svc.mu.Unlock()
		if _, err := Rotate(a.cfg); err != nil {
			t.Fatal(err)
		}
		b.knows(10*time.Minute, "a")
		for _, e := range svc.putsOf() {
			if e.GetRemoved() {
				t.Error("the old entry was removed before there was a new one")
			}
		}
		svc.mu.Lock()
		full = false
		svc.mu.Unlock()
		b.knows(2*time.Minute, "a")
		if last := svc.putsOf(); !last[len(last)-1].GetRemoved() {
			t.Error("the old entry was not removed")
		}
	})
}

// TestForgedSuccessions: who was not succeeded by its own word stays.
func TestForgedSuccessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		a := w.start(setup{name: "a", secrets: []string{secret}, services: services})
		defer a.stop()
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		defer b.stop()
		b.knows(settle, "a")
		w1, _ := a.self.current()
		victim, keys, mallory := w1.id.key, secretOf(t, secret).Keys(), drawnKey(t)
		forge := func(succession *discovery.Succession) *discovery.Entry {
			// Seal signs no succession that does not verify: one of its own is put in its place.
			own := drawnKey(t)
			e, err := keys.Seal(strings.NewReader("123456789012"), mallory, seal.Content{
				Version: uint64(time.Now().UnixNano()), TTL: time.Minute, Member: &discovery.Member{Node: "mallory"}, Succession: keys.Succeed(own, mallory.ID()),
			})
			if err != nil {
				t.Fatal(err)
			}
			e.Succession = succession
			return e
		}
		theirs := keys.Succeed(mallory, drawnKey(t).ID())
		theirs.OldMember = victim.Public()
		other := secretOf(t, newSecret(t)).Keys().Succeed(victim, mallory.ID())
		elsewhere := keys.Succeed(victim, drawnKey(t).ID())
		for _, s := range []*discovery.Succession{theirs, other, elsewhere, {}, {OldMember: victim.Public()}} {
			svc.tell(change(forge(s)))
		}
		b.knows(settle, "a")
		if s := b.Status()[0]; s.Junk != 5 {
			t.Errorf("%d were passed over", s.Junk)
		}
	})
}

// TestARestartGoesOn: whenever the member ends between the new file and the end of
// the old key, the next start finishes it.
func TestARestartGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		services := []v1alpha1.MeshService{native("one")}
		s := setup{name: "a", secrets: []string{secret}, services: services, dir: dir}
		a := w.start(s)
		b := w.start(setup{name: "b", secrets: []string{secret}, services: services})
		defer b.stop()
		b.knows(settle, "a")
		seen := b.looks()
		time.Sleep(settle)
		seen.told()
		a.stop()
		r, err := Rotate(a.cfg) // while nothing runs
		if err != nil {
			t.Fatal(err)
		}
		a = w.start(s)
		defer a.stop()
		b.knows(30*time.Second, "a")
		if id, _ := a.ID(); id != r.New || seen.told() != "changed a id" || !onDisk(t, dir).old.IsZero() {
			t.Errorf("after the restart it is %v, not %v", id, r.New)
		}
	})
}

// TestASecretIsRotated on one node after the other, as the howto has it: everybody
// who runs knows everybody all the time, and nobody is told that one went.
func TestASecretIsRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, young := newWorld(t), newSecret(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		names := []string{"a", "b", "c"}
		nodes, at := map[string]*node{}, map[string]setup{}
		others := func(name string) (out []string) {
			return slices.DeleteFunc(slices.Clone(names), func(o string) bool { return o == name })
		}
		restart := func(name string, secrets ...string) {
			if nodes[name] != nil {
				nodes[name].stop()
				time.Sleep(time.Minute)
			}
			s := at[name]
			s.name, s.secrets, s.services = name, secrets, []v1alpha1.MeshService{native("one")}
			if s.dir == "" {
				s.dir = t.TempDir()
			}
			at[name], nodes[name] = s, w.start(s)
			for _, n := range names {
				if nodes[n] != nil && len(nodes) == len(names) {
					nodes[n].knows(settle, others(n)...)
				}
			}
		}
		for _, n := range names {
			restart(n, old)
		}
		all := w.start(setup{secrets: []string{young, old}, services: []v1alpha1.MeshService{native("one")}, mute: true})
		defer all.stop()
		seen := all.looks()
		for _, secrets := range [][]string{{young, old}, {young}} {
			for _, n := range names {
				restart(n, secrets...)
			}
			time.Sleep(10 * time.Minute)
		}
		all.knows(2*limit.DiscoveryTTL, names...)
		if got := seen.told(); got != "joined a; joined b; joined c" {
			t.Errorf("a watcher of both secrets is told %q", got)
		}
		for _, n := range names {
			if r, _ := nodes[n].Result(); len(r.Conflicts) != 0 {
				t.Errorf("%s: conflicts: %+v", n, r.Conflicts)
			}
			nodes[n].stop()
		}
	})
}
