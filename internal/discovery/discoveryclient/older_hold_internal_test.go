// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestOlderServiceThatTakesNothing: the same in the older protocol, where only what
// befalls our own push says so.
func TestOlderServiceThatTakesNothing(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	secret := newSecret(t)
	b := newOlderBook("s", "c", secretOf(t, secret).Sidero())
	b.snapshot(now, []*pb.Affiliate{affiliate(t, secret, "b", "b")})
	now = now.Add(time.Hour) // after the grace
	b.refused(now, true)
	b.refused(now, true)
	b.deleted(now, []*pb.Affiliate{{Id: "b"}})
	if said := b.said(now.Add(limit.DiscoveryTTL)); len(said) != 1 || !said[0].Stale {
		t.Errorf("it is not held: %+v", said)
	}
	b.refused(now, false)
	if said := b.said(now.Add(limit.DiscoveryTTL + returnGraceSlow)); len(said) != 0 {
		t.Errorf("it is held while the service tells and takes: %+v", said)
	}
	b.refused(now, true)
	b.away(now)
	b.snapshot(now, nil)
	if b.here.sessions != 1 {
		t.Errorf("%d sessions count, want the one that is there", b.here.sessions)
	}
}

// TestOlderRemovalWhileNothingIsTaken: who is said to be gone could not say that it is
// there, so that a list which lacks it ends nobody; its lease does, once others could.
func TestOlderRemovalWhileNothingIsTaken(t *testing.T) {
	secret := newSecret(t)
	for refuses, want := range map[bool]int{true: 1, false: 0} {
		now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
		b := newOlderBook("s", "c", secretOf(t, secret).Sidero())
		b.snapshot(now, []*pb.Affiliate{affiliate(t, secret, "b", "b")})
		now = now.Add(time.Hour)
		b.refused(now, refuses)
		b.deleted(now, []*pb.Affiliate{{Id: "b"}})
		now = now.Add(removalGrace)
		b.settle(now, nil)
		for _, at := range []time.Time{now, now.Add(limit.DiscoveryTTL)} {
			if said := b.said(at); len(said) != want || want == 1 && said[0].Stale != at.After(now) {
				t.Errorf("refuses %v: %+v", refuses, said)
			}
		}
		if due := b.doubts(); !due.IsZero() {
			t.Errorf("refuses %v: it is to be settled again at %v", refuses, due)
		}
		b.refused(now, false)
		if said := b.said(now.Add(limit.DiscoveryTTL + returnGraceSlow)); len(said) != 0 {
			t.Errorf("refuses %v: it is held though it could have come back: %+v", refuses, said)
		}
	}
}

// closedSidero is a service of the older protocol that can be told to take nothing.
type closedSidero struct {
	*sideroFake
	closed atomic.Bool
}

func (f *closedSidero) AffiliateUpdate(ctx context.Context, r *pb.AffiliateUpdateRequest) (*pb.AffiliateUpdateResponse, error) {
	if f.closed.Load() {
		return nil, status.Error(codes.Unavailable, "no store")
	}
	return f.sideroFake.AffiliateUpdate(ctx, r)
}

// TestOlderPushSaysWhetherItTakes: a push that is refused as unavailable says that the
// service takes nothing, the next one that is taken that it does.
func TestOlderPushSaysWhetherItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, svc := newWorld(t), newSecret(t), &closedSidero{sideroFake: newSideroFake()}
		svc.closed.Store(true)
		defer w.serve("one:80", func(s *grpc.Server) { pb.RegisterClusterServer(s, svc) })()
		a := older(w, secret, "a")
		defer a.stop()
		tells := func(after time.Duration) bool {
			time.Sleep(after)
			synctest.Wait()
			here := a.subs.all()[0].older.here
			here.mu.Lock()
			defer here.mu.Unlock()
			return here.sessions == 1
		}
		if tells(settle) {
			t.Error("it counts though it takes nothing")
		}
		svc.closed.Store(false)
		if !tells(announceRetry) {
			t.Error("it takes entries again, and does not count")
		}
	})
}

