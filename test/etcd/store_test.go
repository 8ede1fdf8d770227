// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	"github.com/tombolo-io/tombolo/internal/discovery/discoverytest"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

const prefix = "/test/discovery"

// replica is one service's store with its board.
type replica struct {
	*store.Store
	board *discovery.Board
	stop  func()
}

// quick is for where etcd goes away; elsewhere a machine that stands still must not look like that.
func quick() store.Times {
	return store.Times{Wait: 2 * time.Second, Probe: 100 * time.Millisecond, Silence: 2 * time.Second, Retry: 50 * time.Millisecond, Settle: time.Millisecond}
}

// patient has the product's own times, but for what a start waits for.
func patient() store.Times { return store.Times{Settle: time.Millisecond} }

// start opens a store and runs it.
func start(t *testing.T, s *Server, b discovery.Bounds) *replica {
	t.Helper()
	return startAt(t, []string{s.URL}, b)
}

func startAt(t *testing.T, urls []string, b discovery.Bounds) *replica {
	t.Helper()
	return run(t, store.Config{Endpoints: urls, Prefix: prefix, Times: patient()}, discovery.NewBoard(b))
}

// startQuick opens a store that notices soon when etcd goes away, and runs it.
func startQuick(t *testing.T, urls ...string) *replica {
	t.Helper()
	return run(t, store.Config{Endpoints: urls, Prefix: prefix, Times: quick()}, discovery.NewBoard(discovery.Bounds{}))
}

func run(t *testing.T, c store.Config, board *discovery.Board) *replica {
	t.Helper()
	st, err := store.Open(t.Context(), c, board)
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

// leases is how many members have in etcd; a first start leaves none.
func leases(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	answer, err := c.Leases(t.Context())
	must(t, err)
	return len(answer.Leases)
}

func TestEtcdIsAStore(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	server.Client()
	base := 0
	for name, body := range discoverytest.Contract() {
		base++
		prefix := fmt.Sprint("/contract/", base)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body(t, func(t *testing.T, b *discovery.Board) (discovery.Store, func()) {
				r := run(t, store.Config{Endpoints: []string{server.URL}, Prefix: prefix, Times: patient()}, b)
				runtest.Eventually(t, "it has settled", func() bool { return r.State().Settled })
				return r.Store, r.stop
			})
		})
	}
}

// TestNothingIsLeftBehind: one lease of each member, and none of nobody.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	client := server.Client()
	a, b := start(t, server, discovery.Bounds{}), start(t, server, discovery.Bounds{})
	for i := range 12 {
		u := says(fmt.Sprint(i), time.Duration(60+i%4)*time.Second, fmt.Sprint(i%3))
		must(t, []*replica{a, b}[i%2].Update(t.Context(), at(fmt.Sprint(i%5)), u))
	}
	runtest.Eventually(t, "both know all", func() bool { return len(b.board.List(at("").Cluster)) == 5 && len(a.board.List(at("").Cluster)) == 5 })
	if n := leases(t, client); n != 5 {
		t.Errorf("5 members have %d leases", n)
	}
	for i := range 5 {
		must(t, a.Delete(t.Context(), at(fmt.Sprint(i))))
	}
	runtest.Eventually(t, "nothing is left", func() bool { _, n, _ := b.board.Counts(); return n == 0 && len(b.board.List(at("").Cluster)) == 0 })
	if n := leases(t, client); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestEtcdEndsMembersAndTheStoreEndsEndpoints(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	server.Client()
	a, b := start(t, server, discovery.Bounds{}), start(t, server, discovery.Bounds{})
	must(t, a.Update(t.Context(), at("long"), says("x", 2*time.Second, "old")))
	must(t, b.Update(t.Context(), at("long"), says("x", time.Minute)))
	must(t, a.Update(t.Context(), at("short"), says("x", 2*time.Second)))
	late := start(t, server, discovery.Bounds{})
	for _, r := range []*replica{a, b, late} {
		runtest.Eventually(t, "the endpoint ends", r.shows(at("long"), "x [] v0 removed=false"))
		runtest.Eventually(t, "the member ends", r.shows(at("short"), "none"))
	}
}

func TestTwoThatWriteAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
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
	runtest.Eventually(t, "all at a", a.shows(at("m"), want))
	runtest.Eventually(t, "all at b", b.shows(at("m"), want))
	if n := leases(t, client); n != 1 {
		t.Errorf("one member has %d leases", n)
	}
}

// TestManyAreListed: more than a page, and with endpoints that end before them.
func TestManyAreListed(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	server.Client()
	a := start(t, server, discovery.Bounds{})
	const many = limit.DiscoveryStorePage + 100
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= many; i = next.Add(1) {
				p := at(fmt.Sprint(i))
				if err := a.Update(t.Context(), p, says("x", time.Minute, "e")); err != nil {
					t.Error(err)
				}
				if i%4 == 0 {
					if err := a.Update(t.Context(), p, says("x", time.Hour)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	late := start(t, server, discovery.Bounds{})
	all := late.board.List(at("").Cluster)
	if len(all) != many {
		t.Fatalf("%d members of %d", len(all), many)
	}
	for _, l := range all {
		if len(l.Lease.Endpoints) != 1 || time.Until(l.Lease.Endpoints[0].Expires) > time.Minute+time.Second {
			t.Fatalf("%+v", l)
		}
	}
}
