// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// names is a resolver in memory.
type names struct {
	mu    sync.Mutex
	at    map[string][]netip.Addr
	asked int
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.at[host] == nil {
		return nil, errors.New("no such host")
	}
	return n.at[host], nil
}

func (n *names) set(host string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[host] = nil
	for _, a := range addrs {
		n.at[host] = append(n.at[host], netip.MustParseAddr(a))
	}
}

// listRig is a file of members that is followed.
type listRig struct {
	t    *testing.T
	dir  string
	list *listFile
	mu   sync.Mutex
	said []roster.Said
	told int
}

func (r *listRig) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// endpoints are those of the first member.
func (r *listRig) endpoints() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.said[0].Facts.Endpoints {
		out = append(out, e.Addr.String())
	}
	return out
}

// last is what was reported last, and how often something was.
func (r *listRig) last() ([]roster.Said, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said, r.told
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func secretText(c string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32)))
}

const namedList = `apiVersion: tombolo.dev/v1alpha1
kind: MemberList
members:
  - name: e1
    endpoints: ['192.0.2.1:51820']
    endpointNames: ['e1.example:51820', '192.0.2.1:51820']
    secretFile: e1.secret
  - name: e2
    secretFile: e2.secret
`

// TestAFileIsSettledOnceItsMembersAreTold, and attended before that. One that has no members any more is told as well.
func TestAFileIsSettledOnceItsMembersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &listRig{t: t, dir: t.TempDir()}
		const head = "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\n"
		r.write("members.yaml", head+"members: [{name: e1}, {name: e2}]\n")
		r.list = newListFile(filepath.Join(r.dir, "members.yaml"), nil)
		g := run.NewGroup(t.Context())
		settled, attended := false, true
		var said []roster.Said
		g.Go("list", func(ctx context.Context) error {
			return r.list.Run(ctx, func(now []roster.Said) {
				s := r.list.status.get()
				settled, attended = settled || len(said) == 0 && s.Settled, attended && s.State == StateAttending
				said = now
			})
		})
		synctest.Wait()
		if s := r.list.status.get(); settled || !attended || !s.Settled || s.Members != 2 || len(said) != 2 {
			t.Errorf("settled before: %v, attended: %v; %+v, told %v", settled, attended, s, said)
		}
		r.write("members.yaml", head+"members: []\n")
		time.Sleep(lookInterval)
		synctest.Wait()
		if s := r.list.status.get(); s.Members != 0 || len(said) != 0 {
			t.Errorf("%+v, told %v", s, said)
		}
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestAFileWithNamesAndSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &names{at: map[string][]netip.Addr{}}
		n.set("e1.example", "192.0.2.7", "192.0.2.6")
		r := &listRig{t: t, dir: t.TempDir()}
		r.write("members.yaml", namedList)
		r.write("e1.secret", secretText("a"))
		r.list = newListFile(filepath.Join(r.dir, "members.yaml"), n)
		g := run.NewGroup(t.Context())
		g.Go("list", func(ctx context.Context) error {
			return r.list.Run(ctx, func(said []roster.Said) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.said, r.told = said, r.told+1
			})
		})
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		want := func(what string, got, want []string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		pass(0)
		want("at the start", r.endpoints(), []string{"192.0.2.1:51820", "192.0.2.6:51820", "192.0.2.7:51820"})
		w := r.list.status.get().Warning
		if !strings.Contains(w, "e2 is no peer: ") || strings.Contains(w, "e1") {
			t.Errorf("it warns: %s", w)
		}
		keys, ok := r.list.pairs.get(filepath.Join(r.dir, "e1.secret"))
		said, told := r.last()
		if !ok || said[0].Facts.Pair.ID != keys.Cluster().String() || said[1].Facts.Pair.ID != "" {
			t.Errorf("%+v", said)
		}

		asked := n.count()
		n.set("e1.example", "192.0.2.8")
		pass(nameInterval - lookInterval)
		if _, now := r.last(); now != told || n.count() != asked {
			t.Errorf("told %d times, asked %d times; before %d and %d", now, n.count(), told, asked)
		}
		pass(lookInterval)
		want("another address", r.endpoints(), []string{"192.0.2.1:51820", "192.0.2.8:51820"})

		n.set("e1.example")
		r.list.names.suspect.Store(true)
		pass(lookInterval)
		want("no longer resolved", r.endpoints(), []string{"192.0.2.1:51820", "192.0.2.8:51820"})
		if w := r.list.status.get().Warning; !strings.Contains(w, "e1.example is not resolved, and its last addresses count") {
			t.Errorf("it warns: %s", w)
		}
		n.set("e1.example", "192.0.2.9")
		pass(lookInterval)
		want("while it does not answer", r.endpoints(), []string{"192.0.2.1:51820", "192.0.2.9:51820"})
		r.list.names.suspect.Store(false)

		before := said[0].Facts.Pair.ID
		r.write("e1.secret", secretText("b"))
		r.write("e2.secret", secretText("c"))
		pass(lookInterval)
		if said, _ = r.last(); said[0].Facts.Pair.ID == before || said[0].Facts.Pair.ID == "" || said[1].Facts.Pair.ID == "" {
			t.Errorf("%+v", said)
		}
		if w := r.list.status.get().Warning; w != "" {
			t.Errorf("it warns: %s", w)
		}
		if err := os.Chmod(filepath.Join(r.dir, "e1.secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		pass(lookInterval)
		if _, ok := r.list.pairs.get(filepath.Join(r.dir, "e1.secret")); ok {
			t.Error("a secret that everybody may read counts")
		}
		if said, _ = r.last(); said[0].Facts.Pair.ID != "" {
			t.Errorf("%+v", said)
		}
		g.Stop()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}
