// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/roster"
)

// history follows a cluster, and knows what a watcher would who has nothing but
// the first answer and the changes.
type history struct {
	mu      sync.Mutex
	members map[string]string
	events  []string
	wg      sync.WaitGroup
}

// record begins a history. Boards tell of states: an event is invented if it
// says what was said before.
func record(t *testing.T, b *discovery.Board) *history {
	t.Helper()
	h := &history{members: map[string]string{}}
	w, err := b.Watch(at("").Cluster)
	must(t, err)
	w.Snapshot(func(all []discovery.Listing) [][]byte {
		for _, l := range all {
			h.members[l.ID] = content(l.Lease)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	h.wg.Go(func() {
		defer w.Close()
		for {
			changes, err := w.Next(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			h.add(t, changes)
		}
	})
	t.Cleanup(func() { cancel(); h.wg.Wait() })
	return h
}

func (h *history) add(t *testing.T, changes []discovery.Listing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range changes {
		is := content(l.Lease)
		if !l.Lease.Listed() {
			is = "none"
		}
		was, there := h.members[l.ID]
		if !there {
			was = "none"
		}
		if is == was && is != "none" { // one that came and went in between is told as gone
			t.Errorf("%s is told again as %s", l.ID, is)
		}
		h.events = append(h.events, l.ID+" "+is)
		h.members[l.ID] = is
		if is == "none" {
			delete(h.members, l.ID)
		}
	}
}

// agrees says whether the watcher knows what a list of another board says.
func (h *history) agrees(b *discovery.Board) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := b.List(at("").Cluster)
	for _, l := range all {
		if h.members[l.ID] != content(l.Lease) {
			return false
		}
	}
	return len(all) == len(h.members)
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

func TestAReplicaThatDiesUnderChurnLosesNothing(t *testing.T) {
	server := Start(t, Options{})
	client := server.Client()
	replicas := []*replica{start(t, server, discovery.Bounds{}), start(t, server, discovery.Bounds{})}
	survivor := replicas[1]
	h := record(t, survivor.board)
	var wg sync.WaitGroup
	acked := make([]string, 16) // the last that the service took, or may have taken
	half := make(chan struct{})
	reached := sync.OnceFunc(func() { close(half) })
	for i := range acked {
		wg.Go(func() {
			p, mine := at(fmt.Sprint("m", i)), replicas[i%2]
			for n := 0; n < 30; {
				if n == 15 && i == 0 {
					reached()
				}
				err := mine.Update(t.Context(), p, says(fmt.Sprint(n), time.Minute))
				if err != nil { // as a member does: it goes to another one, and says it again
					if mine == survivor {
						t.Error(err)
						return
					}
					mine = survivor
					continue
				}
				acked[i] = fmt.Sprint(n)
				n++
			}
		})
	}
	<-half
	replicas[0].Close() // as when its process is killed: nothing is said to etcd
	wg.Wait()
	for i, last := range acked {
		await(t, "the last word", survivor.shows(at(fmt.Sprint("m", i)), last+" [] v0 removed=false"))
	}
	late := start(t, server, discovery.Bounds{})
	await(t, "the watcher knows what a new service knows", func() bool { return h.agrees(late.board) })
	if n := len(late.board.List(at("").Cluster)); n != len(acked) {
		t.Errorf("%d members are left", n)
	}
	if n := leases(t, client); n > len(acked)+len(acked)/2 { // one of each write that was cut off may wait for its end
		t.Errorf("%d leases are left", n)
	}
}

func TestEtcdIsKilledAndComesBack(t *testing.T) {
	server := Start(t, Options{})
	server.Client()
	a := start(t, server, discovery.Bounds{})
	for i := range 5 {
		must(t, a.Update(t.Context(), at(fmt.Sprint(i)), says("x", time.Minute, "e")))
	}
	h := record(t, a.board)
	server.Kill()
	await(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	if err := a.Update(t.Context(), at("new"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a write without etcd: %v", err)
	}
	if err := a.Delete(t.Context(), at("0")); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a removal without etcd: %v", err)
	}
	server.Again()
	await(t, "it is well again", func() bool { return a.State().Degraded == "" })
	if n := len(a.board.List(at("").Cluster)); n != 5 || h.count() != 0 {
		t.Errorf("there are %d members of 5, and %d events", n, h.count())
	}
	must(t, a.Update(t.Context(), at("new"), says("x", time.Minute)))
	await(t, "one event", func() bool { return h.count() == 1 })
}

// TestEtcdStandsStill is the outage of ten minutes with leases of two seconds:
// several times longer than any lease.
func TestEtcdStandsStill(t *testing.T) {
	server := Start(t, Options{})
	server.Client()
	a := start(t, server, discovery.Bounds{})
	must(t, a.Update(t.Context(), at("1"), says("x", 2*time.Second, "e")))
	must(t, a.Update(t.Context(), at("1"), says("y", 3*time.Second)))
	h := record(t, a.board)
	server.Stop()
	await(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	kept := a.board.Get(at("1")) // an endpoint may have ended before it was noticed
	over := time.Now().Add(6 * time.Second)
	await(t, "longer than the lease", func() bool {
		if err := a.Update(t.Context(), at("2"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
			t.Fatalf("a write while etcd stands still: %v", err)
		}
		if got := a.board.Get(at("1")); content(got) != content(kept) || !got.Listed() {
			t.Fatalf("%s became %s while etcd stood still", content(kept), content(got))
		}
		return time.Now().After(over)
	})
	server.Go()
	await(t, "it is well again", func() bool { return a.State().Degraded == "" })
	await(t, "what ran out in etcd is told", func() bool { return !a.board.Get(at("1")).Exists() && h.count() > 0 })
	must(t, a.Update(t.Context(), at("2"), says("x", time.Minute)))
}

func TestWhatWasForgottenMeanwhileIsMadeGood(t *testing.T) {
	server := Start(t, Options{})
	client := server.Client()
	relay := between(t, server.URL)
	a := startAt(t, relay.url, discovery.Bounds{})
	b := start(t, server, discovery.Bounds{})
	for _, m := range []string{"same", "changed", "gone"} {
		must(t, a.Update(t.Context(), at(m), says("x", time.Minute)))
	}
	h := record(t, a.board)
	relay.cut()
	await(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	await(t, "b has all", func() bool { return len(b.board.List(at("").Cluster)) == 3 })
	must(t, b.Update(t.Context(), at("changed"), says("y", time.Minute)))
	must(t, b.Update(t.Context(), at("new"), says("z", time.Minute)))
	must(t, b.Delete(t.Context(), at("gone")))
	answer, err := client.Get(t.Context(), "x")
	must(t, err)
	_, err = client.Compact(t.Context(), answer.Header.Revision)
	must(t, err)
	relay.mend(t)
	await(t, "it is well again", func() bool { return a.State().Degraded == "" })
	await(t, "the watcher knows it", func() bool { return h.agrees(b.board) })
	if n := h.count(); n != 3 {
		t.Errorf("three changes were told as %d: %v", n, h.events)
	}
}

func TestAPrefixThatIsNotOurs(t *testing.T) {
	server := Start(t, Options{})
	client := server.Client()
	for i, c := range []struct {
		key, value string
		code       fault.Code
	}{
		{"/other", "x", fault.CodeStoreForeign},
		{"/v1/s/61/62", "x", fault.CodeStoreForeign},
		{"/v1/s/6/62", "x", fault.CodeStoreForeign},
		{"/format", "something", fault.CodeStoreForeign},
		{"/format", "tombolo discovery 2\n", fault.CodeStateVersion},
	} {
		base := fmt.Sprint("/foreign/", i)
		_, err := client.Put(t.Context(), base+c.key, c.value)
		must(t, err)
		st, err := store.Open(t.Context(), store.Config{Endpoints: []string{server.URL}, Prefix: base, Times: quick()}, discovery.NewBoard(discovery.Bounds{}))
		if !fault.Has(err, c.code) {
			t.Errorf("%s: %v", c.key, err)
		}
		if st != nil {
			st.Close()
		}
		all, err := client.Get(t.Context(), base+"/format")
		must(t, err)
		if c.key != "/format" && len(all.Kvs) > 0 {
			t.Errorf("%s: the prefix was marked", c.key)
		}
	}
	a := start(t, server, discovery.Bounds{})
	_, err := client.Put(t.Context(), prefix+"/later", "x")
	must(t, err)
	await(t, "what comes later is told", func() bool { return a.State().Degraded != "" })
	must(t, a.Update(t.Context(), at("1"), roster.Update{Data: []byte("x"), TTL: time.Minute}))
	_, err = client.Delete(t.Context(), prefix+"/later")
	must(t, err)
	await(t, "it is well again", func() bool { return a.State().Degraded == "" })
}
