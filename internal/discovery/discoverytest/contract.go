// SPDX-License-Identifier: Apache-2.0

// Package discoverytest is what every store of the discovery service must do: one
// contract, which runs over each of them.
package discoverytest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Opener opens a store over an empty board and runs it: over what the one before
// left, where the same Opener was called before. stop ends it, and waits.
type Opener func(t *testing.T, b *discovery.Board) (s discovery.Store, stop func())

// Contract is what every store must do. Nothing in it needs real time but the
// store itself: it runs in simulated time as well.
func Contract() map[string]func(*testing.T, Opener) {
	return map[string]func(*testing.T, Opener){
		"an update is read at once":          contractReadYourWrite,
		"a lease ends, and a renewed stays":  contractExpiry,
		"a signed lease is what it says":     contractShorter,
		"an endpoint ends, the member stays": contractEndpoint,
		"a member is deleted":                contractDelete,
		"a stale version is refused":         contractStale,
		"the very word again is taken":       contractRepeat,
		"a removal keeps the old away":       contractRemoval,
		"bounds hold":                        contractBounds,
		"a watcher sees the last of each":    contractWatch,
		"a restart keeps what was taken":     contractRestart,
		"who gave up changes nothing":        contractCancelled,
	}
}

const long = 10 * time.Minute

func in(p discovery.Protocol, cluster, member string) discovery.Place {
	return discovery.Place{Cluster: discovery.Cluster{Protocol: p, ID: cluster}, Member: member}
}

func sidero(member string) discovery.Place { return in(discovery.Sidero, "c", member) }

func native(member string) discovery.Place { return in(discovery.Native, "n", member) }

func opened(t *testing.T, open Opener, bounds discovery.Bounds) (discovery.Store, *discovery.Board) {
	t.Helper()
	b := discovery.NewBoard(bounds)
	s, stop := open(t, b)
	t.Cleanup(stop)
	return s, b
}

func update(t *testing.T, s discovery.Store, p discovery.Place, u roster.Update) {
	t.Helper()
	if err := s.Update(runtest.Within(t), p, u); err != nil {
		t.Fatal(err)
	}
}

func ids(all []discovery.Listing) (out []string) {
	for _, l := range all {
		out = append(out, l.ID)
	}
	return out
}

func wantIDs(t *testing.T, b *discovery.Board, c discovery.Cluster, want ...string) {
	t.Helper()
	if got := ids(b.List(c)); !slices.Equal(got, want) {
		t.Fatalf("members %q, want %q", got, want)
	}
}

func wantFault(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Has(err, code) || fault.From(err).Next == "" {
		t.Fatalf("%v, want %s with a next step", err, code)
	}
}

func contractReadYourWrite(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, sidero("b"), roster.Update{Data: []byte("one"), Endpoints: [][]byte{[]byte("e1")}, TTL: long})
	update(t, s, sidero("a"), roster.Update{Endpoints: [][]byte{[]byte("e1"), []byte("e2")}, TTL: long})
	update(t, s, in(discovery.Native, "c", "a"), roster.Update{Data: []byte("n"), Version: 1, TTL: long})
	update(t, s, sidero("b"), roster.Update{Data: []byte("two"), TTL: long})
	wantIDs(t, b, sidero("").Cluster, "a", "b")
	got := b.Get(sidero("b"))
	if string(got.Data) != "two" || len(got.Endpoints) != 1 || string(got.Endpoints[0].Blob) != "e1" {
		t.Errorf("%+v", got)
	}
	if a := b.Get(sidero("a")); a.Data != nil || len(a.Endpoints) != 2 {
		t.Errorf("%+v", a)
	}
	if n := b.Get(in(discovery.Native, "c", "a")); string(n.Data) != "n" || n.Version != 1 {
		t.Errorf("%+v", n)
	}
}

func contractExpiry(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, sidero("ends"), roster.Update{Data: []byte("x"), TTL: time.Second})
	update(t, s, sidero("renewed"), roster.Update{Data: []byte("x"), TTL: time.Second})
	update(t, s, sidero("renewed"), roster.Update{Data: []byte("x"), TTL: long})
	update(t, s, sidero("reported"), roster.Update{Data: []byte("x"), TTL: time.Second})
	update(t, s, sidero("reported"), roster.Update{Endpoints: [][]byte{[]byte("e")}, TTL: long})
	runtest.Eventually(t, "the lease ends", func() bool { return !b.Get(sidero("ends")).Exists() })
	wantIDs(t, b, sidero("").Cluster, "renewed", "reported")
}

func contractEndpoint(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, sidero("m"), roster.Update{Data: []byte("x"), Endpoints: [][]byte{[]byte("stays")}, TTL: long})
	update(t, s, sidero("m"), roster.Update{Endpoints: [][]byte{[]byte("ends")}, TTL: time.Second})
	if got := len(b.Get(sidero("m")).Endpoints); got != 2 {
		t.Fatalf("%d endpoints", got)
	}
	runtest.Eventually(t, "the endpoint ends", func() bool { return len(b.Get(sidero("m")).Endpoints) == 1 })
	if got := b.Get(sidero("m")); string(got.Endpoints[0].Blob) != "stays" || string(got.Data) != "x" {
		t.Errorf("%+v", got)
	}
}

