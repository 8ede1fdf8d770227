// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

const watchedHead = "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\n"

// watchRig is a folder of policies and what watches it.
type watchRig struct {
	t     *testing.T
	files *Files
	table *authz.Table
	paths atomic.Pointer[[]string]
	root  string
	dir   string // the folder of policies, within root
	reads atomic.Int64

	mu     sync.Mutex
	last   []string           // what was read
	counts map[fault.Code]int // of refused readings
}

func newWatchRig(t *testing.T, files int) *watchRig {
	t.Helper()
	root := runtest.Dir(t)
	r := &watchRig{t: t, root: root, dir: filepath.Join(root, "policies")}
	must(t, os.Mkdir(r.dir, 0o700))
	for i := range files {
		r.write(fmt.Sprintf("c%d.yaml", i), allowRule(fmt.Sprintf("c%d", i), "10.0.0.0/8"))
	}
	return r
}

// run loads the policy and watches.
func (r *watchRig) run(paths ...string) {
	r.t.Helper()
	r.load(paths...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.files.Watch(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	// It watches once it has noticed something, here a file that goes again.
	r.write("probe.yaml", allowRule("probe", "10.0.0.0/8"))
	r.eventually("probe", "10.0.0.1:1", true)
	must(r.t, os.Remove(filepath.Join(r.dir, "probe.yaml")))
	r.eventually("probe", "10.0.0.1:1", false)
}

// load loads the policy as a hub does at its start.
func (r *watchRig) load(paths ...string) {
	r.t.Helper()
	if len(paths) == 0 {
		paths = []string{r.dir}
	}
	r.table, r.counts = authz.NewTable(), map[fault.Code]int{}
	r.paths.Store(&paths)
	r.files = New(Options{
		Paths: func() []string { return *r.paths.Load() }, Table: r.table, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Reloaded: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			f := fault.From(err)
			if f != nil {
				r.counts[f.Code]++
			}
		},
	})
	r.files.read = func(path string, most int64) ([]byte, error) {
		r.reads.Add(1)
		r.mu.Lock()
		r.last = append(r.last, path)
		r.mu.Unlock()
		return readBounded(path, most)
	}
	if err := r.files.Load(); err != nil {
		r.t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func allowRule(cluster, destination string) string {
	return fmt.Sprintf("rules:\n- {name: r, clusters: [%s], allow: [%q]}\n", cluster, destination)
}

// write writes in place.
func (r *watchRig) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(watchedHead+text), 0o600))
}

func (r *watchRig) allows(cluster, addr string) bool {
	at := netip.MustParseAddrPort(addr)
	ruling := r.table.Decide(policy.Request{Cluster: cluster, Flow: policy.FlowDial, Addr: at.Addr(), Port: at.Port()})
	return ruling.Judged && ruling.Allow
}

func (r *watchRig) eventually(cluster, addr string, allowed bool) {
	r.t.Helper()
	runtest.Eventually(r.t, fmt.Sprintf("%s to %s: allowed=%v", cluster, addr, allowed), func() bool { return r.allows(cluster, addr) == allowed })
}

// settled waits until the watcher has taken everything that happened before: a new
// file is put into force after it, or with it.
func (r *watchRig) settled() {
	r.t.Helper()
	runtest.Eventually(r.t, "an old probe is gone", func() bool { return !r.allows("settled", "10.0.0.1:1") })
	r.write("settled.yaml", allowRule("settled", "10.0.0.0/8"))
	r.eventually("settled", "10.0.0.1:1", true)
	must(r.t, os.Remove(filepath.Join(r.dir, "settled.yaml")))
	r.eventually("settled", "10.0.0.1:1", false)
}

