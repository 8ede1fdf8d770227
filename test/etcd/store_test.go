// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/test/discovery"

// replica is one service's store with its board.
type replica struct {
	*store.Store
	board *discovery.Board
	stop  func()
}

func quick() store.Times {
	return store.Times{Wait: 2 * time.Second, Probe: 100 * time.Millisecond, Silence: 2 * time.Second, Retry: 50 * time.Millisecond}
}

// start opens a store and runs it.
func start(t *testing.T, s *Server, b discovery.Bounds) *replica {
	t.Helper()
	return startAt(t, s.URL, b)
}

func startAt(t *testing.T, url string, b discovery.Bounds) *replica {
	t.Helper()
	board := discovery.NewBoard(b)
	st, err := store.Open(t.Context(), store.Config{Endpoints: []string{url}, Prefix: prefix, Times: quick()}, board)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := st.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r := &replica{Store: st, board: board, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(r.stop)
	return r
}

// await waits for a condition; the deadline is for a test that hangs.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s: it did not come to be", what)
		}
	}
}

func at(member string) discovery.Place {
	return discovery.Place{Cluster: discovery.Cluster{Protocol: discovery.Sidero, ID: "c/1"}, Member: member}
}

func says(data string, ttl time.Duration, endpoints ...string) roster.Update {
	u := roster.Update{TTL: ttl}
	if data != "" {
		u.Data = []byte(data)
	}
	for _, e := range endpoints {
		u.Endpoints = append(u.Endpoints, []byte(e))
	}
	return u
}

// content is a member without its times.
func content(l roster.Lease) string {
	if !l.Exists() {
		return "none"
	}
	var ends []string
	for _, e := range l.Endpoints {
		ends = append(ends, string(e.Blob))
	}
	slices.Sort(ends)
	return fmt.Sprintf("%s %v v%d removed=%t", l.Data, ends, l.Version, l.Removed)
}

func (r *replica) shows(p discovery.Place, want string) func() bool {
	return func() bool { return content(r.board.Get(p)) == want }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leases is how many there are in etcd.
func leases(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	answer, err := c.Leases(t.Context())
	must(t, err)
	return len(answer.Leases)
}

func TestTheContractOfAStore(t *testing.T) {
	server := Start(t, Options{})
	client := server.Client()
	a, b := start(t, server, discovery.Bounds{Members: 8, Endpoints: 3}), start(t, server, discovery.Bounds{})
	native := func(m string) discovery.Place {
		return discovery.Place{Cluster: discovery.Cluster{Protocol: discovery.Native, ID: "n"}, Member: m}
	}
	for _, c := range []struct {
		name string
		p    discovery.Place
		do   []roster.Update
		code fault.Code // of the last
		want string
	}{
		{"data", at("1"), []roster.Update{says("x", time.Minute)}, "", "x [] v0 removed=false"},
		{"endpoints alone", at("2"), []roster.Update{says("", time.Minute, "e")}, "", " [e] v0 removed=false"},
		{"endpoints extend", at("3"), []roster.Update{says("x", time.Minute, "e"), says("", time.Hour, "f")}, "", "x [e f] v0 removed=false"},
		{"shorter", at("4"), []roster.Update{says("x", time.Minute, "e"), says("y", time.Second*20)}, "", "y [e] v0 removed=false"},
		{"newer", native("1"), []roster.Update{{Data: []byte("x"), Version: 1, TTL: time.Minute}, {Data: []byte("y"), Version: 2, TTL: time.Minute}}, "", "y [] v2 removed=false"},
		{"stale", native("2"), []roster.Update{{Data: []byte("x"), Version: 2, TTL: time.Minute}, {Data: []byte("y"), Version: 2, TTL: time.Minute}}, fault.CodeEntryStale, "x [] v2 removed=false"},
		{"removed", native("3"), []roster.Update{{Data: []byte("x"), Version: 2, TTL: time.Minute}, {Data: []byte("r"), Version: 3, Removed: true, TTL: time.Minute}}, "", "r [] v3 removed=true"},
		{"too many endpoints", at("5"), []roster.Update{says("x", time.Minute, "1", "2", "3", "4")}, fault.CodeLimit, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			for _, u := range c.do {
				if err = a.Update(t.Context(), c.p, u); err != nil && (c.code == "" || !fault.Has(err, c.code)) {
					t.Fatal(err)
				}
			}
			if (err != nil) != (c.code != "") {
				t.Fatalf("%v, not %q", err, c.code)
			}
			if got := content(a.board.Get(c.p)); got != c.want {
				t.Errorf("who wrote reads %q, not %q", got, c.want)
			}
			await(t, c.name+" at the other", b.shows(c.p, c.want))
		})
	}
	members := 0
	b.board.All(func(discovery.Place, roster.Lease) { members++ })
	if n := leases(t, client); n != members {
		t.Errorf("%d members have %d leases", members, n)
	}
	b.board.All(func(p discovery.Place, _ roster.Lease) { must(t, a.Delete(t.Context(), p)) })
	await(t, "nothing is left", func() bool { _, n, _ := b.board.Counts(); return n == 0 && len(b.board.List(at("").Cluster)) == 0 })
	if n := leases(t, client); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestEtcdEndsMembersAndTheStoreEndsEndpoints(t *testing.T) {
	server := Start(t, Options{})
	server.Client()
	a, b := start(t, server, discovery.Bounds{}), start(t, server, discovery.Bounds{})
	must(t, a.Update(t.Context(), at("long"), says("x", 2*time.Second, "old")))
	must(t, b.Update(t.Context(), at("long"), says("x", time.Minute)))
	must(t, a.Update(t.Context(), at("short"), says("x", 2*time.Second)))
	late := start(t, server, discovery.Bounds{})
	for _, r := range []*replica{a, b, late} {
		await(t, "the endpoint ends", r.shows(at("long"), "x [] v0 removed=false"))
		await(t, "the member ends", r.shows(at("short"), "none"))
	}
}

func TestTwoThatWriteAtOnceLoseNothing(t *testing.T) {
	server := Start(t, Options{})
	client := server.Client()
	a, b := start(t, server, discovery.Bounds{}), start(t, server, discovery.Bounds{})
	var wg sync.WaitGroup
	for i, r := range []*replica{a, b} {
		for j := range 6 {
			wg.Go(func() {
				if err := r.Update(t.Context(), at("m"), says("", time.Duration(60+j)*time.Second, fmt.Sprintf("%d%d", i, j))); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	want := " [00 01 02 03 04 05 10 11 12 13 14 15] v0 removed=false"
	await(t, "all at a", a.shows(at("m"), want))
	await(t, "all at b", b.shows(at("m"), want))
	if n := leases(t, client); n != 1 {
		t.Errorf("one member has %d leases", n)
	}
}