func contractDelete(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	ctx := runtest.Within(t)
	update(t, s, sidero("a"), roster.Update{Data: []byte("x"), TTL: long})
	update(t, s, native("signed"), roster.Update{Data: []byte("x"), Version: 3, TTL: long})
	for range 2 { // what is gone may be deleted again
		if err := s.Delete(ctx, sidero("a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(ctx, in(discovery.Sidero, "there is none", "a")); err != nil {
		t.Fatal(err)
	}
	wantFault(t, s.Delete(ctx, native("signed")), fault.CodeEntryInvalid)
	wantIDs(t, b, native("").Cluster, "signed")
	wantIDs(t, b, sidero("").Cluster)
	clusters, members, bytes := b.Counts()
	alone := discovery.NewBoard(discovery.Bounds{})
	alone.Follow(native("signed"), netip.Addr{}, b.Get(native("signed")))
	if _, _, one := alone.Counts(); clusters != 1 || members != 1 || bytes != one {
		t.Errorf("%d clusters, %d members, %d bytes are left, of %d", clusters, members, bytes, one)
	}
}

func contractStale(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, native("m"), roster.Update{Data: []byte("5"), Version: 5, TTL: long})
	for _, version := range []uint64{5, 4, 1} {
		err := s.Update(runtest.Within(t), native("m"), roster.Update{Data: []byte("old"), Version: version, TTL: long})
		wantFault(t, err, fault.CodeEntryStale)
	}
	update(t, s, native("m"), roster.Update{Data: []byte("6"), Version: 6, TTL: long})
	if got := b.Get(native("m")); string(got.Data) != "6" || got.Version != 6 {
		t.Errorf("%+v", got)
	}
}

// contractRepeat: who had no answer says the same again, and is not told that it is
// too late; nor does it get more than it was given.
func contractRepeat(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	u := roster.Update{Data: []byte("5"), Version: 5, TTL: long}
	update(t, s, native("m"), u)
	u.TTL = 2 * long
	update(t, s, native("m"), u)
	if left := time.Until(b.Get(native("m")).Expires); left > long {
		t.Errorf("saying it again made %v of %v", left, long)
	}
	gone := roster.Update{Data: []byte("away"), Version: 6, Removed: true, TTL: long}
	update(t, s, native("m"), gone)
	update(t, s, native("m"), gone)
	gone.Removed = false
	wantFault(t, s.Update(runtest.Within(t), native("m"), gone), fault.CodeEntryStale)
	wantFault(t, s.Update(runtest.Within(t), native("m"), u), fault.CodeEntryStale)
	wantIDs(t, b, native("").Cluster)
}

// contractShorter: an entry with a version sets the lease, shorter ones too.
func contractShorter(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, native("m"), roster.Update{Data: []byte("1"), Version: 1, TTL: long})
	update(t, s, native("m"), roster.Update{Data: []byte("2"), Version: 2, TTL: time.Second})
	update(t, s, sidero("m"), roster.Update{Data: []byte("1"), TTL: long})
	update(t, s, sidero("m"), roster.Update{Data: []byte("2"), TTL: time.Second})
	runtest.Eventually(t, "the shorter lease ends", func() bool { return !b.Get(native("m")).Exists() })
	wantIDs(t, b, sidero("").Cluster, "m")
	update(t, s, native("m"), roster.Update{Data: []byte("1"), Version: 1, TTL: long}) // nothing is known of it any more
}

func contractRemoval(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	update(t, s, native("m"), roster.Update{Data: []byte("5"), Version: 5, TTL: long})
	update(t, s, native("m"), roster.Update{Data: []byte("away"), Version: 6, Removed: true, TTL: time.Second})
	wantIDs(t, b, native("").Cluster)
	wantFault(t, s.Update(runtest.Within(t), native("m"), roster.Update{Data: []byte("5"), Version: 5, TTL: long}),
		fault.CodeEntryStale)
	if left := time.Until(b.Get(native("m")).Expires); left < 2*long {
		t.Errorf("the removal is kept for %v", left)
	}
	update(t, s, native("m"), roster.Update{Data: []byte("7"), Version: 7, TTL: time.Minute})
	wantIDs(t, b, native("").Cluster, "m")
	if left := time.Until(b.Get(native("m")).Expires); left > time.Minute+5*time.Second {
		t.Errorf("who came back has the removal's lease: %v", left)
	}
}