func TestAChangedPolicyIsNoticed(t *testing.T) {
	for name, change := range map[string]func(r *watchRig) error{
		"written in place": func(r *watchRig) error {
			r.write("c0.yaml", allowRule("c0", "11.0.0.0/8"))
			return nil
		},
		"replaced by a rename": func(r *watchRig) error {
			r.write(".next", allowRule("c0", "11.0.0.0/8"))
			return os.Rename(filepath.Join(r.dir, ".next"), filepath.Join(r.dir, "c0.yaml"))
		},
		"removed and another one added": func(r *watchRig) error {
			r.write("new.yml", allowRule("c0", "11.0.0.0/8"))
			return os.Remove(filepath.Join(r.dir, "c0.yaml"))
		},
		"renamed and changed": func(r *watchRig) error {
			next := filepath.Join(r.dir, "z.yaml")
			if err := os.Rename(filepath.Join(r.dir, "c0.yaml"), next); err != nil {
				return err
			}
			r.write("z.yaml", allowRule("c0", "11.0.0.0/8"))
			return nil
		},
		"the folder replaced by another one": func(r *watchRig) error {
			next := filepath.Join(r.root, "next")
			text := []byte(watchedHead + allowRule("c0", "11.0.0.0/8"))
			return errors.Join(os.Mkdir(next, 0o700), os.WriteFile(filepath.Join(next, "c0.yaml"), text, 0o600),
				os.WriteFile(filepath.Join(next, "c1.yaml"), []byte(watchedHead+allowRule("c1", "10.0.0.0/8")), 0o600),
				os.Rename(r.dir, filepath.Join(r.root, "old")), os.Rename(next, r.dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newWatchRig(t, 3)
			r.run()
			must(t, change(r))
			r.eventually("c0", "11.0.0.1:1", true)
			r.eventually("c0", "10.0.0.1:1", false)
			if !r.allows("c1", "10.0.0.1:1") {
				t.Error("another file has lost its rule")
			}
			r.settled() // it watches what is there now
		})
	}
}

func TestAChangedListIsNoticed(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 1)
	elsewhere := filepath.Join(r.root, "lists")
	must(t, os.Mkdir(elsewhere, 0o700))
	list := filepath.Join(elsewhere, "nodes.txt")
	must(t, os.WriteFile(list, []byte("10.0.0.0/8\n"), 0o600))
	r.write("l.yaml", "lists:\n- {name: l, file: ../lists/nodes.txt}\nrules:\n- {name: l, clusters: [l], allow: [\"@l\"]}\n")
	r.run()
	must(t, os.WriteFile(list, []byte("11.0.0.0/8\n"), 0o600))
	r.eventually("l", "11.0.0.1:1", true)
	if r.allows("l", "10.0.0.1:1") {
		t.Error("the old range is allowed")
	}
	// A bad list keeps the last good one, and a list that comes later is noticed.
	must(t, os.WriteFile(list, []byte("11.0.0.1/8\n"), 0o600))
	runtest.Eventually(t, "the list is refused", func() bool { return r.files.Status().Refusal != nil })
	must(t, os.Remove(list))
	runtest.Eventually(t, "the list is missing", func() bool {
		refusal := r.files.Status().Refusal
		return refusal != nil && strings.Contains(refusal.Reason, "no such file")
	})
	if !r.allows("l", "11.0.0.1:1") {
		t.Error("a list that is missing closed what was open")
	}
	must(t, os.WriteFile(list, []byte("12.0.0.0/8\n"), 0o600))
	r.eventually("l", "12.0.0.1:1", true)
	if st := r.files.Status(); st.Refusal != nil || st.Files != 2 || st.Rules != 2 {
		t.Errorf("%+v", st)
	}
}

// TestAConfigMapIsNoticed: a kubelet makes a new folder and moves the link ..data to it.
func TestAConfigMapIsNoticed(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 0)
	generation := func(n int, destination string) {
		dir := filepath.Join(r.dir, fmt.Sprintf("..generation%d", n))
		text := []byte(watchedHead + allowRule("c0", destination))
		must(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "c0.yaml"), text, 0o600),
			os.Symlink(filepath.Base(dir), filepath.Join(r.dir, "..tmp")), os.Rename(filepath.Join(r.dir, "..tmp"), filepath.Join(r.dir, "..data"))))
	}
	generation(1, "10.0.0.0/8")
	must(t, os.Symlink("..data/c0.yaml", filepath.Join(r.dir, "c0.yaml")))
	r.run()
	for i, octet := range []int{11, 12, 13} {
		generation(2+i, fmt.Sprintf("%d.0.0.0/8", octet))
		must(t, os.RemoveAll(filepath.Join(r.dir, fmt.Sprintf("..generation%d", 1+i))))
		r.eventually("c0", fmt.Sprintf("%d.0.0.1:1", octet), true)
		r.eventually("c0", fmt.Sprintf("%d.0.0.1:1", octet-1), false)
	}
}

func TestABadPolicyKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 2)
	r.run()
	r.write("c0.yaml", "rules:\n- {name: r, clusters: [c0], allow: []}\n")
	runtest.Eventually(t, "the file is refused", func() bool { return r.files.Status().Refusal != nil })
	refusal := r.files.Status().Refusal
	if refusal.File != filepath.Join(r.dir, "c0.yaml") || !strings.Contains(refusal.Reason, "c0.yaml:4:") || refusal.At.IsZero() {
		t.Errorf("%+v", refusal)
	}
	r.write("c1.yaml", allowRule("c1", "11.0.0.0/8"))
	r.eventually("c1", "11.0.0.1:1", true)
	if !r.allows("c0", "10.0.0.1:1") {
		t.Error("the last good content is not in force")
	}
	if st := r.files.Status(); st.Refusal == nil || st.Files != 2 || st.Rules != 2 {
		t.Errorf("%+v", st)
	}
	r.write("c0.yaml", allowRule("c0", "12.0.0.0/8"))
	r.eventually("c0", "12.0.0.1:1", true)
	if st := r.files.Status(); st.Refusal != nil {
		t.Errorf("%+v", st.Refusal)
	}
}

