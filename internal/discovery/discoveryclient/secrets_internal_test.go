// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestSecretsAreExchangedAtAReload: the new secret comes beside the old one, node by node,
// and the old one goes, node by node; nobody is lost for a moment, and nobody restarts. Who
// has the old one alone is known no more.
func TestSecretsAreExchangedAtAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, fresh := newWorld(t), newSecret(t), newSecret(t)
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir(), "late": t.TempDir()}
		of := func(name string, secrets ...string) setup {
			return setup{name: name, secrets: secrets, services: []v1alpha1.MeshService{native("one")}, dir: dirs[name]}
		}
		nodes := map[string]*node{}
		for _, name := range []string{"a", "b", "late"} {
			nodes[name] = w.start(of(name, old))
			defer nodes[name].stop()
		}
		others := map[string]string{"a": "b", "b": "a"}
		nodes["a"].knows(settle, "b", "late")
		watchers := map[string]*Watcher{"a": nodes["a"].Watch(), "b": nodes["b"].Watch()}
		for _, watch := range watchers {
			watch.Now()
		}
		turn := func(name string, secrets ...string) {
			t.Helper()
			if fixed, err := nodes[name].Reload(w.config(of(name, secrets...))); err != nil || len(fixed) > 0 {
				t.Fatalf("%s: %v, %v", name, fixed, err)
			}
			time.Sleep(2 * settle)
			synctest.Wait()
			for n, watch := range watchers {
				for _, e := range watch.Now() {
					if e.What == roster.Left && e.Member.Node == others[n] {
						t.Errorf("%s lost %s when %s took %d secrets", n, others[n], name, len(secrets))
					}
				}
			}
		}
		for _, secrets := range [][]string{{fresh, old}, {fresh}} {
			for _, name := range []string{"a", "b"} {
				turn(name, secrets...)
			}
		}
		want := w.config(of("a", fresh)).Clusters()
		for n, other := range others {
			nodes[n].knows(0, other)
			if got := nodes[n].Under(nodes[n].member(other).ID); !slices.Equal(got, want) {
				t.Errorf("%s knows %s under %v, want %v", n, other, got, want)
			}
			if s := nodes[n].Status(); len(s) != 2 || s[0].Cluster != want[0].String() || s[0].State != StateAttending {
				t.Errorf("%s attends %+v", n, s)
			}
		}
		nodes["a"].knows(limit.DiscoveryTTL+returnGraceSlow, "b") // leases are renewed under the new one
		nodes["late"].knows(0)                                    // and have ended under the old one
	})
}

// TestSecretsWithTheOlderProtocol take a restart: one entry there is sealed with one secret.
func TestSecretsWithTheOlderProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, fresh := newWorld(t), newSecret(t), newSecret(t)
		s := setup{name: "a", id: "x", secrets: []string{old}, services: []v1alpha1.MeshService{sidero("one")}}
		a := w.start(s)
		defer a.stop()
		before := a.Clusters()
		s.secrets, s.dir = []string{fresh, old}, a.cfg.StateDir
		next := w.config(s)
		next.Cache = a.cfg.Cache
		if fixed, err := a.Reload(next); err != nil || !slices.Equal(fixed, []string{"cluster"}) {
			t.Errorf("%v, %v", fixed, err)
		}
		if !slices.Equal(a.Clusters(), before) || len(a.Heir(next).Keys()) != 1 {
			t.Errorf("its secrets are %v, before %v", a.Clusters(), before)
		}
	})
}

// TestDropOfASecret: who is known under another one goes on, by its own entry there or by the
// one that is on its way.
func TestDropOfASecret(t *testing.T) {
	old, fresh := seal.ClusterID{1}, seal.ClusterID{2}
	entry := &discovery.Entry{Version: 2}
	b := newNativeBook()
	b.members = map[seal.MemberID]*signedWord{
		{1}: {cluster: old, entry: &discovery.Entry{Version: 2}, others: entriesOf{fresh: entry}},
		{2}: {cluster: fresh, entry: entry, others: entriesOf{old: &discovery.Entry{Version: 2}}},
		{3}: {cluster: old, entry: &discovery.Entry{Version: 2}, prior: []seal.ClusterID{old, fresh}},
		{4}: {cluster: old, entry: &discovery.Entry{Version: 2}, prior: []seal.ClusterID{old}},
	}
	b.presence(old, "s")
	b.presence(fresh, "s")
	b.drop(time.Unix(1_800_000_000, 0), old)
	for id := range byte(3) {
		w := b.members[seal.MemberID{id + 1}]
		if w == nil || !slices.Equal(w.clusters(), []seal.ClusterID{fresh}) || id < 2 && w.entry != entry {
			t.Errorf("member %d is %+v", id+1, w)
		}
	}
	if len(b.members) != 3 || len(b.here) != 1 {
		t.Errorf("it keeps %d members, and %v", len(b.members), b.here)
	}
}