func contractBounds(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{Clusters: 2, Members: 2, Endpoints: 2, Bytes: 100_000})
	ctx := runtest.Within(t)
	one := roster.Update{Data: []byte("x"), TTL: long}
	update(t, s, sidero("a"), one)
	update(t, s, sidero("b"), roster.Update{Data: []byte("x"), Endpoints: [][]byte{{1}, {2}}, TTL: long})
	update(t, s, in(discovery.Sidero, "d", "a"), one)
	before := b.Get(sidero("b"))
	for what, try := range map[string]struct {
		p discovery.Place
		u roster.Update
	}{
		"a third member":   {sidero("c"), one},
		"a third endpoint": {sidero("b"), roster.Update{Data: []byte("y"), Endpoints: [][]byte{{3}}, TTL: long}},
		"a third cluster":  {in(discovery.Sidero, "e", "a"), one},
		"too many bytes":   {sidero("b"), roster.Update{Data: make([]byte, 100_000), TTL: long}},
	} {
		err := s.Update(ctx, try.p, try.u)
		if !fault.Has(err, fault.CodeLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := b.Get(sidero("b")); string(got.Data) != string(before.Data) || len(got.Endpoints) != 2 {
		t.Errorf("half of what was refused is there: %+v", got)
	}
	update(t, s, sidero("a"), roster.Update{Data: []byte("z"), TTL: long}) // who is in stays in
	if clusters, members, _ := b.Counts(); clusters != 2 || members != 3 {
		t.Errorf("%d clusters, %d members", clusters, members)
	}
}

// contractWatch: for each member a watcher sees states in the order in which they
// were, and the last of them in the end.
func contractWatch(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	ctx := runtest.Within(t)
	update(t, s, native("0"), roster.Update{Data: []byte("1"), Version: 1, TTL: long})
	w := b.Watch(native("").Cluster)
	defer w.Close()
	var first []discovery.Listing
	if _, err := w.Snapshot(func(all []discovery.Listing) [][]byte { first = all; return nil }, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids(first), []string{"0"}) {
		t.Fatalf("the first answer is %q", ids(first))
	}
	const members, last = 3, 20
	for v := uint64(2); v <= last; v++ {
		for m := range members {
			update(t, s, native(strconv.Itoa(m)), roster.Update{Data: []byte(strconv.FormatUint(v, 10)), Version: v, TTL: long})
		}
	}
	seen := map[string]uint64{}
	for done := 0; done < members; {
		changes, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range changes {
			if l.Lease.Version <= seen[l.ID] || string(l.Lease.Data) != strconv.FormatUint(l.Lease.Version, 10) {
				t.Fatalf("member %s: version %d with %q after %d", l.ID, l.Lease.Version, l.Lease.Data, seen[l.ID])
			}
			if seen[l.ID] = l.Lease.Version; l.Lease.Version == last {
				done++
			}
		}
	}
	update(t, s, native("0"), roster.Update{Data: []byte("away"), Version: last + 1, Removed: true, TTL: long})
	changes, err := w.Next(ctx)
	if err != nil || len(changes) != 1 || changes[0].ID != "0" || changes[0].Lease.Listed() {
		t.Fatalf("%+v, %v", changes, err)
	}
}

func contractRestart(t *testing.T, open Opener) {
	b := discovery.NewBoard(discovery.Bounds{})
	s, stop := open(t, b)
	update(t, s, sidero("a"), roster.Update{Data: []byte("x"), Endpoints: [][]byte{[]byte("e")}, TTL: long})
	update(t, s, sidero("bare"), roster.Update{Endpoints: [][]byte{[]byte("e")}, TTL: long})
	update(t, s, native("m"), roster.Update{Data: []byte("5"), Version: 5, TTL: long})
	update(t, s, native("gone"), roster.Update{Data: []byte("away"), Version: 9, Removed: true, TTL: long})
	stop()
	s, again := opened(t, open, discovery.Bounds{})
	if state := s.State(); !state.Settled || state.Degraded != "" {
		t.Errorf("after an orderly end: %+v", state)
	}
	wantIDs(t, again, sidero("").Cluster, "a", "bare")
	wantIDs(t, again, native("").Cluster, "m")
	if got := again.Get(sidero("a")); string(got.Data) != "x" || len(got.Endpoints) != 1 ||
		time.Until(got.Expires) > long {
		t.Errorf("%+v", got)
	}
	for _, member := range []string{"m", "gone"} {
		wantFault(t, s.Update(runtest.Within(t), native(member), roster.Update{Data: []byte("4"), Version: 4, TTL: long}),
			fault.CodeEntryStale)
	}
	c1, m1, n1 := b.Counts()
	if c2, m2, n2 := again.Counts(); c1 != c2 || m1 != m2 || n1 != n2 {
		t.Errorf("%d clusters, %d members, %d bytes became %d, %d, %d", c1, m1, n1, c2, m2, n2)
	}
}

func contractCancelled(t *testing.T, open Opener) {
	s, b := opened(t, open, discovery.Bounds{})
	ctx, cancel := context.WithCancel(runtest.Within(t))
	cancel()
	err1 := s.Update(ctx, sidero("a"), roster.Update{Data: []byte("x"), TTL: long})
	err2 := s.Delete(ctx, sidero("a"))
	if err1 == nil || err2 == nil || errors.Is(err1, context.DeadlineExceeded) {
		t.Errorf("%v, %v", err1, err2)
	}
	wantIDs(t, b, sidero("").Cluster)
}
