// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// shortest is the shortest lease that the program lets a member have.
const shortest = time.Minute

// TestEtcdIsAwayForLongerThanLeases, with the programs of users: the service lives and
// takes no entries. Members stay known, as stale; when etcd is back all of them renew
// what they said, nobody was seen leaving, and who comes then is seen by all. It takes
// longer than a lease, most of which it waits.
func TestEtcdIsAwayForLongerThanLeases(t *testing.T) {
	for name, away := range map[string]struct{ begin, end func(*Server) }{
		"it stands still": {(*Server).Stop, (*Server).Go}, // and all leases are over at once when it goes on
		"it is killed":    {(*Server).Kill, (*Server).Again},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			s.lease = shortest.String()
			s.secret(t)
			announce := func(name string) *runtest.Process {
				return play(t, s.bin, "discovery", "announce", "--config", s.node(t, name, "native"))
			}
			nodes := map[string]*runtest.Process{"a": announce("a"), "b": announce("b")}
			for name, n := range nodes {
				runtest.Eventually(t, name+" attends", func() bool { return strings.Contains(n.Err.String(), "attending the discovery service") })
			}
			watchers := map[string]*runtest.Process{}
			for _, name := range []string{"a", "b", "w"} { // those of a and b ask the member that runs
				file := filepath.Join(s.dir, name+".yaml")
				if nodes[name] == nil {
					file = s.node(t, name, "native")
				}
				watchers[name] = play(t, s.bin, "discovery", "watch", "--config", file, "-o", "json")
			}
			see := func(stale bool, members ...string) func() bool {
				return func() bool {
					for name, w := range watchers {
						if !sees(t, w, name, stale, members) {
							return false
						}
					}
					return true
				}
			}
			runtest.Eventually(t, "all know all", see(false, "a", "b"))
			away.begin(s.etcd)
			inALease(t, "all are stale", see(true, "a", "b"))
			for name, n := range nodes {
				if !strings.Contains(n.Err.String(), "store_unavailable") {
					t.Errorf("%s does not say why it cannot renew its lease:\n%s", name, n.Err.String())
				}
			}
			away.end(s.etcd)
			inALease(t, "all have renewed", see(false, "a", "b"))
			nodes["c"] = announce("c")
			runtest.Eventually(t, "who joins then is seen by all", see(false, "a", "b", "c"))
			for name, w := range watchers {
				if text := w.Out.String(); strings.Contains(text, `"what":"left"`) || strings.Contains(text, `"what":"lost"`) {
					t.Errorf("%s was told\n%s", name, text)
				}
			}
			for name, r := range watchers {
				if code := r.End(t, syscall.SIGTERM); code != 0 {
					t.Errorf("exit %d of the watcher of %s", code, name)
				}
			}
			for name, r := range nodes {
				if code := r.End(t, syscall.SIGTERM); code != 0 {
					t.Errorf("exit %d of %s", code, name)
				}
			}
		})
	}
}

// sees reports whether a watcher r knows these members but itself, and no others, and all
// of them as stale or none.
func sees(t *testing.T, r *runtest.Process, self string, stale bool, members []string) bool {
	t.Helper()
	known := map[string]bool{}
	for line := range strings.Lines(r.Out.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var l struct {
			What   string
			Member struct {
				Node  string
				Stale bool
			}
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch l.What {
		case "joined", "changed":
			known[l.Member.Node] = l.Member.Stale
		case "left":
			delete(known, l.Member.Node)
		}
	}
	want := map[string]bool{}
	for _, m := range members {
		if m != self {
			want[m] = stale
		}
	}
	return maps.Equal(known, want)
}

// inALease waits for what comes at the end of one.
func inALease(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(shortest + runtest.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within a lease and %v: %s", runtest.Patience, what)
		}
	}
}