// TestOlderServiceThatTakesNothingUnderTheOtherSecret: a node pushes under its first
// secret alone, and what befalls that push counts for those whom it hears of under the
// other one as well: they are held while the service takes nothing, and who has died by
// then is gone when the others had time to come back.
func TestOlderServiceThatTakesNothingUnderTheOtherSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, was, next, svc := newWorld(t), newSecret(t), newSecret(t), &closedSidero{sideroFake: newSideroFake()}
		serve := func(f *closedSidero) func() {
			return w.serve("one:80", func(s *grpc.Server) { pb.RegisterClusterServer(s, f) })
		}
		end := serve(svc)
		start := func(name string, secrets ...string) *node {
			return w.start(setup{name: name, id: "cluster", secrets: secrets, services: []v1alpha1.MeshService{sidero("one")}})
		}
		a, b, c := start("a", next, was), start("b", was), start("c", was)
		defer a.stop()
		defer b.stop()
		a.knows(time.Hour, "b", "c")
		end()
		c.stop()
		svc = &closedSidero{sideroFake: newSideroFake()} // it comes back knowing nobody, and takes nothing
		svc.closed.Store(true)
		defer func() { end() }()
		end = serve(svc)
		a.knows(3*time.Hour, "b", "c")
		if !a.stale("b") || !a.stale("c") {
			t.Error("who cannot renew its lease is not marked")
		}
		svc.closed.Store(false)
		a.knows(announceRetry+settle, "b", "c")
		if a.stale("b") || !a.stale("c") {
			t.Errorf("b is stale: %v, c: %v; want c alone", a.stale("b"), a.stale("c"))
		}
		a.knows(returnGraceSlow+announceRetry, "b")
	})
}

// TestWhatOneSessionKnowsEndsWithIt: that a service takes nothing does not count for the
// other secrets when the session is over that was told so.
func TestWhatOneSessionKnowsEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, svc := newWorld(t), &closedSidero{sideroFake: newSideroFake()}
		defer w.serve("one:80", func(s *grpc.Server) { pb.RegisterClusterServer(s, svc) })()
		a := w.start(setup{name: "a", id: "cluster", secrets: []string{newSecret(t), newSecret(t), newSecret(t)}, services: []v1alpha1.MeshService{sidero("one")}})
		defer a.stop()
		time.Sleep(settle)
		synctest.Wait()
		counts := func() (out []int) {
			for _, c := range a.subs.all() {
				c.older.here.mu.Lock()
				out = append(out, c.older.here.sessions)
				c.older.here.mu.Unlock()
			}
			return out
		}
		session := &watching{c: a.subs.all()[0], refresh: time.NewTimer(time.Hour)}
		for _, step := range []struct {
			what string
			do   func()
			want []int // sessions that count, for each secret
		}{
			{"it attends", func() {}, []int{1, 1, 1}},
			{"it is refused", func() { session.refused(true) }, []int{0, 0, 0}},
			{"and again", func() { session.refused(true) }, []int{0, 0, 0}},
			{"it is over", func() { session.ends() }, []int{0, 1, 1}},
			{"the second secret's is over", func() { a.subs.all()[1].older.away(time.Now()) }, []int{0, 0, 1}},
			{"the next one is refused", func() { session.refused(true) }, []int{0, 0, 0}},
			{"the second secret's is back", func() { a.subs.all()[1].older.snapshot(time.Now(), nil) }, []int{0, 0, 0}},
			{"it is taken", func() { session.refused(false) }, []int{0, 1, 1}},
		} {
			if step.do(); !slices.Equal(counts(), step.want) {
				t.Errorf("%s: %v sessions count, want %v", step.what, counts(), step.want)
			}
		}
	})
}
