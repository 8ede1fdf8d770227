// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
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
	w := b.Watch(at("").Cluster)
	snapshot, err := w.Snapshot(func(all []discovery.Listing) [][]byte {
		for _, l := range all {
			h.members[l.ID] = content(l.Lease)
		}
		return nil
	}, nil)
	must(t, err)
	snapshot.Done()
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

func TestEtcdIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	server.Client()
	a := startQuick(t, server.URL)
	for i := range 5 {
		must(t, a.Update(t.Context(), at(fmt.Sprint(i)), says("x", time.Minute, "e")))
	}
	h := record(t, a.board)
	server.Kill()
	runtest.Eventually(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	if err := a.Update(t.Context(), at("new"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a write without etcd: %v", err)
	}
	if err := a.Delete(t.Context(), at("0")); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a removal without etcd: %v", err)
	}
	server.Again()
	runtest.Eventually(t, "it is well again", func() bool { return a.State().Degraded == "" })
	if n := len(a.board.List(at("").Cluster)); n != 5 || h.count() != 0 {
		t.Errorf("there are %d members of 5, and %d events", n, h.count())
	}
	must(t, a.Update(t.Context(), at("new"), says("x", time.Minute)))
	runtest.Eventually(t, "one event", func() bool { return h.count() == 1 })
}

// TestEtcdStandsStill is the outage of ten minutes with leases of two seconds:
// several times longer than any lease.
func TestEtcdStandsStill(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	server.Client()
	a := startQuick(t, server.URL)
	const lease = 3 * time.Second
	for {
		must(t, a.Update(t.Context(), at("1"), says("x", 2*time.Second, "e")))
		begun := time.Now()
		must(t, a.Update(t.Context(), at("1"), says("y", lease)))
		server.Stop()
		if time.Since(begun) < lease { // etcd cannot have ended it
			break
		}
		server.Go()
		runtest.Eventually(t, "etcd answers again", func() bool {
			return a.Update(t.Context(), at("1"), says("y", lease)) == nil
		})
	}
	h := record(t, a.board)
	runtest.Eventually(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	kept := a.board.Get(at("1")) // an endpoint may have ended before it was noticed
	over := time.Now().Add(6 * time.Second)
	runtest.Eventually(t, "longer than the lease", func() bool {
		if err := a.Update(t.Context(), at("2"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
			t.Fatalf("a write while etcd stands still: %v", err)
		}
		if got := a.board.Get(at("1")); content(got) != content(kept) || !got.Listed() {
			t.Fatalf("%s became %s while etcd stood still", content(kept), content(got))
		}
		return time.Now().After(over)
	})
	server.Go()
	runtest.Eventually(t, "it is well again", func() bool { return a.State().Degraded == "" })
	runtest.Eventually(t, "what ran out in etcd is told", func() bool { return !a.board.Get(at("1")).Exists() && h.count() > 0 })
	must(t, a.Update(t.Context(), at("2"), says("x", time.Minute)))
}

func TestWhatWasForgottenMeanwhileIsMadeGood(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	client := server.Client()
	relay := between(t, server.URL)
	a := startQuick(t, relay.url)
	b := start(t, server, discovery.Bounds{})
	for _, m := range []string{"same", "changed", "gone"} {
		must(t, a.Update(t.Context(), at(m), says("x", time.Minute)))
	}
	h := record(t, a.board)
	relay.cut()
	runtest.Eventually(t, "it is noticed", func() bool { return a.State().Degraded != "" })
	runtest.Eventually(t, "b has all", func() bool { return len(b.board.List(at("").Cluster)) == 3 })
	must(t, b.Update(t.Context(), at("changed"), says("y", time.Minute)))
	must(t, b.Update(t.Context(), at("new"), says("z", time.Minute)))
	must(t, b.Delete(t.Context(), at("gone")))
	answer, err := client.Get(t.Context(), "x")
	must(t, err)
	_, err = client.Compact(t.Context(), answer.Header.Revision)
	must(t, err)
	relay.mend(t)
	runtest.Eventually(t, "it is well again", func() bool { return a.State().Degraded == "" })
	runtest.Eventually(t, "the watcher knows it", func() bool { return h.agrees(b.board) })
	if n := h.count(); n != 3 {
		t.Errorf("three changes were told as %d: %v", n, h.events)
	}
}

// TestEtcdComesBackOlder: the data of an earlier moment is put in its place.
func TestEtcdComesBackOlder(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	client := server.Client()
	a := startQuick(t, server.URL)
	must(t, a.Update(t.Context(), at("1"), says("old", time.Minute)))
	server.Kill()
	backup := filepath.Join(t.TempDir(), "backup")
	must(t, os.CopyFS(backup, os.DirFS(server.data())))
	server.Again()
	runtest.Eventually(t, "it is well again", func() bool {
		return a.State().Degraded == "" && a.Update(t.Context(), at("1"), says("new", time.Minute)) == nil
	})
	must(t, a.Update(t.Context(), at("2"), says("new", time.Minute)))
	h := record(t, a.board)
	server.Kill()
	must(t, os.RemoveAll(server.data()))
	must(t, os.CopyFS(server.data(), os.DirFS(backup)))
	server.Again()
	runtest.Eventually(t, "it is told", func() bool { return strings.Contains(a.State().Degraded, "older state") })
	if err := a.Update(t.Context(), at("3"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a write: %v", err)
	}
	if got := content(a.board.Get(at("1"))) + content(a.board.Get(at("2"))); got != "new [] v0 removed=falsenew [] v0 removed=false" || h.count() > 0 {
		t.Errorf("%s is served, and watchers were told %q", got, h.events)
	}
	late := startQuick(t, server.URL)
	runtest.Eventually(t, "who begins has what etcd has", late.shows(at("1"), "old [] v0 removed=false"))
	all, err := client.Get(t.Context(), prefix+"/incomplete")
	must(t, err)
	if len(all.Kvs) != 1 {
		t.Error("it is not noted that members may be missing")
	}
}

// TestEtcdLosesItsMarker: nothing is wiped, nothing is taken, until it is there again.
func TestEtcdLosesItsMarker(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	client := server.Client()
	a := startQuick(t, server.URL)
	must(t, a.Update(t.Context(), at("1"), says("x", time.Minute)))
	h := record(t, a.board)
	_, err := client.Delete(t.Context(), prefix+"/", clientv3.WithPrefix())
	must(t, err)
	runtest.Eventually(t, "it is told", func() bool { return strings.Contains(a.State().Degraded, "forgotten") })
	if err := a.Update(t.Context(), at("2"), says("x", time.Minute)); !fault.Has(err, fault.CodeStoreAway) {
		t.Errorf("a write: %v", err)
	}
	if got := content(a.board.Get(at("1"))); got != "x [] v0 removed=false" || h.count() > 0 {
		t.Errorf("%s is served, and watchers were told %q", got, h.events)
	}
}

func TestAPrefixThatIsNotOurs(t *testing.T) {
	t.Parallel()
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
		st, err := store.Open(t.Context(), store.Config{Endpoints: []string{server.URL}, Prefix: base, Times: patient()},
			discovery.NewBoard(discovery.Bounds{}))
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
	runtest.Eventually(t, "what comes later is told", func() bool { return a.State().Degraded != "" })
	must(t, a.Update(t.Context(), at("1"), roster.Update{Data: []byte("x"), TTL: time.Minute}))
	_, err = client.Delete(t.Context(), prefix+"/later")
	must(t, err)
	runtest.Eventually(t, "it is well again", func() bool { return a.State().Degraded == "" })
}