// TestAFolderThatIsGoneForAMoment closes nothing and opens nothing.
func TestAFolderThatIsGoneForAMoment(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 2)
	r.write("deny.yaml", "rules:\n- {name: no, clusters: [c1], deny: [10.1.0.0/16]}\n")
	r.run()
	hold := func(when string) {
		t.Helper()
		if !r.allows("c0", "10.0.0.1:1") || !r.allows("c1", "10.0.0.1:1") || r.allows("c1", "10.1.0.1:1") {
			t.Errorf("%s: the policy is another one", when)
		}
	}
	away := filepath.Join(r.root, "away")
	must(t, os.Rename(r.dir, away))
	runtest.Eventually(t, "it is noticed", func() bool { return r.refusals(fault.CodeConfig) > 0 })
	hold("moved away")
	must(t, os.Rename(away, r.dir))
	r.settled()
	hold("moved back")

	before := r.refusals(fault.CodeConfig)
	must(t, os.RemoveAll(r.dir))
	runtest.Eventually(t, "it is noticed", func() bool { return r.refusals(fault.CodeConfig) > before })
	hold("removed")
	must(t, os.Mkdir(r.dir, 0o700))
	r.eventually("c0", "10.0.0.1:1", false) // an empty folder is a decision
	r.write("c0.yaml", allowRule("c0", "12.0.0.0/8"))
	r.eventually("c0", "12.0.0.1:1", true)
}

// TestOneChangedFileOfAThousandIsOneReading also of what other programs leave beside it.
func TestOneChangedFileOfAThousandIsOneReading(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 1000)
	r.run()
	r.settled()
	before := r.reads.Load()
	must(t, os.WriteFile(filepath.Join(r.dir, "README.txt"), []byte("x"), 0o600))
	r.write("c500.yaml", allowRule("c500", "11.0.0.0/8"))
	r.eventually("c500", "11.0.0.1:1", true)
	// A writer's two steps may be taken apart, never more than that.
	if n := r.reads.Load() - before; n < 1 || n > 2 {
		t.Errorf("%d files were read", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range r.last[before:] {
		if filepath.Base(path) != "c500.yaml" {
			t.Errorf("%s was read", path)
		}
	}
}

// TestPoliciesThatAreConfiguredLater are watched from then on.
func TestPoliciesThatAreConfiguredLater(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 1)
	r.run()
	more := filepath.Join(r.root, "more.yaml")
	must(t, os.WriteFile(more, []byte(watchedHead+allowRule("more", "10.0.0.0/8")), 0o600))
	r.paths.Store(&[]string{r.dir, more})
	r.files.Moved()
	r.eventually("more", "10.0.0.1:1", true)
	must(t, os.WriteFile(more, []byte(watchedHead+allowRule("more", "11.0.0.0/8")), 0o600))
	r.eventually("more", "11.0.0.1:1", true)
	// A file that the configuration names stays in force without being there.
	must(t, os.Remove(more))
	runtest.Eventually(t, "it is noticed", func() bool { return r.refusals(fault.CodeConfig) > 0 })
	if !r.allows("more", "11.0.0.1:1") {
		t.Error("a file that is missing closed what was open")
	}
}

// TestAFileOfPathsThatWereLeft: an event that was on its way when the configuration
// changed brings nothing back.
func TestAFileOfPathsThatWereLeft(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 1)
	r.run()
	left := filepath.Join(r.root, "left.yaml")
	must(t, os.WriteFile(left, []byte(watchedHead+allowRule("left", "10.0.0.0/8")), 0o600))
	if err := r.files.Load(left, filepath.Join(r.root, "no.yaml")); err != nil {
		t.Error(err)
	}
	if r.allows("left", "10.0.0.1:1") || !r.allows("c0", "10.0.0.1:1") {
		t.Error("a file that no path names is in force")
	}
}

// TestAFolderBehindALink: the link is moved to another folder.
func TestAFolderBehindALink(t *testing.T) {
	t.Parallel()
	r := newWatchRig(t, 1)
	link := filepath.Join(r.root, "current")
	must(t, os.Symlink(r.dir, link))
	r.run(link)
	r.write("more.yaml", allowRule("more", "10.0.0.0/8"))
	r.eventually("more", "10.0.0.1:1", true)
	next := filepath.Join(r.root, "next")
	must(t, errors.Join(os.Mkdir(next, 0o700), os.WriteFile(filepath.Join(next, "c0.yaml"), []byte(watchedHead+allowRule("c0", "11.0.0.0/8")), 0o600),
		os.Symlink(next, link+".tmp"), os.Rename(link+".tmp", link)))
	r.eventually("c0", "11.0.0.1:1", true)
	r.eventually("more", "10.0.0.1:1", false)
}

// refusals counts the readings that were refused with a code.
func (r *watchRig) refusals(code fault.Code) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[code]
}
