// SPDX-License-Identifier: Apache-2.0

package tenantfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/confdir"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// rig is a folder of tenants.
type rig struct {
	t     testing.TB
	dir   string
	table *tenant.Table
	files *Files
	reads atomic.Int64
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, dir: runtest.Dir(t), table: tenant.NewTable()}
	r.files = New(Options{
		Paths: func() []string { return []string{r.dir} }, Table: r.table, Log: slog.New(slog.DiscardHandler),
		Now: time.Now, Reloaded: func(error) {},
	})
	r.files.disk = func(path string, most int64) ([]byte, error) {
		r.reads.Add(1)
		return confdir.ReadDisk(path, most)
	}
	return r
}

// text is a tenant with names, the first of which is on line 6 in column 24.
func text(name, upstream string, names ...string) string {
	return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: %s}\nspec:\n  ways:\n"+
		"  - {flow: api, names: [%s], upstreams: [\"%s:443\"]}\n", name, strings.Join(names, ", "), upstream)
}

func (r *rig) path(file string) string { return filepath.Join(r.dir, file) }

func (r *rig) write(file, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(file), []byte(text), 0o600))
}

// load loads files, or all, and compares the tenants in force and the refused files.
func (r *rig) load(files, tenants, refused string) error {
	r.t.Helper()
	var named []string
	for _, f := range strings.Fields(files) {
		named = append(named, r.path(f))
	}
	err := r.files.Load(named...)
	r.is(tenants, refused)
	if (err != nil) != (refused != "") && named == nil {
		r.t.Fatal(err)
	}
	return err
}

func (r *rig) is(tenants, refused string) {
	r.t.Helper()
	var names, bad []string
	for _, c := range r.table.All() {
		names = append(names, c.Name)
	}
	st := r.files.Status()
	for _, f := range st.Refusals {
		bad = append(bad, filepath.Base(f.File))
	}
	slices.Sort(bad)
	got := strings.Join(names, " ")
	if got != tenants || strings.Join(bad, " ") != refused || st.Tenants != len(names) || st.Files != st.Tenants || st.Refused != len(bad) {
		r.t.Fatalf("tenants %q, refused %q, want %q, %q; %+v", got, bad, tenants, refused, st)
	}
}

// upstream is where a client that asks for a name is sent; "" if nowhere.
func (r *rig) upstream(name string) string {
	route, _ := r.table.ByName(name, nil)
	if route.Way == nil {
		return ""
	}
	return strings.TrimSuffix(route.Way.Upstreams[0].Address, ":443")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) remove(file string) { r.t.Helper(); must(r.t, os.Remove(r.path(file))) }

// At the start everything good is in force. What is bad is refused with its place.
func TestTheStart(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", text("c1", "u1", "h1", "h2"))
	r.write("b.yaml", text("c1", "u2", "h3")) // the name of another one
	r.write("c.yaml", text("c3", "u3", "h4", "h2"))
	r.write("d.yaml", text("c4", "u4", "h5"))
	r.write("e.yaml", "kind: [")
	r.write("f.yaml", text("c6", "u6"))
	must(t, os.Mkdir(r.path("g.yaml"), 0o700))
	err := r.load("", "c1 c4", "b.yaml c.yaml e.yaml f.yaml g.yaml")
	for _, want := range []string{
		r.path("b.yaml") + `:3:18: metadata.name: name "c1" is claimed by tenant "c1" of ` + r.path("a.yaml"),
		r.path("c.yaml") + `:6:29: spec.ways[0].names[1]: name "h2" is claimed by tenant "c1" of ` + r.path("a.yaml"),
		r.path("e.yaml") + ":1:", r.path("f.yaml") + ":6:", r.path("g.yaml") + " cannot be read",
	} {
		if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if r.upstream("h1") != "u1" || r.upstream("h4") != "" || r.upstream("h5") != "u4" {
		t.Error("the routes are others")
	}
	if n := r.reads.Load(); n != 7 {
		t.Errorf("%d files were read", n)
	}
	if st := r.files.Status(); st.Changed.IsZero() || !strings.Contains(fmt.Sprint(st.Refusals), ":6:29: spec.ways[0].names[1]") {
		t.Errorf("%+v", st)
	}
}

// A changed file changes its tenant and no other one.
func TestOneChangeTouchesOneTenant(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.write(fmt.Sprintf("f%d.yaml", i), text(fmt.Sprintf("c%d", i), "u", fmt.Sprintf("h%d", i)))
	}
	must(t, r.load("", "c0 c1 c2", ""))
	c0, c1 := r.table.Get("c0"), r.table.Get("c1")
	r.write("f1.yaml", text("c1", "v", "h9"))
	must(t, r.load("f1.yaml", "c0 c1 c2", ""))
	if r.table.Get("c0") != c0 || r.table.Get("c1") == c1 || r.upstream("h9") != "v" || r.upstream("h1") != "" {
		t.Error("another tenant was changed, or this one was not")
	}
	r.remove("f1.yaml")
	must(t, r.load("f1.yaml", "c0 c2", ""))
	if r.table.Get("c0") != c0 || r.upstream("h9") != "" {
		t.Error("another tenant was changed, or this one stayed")
	}
}

// A file whose tenant has another name removes the one that it had, even if both claim the same.
func TestAnotherNameInAFile(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", text("c1", "u", "h1"))
	r.write("b.yaml", text("c2", "u", "h2"))
	must(t, r.load("", "c1 c2", ""))
	r.write("a.yaml", text("c3", "v", "h1"))
	must(t, r.load("a.yaml", "c2 c3", ""))
	if r.upstream("h1") != "v" {
		t.Error(r.upstream("h1"))
	}
	// If it is refused under the new name, the one that it had stays.
	r.write("a.yaml", text("c4", "w", "h1", "h2"))
	if err := r.load("a.yaml", "c2 c3", "a.yaml"); err == nil || r.upstream("h1") != "v" {
		t.Error(err, r.upstream("h1"))
	}
}

func TestABrokenFileKeepsItsLastGoodContent(t *testing.T) {
	for name, broken := range map[string]func(r *rig){
		"mistakes":    func(r *rig) { r.write("a.yaml", "kind: EdgeTenant\n") },
		"not YAML":    func(r *rig) { r.write("a.yaml", "{") },
		"empty":       func(r *rig) { r.write("a.yaml", "") },
		"taken":       func(r *rig) { r.write("a.yaml", text("c1", "x", "h2")) },
		"a dead link": func(r *rig) { r.remove("a.yaml"); must(r.t, os.Symlink("no", r.path("a.yaml"))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("a.yaml", text("c1", "u1", "h1"))
			r.write("b.yaml", text("c2", "u2", "h2"))
			must(t, r.load("", "c1 c2", ""))
			broken(r)
			r.write("b.yaml", text("c2", "v2", "h2"))
			for _, named := range []string{"a.yaml b.yaml", ""} {
				if err := r.load(named, "c1 c2", "a.yaml"); err == nil || r.upstream("h1") != "u1" || r.upstream("h2") != "v2" {
					t.Error(err, r.upstream("h1"), r.upstream("h2"))
				}
			}
			r.remove("a.yaml")
			r.write("a.yaml", text("c1", "v1", "h1"))
			if must(t, r.load("a.yaml", "c1 c2", "")); r.upstream("h1") != "v1" {
				t.Error(r.upstream("h1"))
			}
		})
	}
}

// A refused file comes into force when the tenant in its way goes, or leaves what it claims.
func TestARefusedTenantIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(r *rig)
		tenants string
		refused string
	}{
		"removed":          {func(r *rig) { r.remove("a.yaml") }, "c1 c2", "d.yaml"},
		"renamed":          {func(r *rig) { r.write("a.yaml", text("c9", "u1", "h1", "h2")) }, "c1 c9", "c.yaml d.yaml"},
		"one name is free": {func(r *rig) { r.write("a.yaml", text("c1", "u1", "h1")) }, "c1 c2", "b.yaml d.yaml"},
		"broken":           {func(r *rig) { r.write("a.yaml", "x") }, "c1", "a.yaml b.yaml c.yaml d.yaml"},
		"nothing is free":  {func(r *rig) { r.write("a.yaml", text("c1", "v1", "h1", "h2")) }, "c1", "b.yaml c.yaml d.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("a.yaml", text("c1", "u1", "h1", "h2"))
			r.write("b.yaml", text("c1", "u2", "h3"))
			r.write("c.yaml", text("c2", "u3", "h4", "h2"))
			r.write("d.yaml", text("c3", "u4", "h4", "h2")) // never: c.yaml is read before it
			_ = r.load("", "c1", "b.yaml c.yaml d.yaml")
			c.change(r)
			_ = r.load("a.yaml", c.tenants, c.refused)
		})
	}
}

// Names move between files that change together, in any order of the files.
func TestANameMovesInOneChange(t *testing.T) {
	for _, to := range []string{"a.yaml", "z.yaml"} {
		r := newRig(t)
		r.write("m.yaml", text("c1", "u1", "h1", "h2"))
		r.write(to, text("c2", "u2", "h3"))
		must(t, r.load("", "c1 c2", ""))
		r.write("m.yaml", text("c1", "u1", "h1"))
		r.write(to, text("c2", "u2", "h2"))
		if must(t, r.load("m.yaml "+to, "c1 c2", "")); r.upstream("h2") != "u2" {
			t.Error(to, r.upstream("h2"))
		}
		// And the tenant itself moves to another file.
		r.write("b.yaml", text("c1", "u9", "h1"))
		r.remove("m.yaml")
		if must(t, r.load("b.yaml m.yaml", "c1 c2", "")); r.upstream("h1") != "u9" {
			t.Error(to, r.upstream("h1"))
		}
	}
}

func (r *rig) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.files.Watch(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.write("probe.yaml", text("probe", "u", "probe"))
	r.eventually("probe", "u")
	r.remove("probe.yaml")
	r.eventually("probe", "")
}

func (r *rig) eventually(name, upstream string) {
	r.t.Helper()
	runtest.Eventually(r.t, name+" leads to "+upstream, func() bool { return r.upstream(name) == upstream })
}

// A kubelet makes a new folder and moves the link ..data to it: all files change at once.
func TestAConfigMapIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	generation := func(n int, files map[string]string) {
		dir := r.path(fmt.Sprintf("..generation%d", n))
		must(t, os.Mkdir(dir, 0o700))
		for name, content := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		must(t, errors.Join(os.Symlink(filepath.Base(dir), r.path("..tmp")), os.Rename(r.path("..tmp"), r.path("..data"))))
	}
	generation(1, map[string]string{"a.yaml": text("c1", "u1", "h1"), "b.yaml": text("c2", "u2", "h2")})
	for _, name := range []string{"a.yaml", "b.yaml"} {
		must(t, os.Symlink("..data/"+name, r.path(name)))
	}
	must(t, r.load("", "c1 c2", ""))
	r.watch()
	generation(2, map[string]string{"a.yaml": text("c1", "v1", "h1", "h2"), "b.yaml": text("c2", "v2", "h3")})
	must(t, os.RemoveAll(r.path("..generation1")))
	r.eventually("h3", "v2")
	r.eventually("h2", "v1")
	r.is("c1 c2", "")
}

func TestOneChangeOfManyFiles(t *testing.T) {
	t.Parallel()
	oneChange(t, 2_000)
}

// oneChange shows that a change of one file costs one reading, however many there are.
func oneChange(t *testing.T, many int) {
	r := newRig(t)
	for i := range many {
		r.write(fmt.Sprintf("c%d.yaml", i), text(fmt.Sprintf("c%d", i), "u", fmt.Sprintf("api.c%d.example.org", i)))
	}
	before, began := heap(), time.Now()
	must(t, r.files.Load())
	took, more := time.Since(began), heap()-before
	t.Logf("%d files: %v, %d MiB, %d bytes each", many, took.Round(time.Millisecond), more>>20, more/int64(many))
	if st := r.files.Status(); st.Tenants != many {
		t.Fatalf("%+v", st)
	}
	r.watch()
	replace := func(file, text string) { // in one step: a writer's two steps may be read apart
		r.write(".next", text)
		must(t, os.Rename(r.path(".next"), r.path(file)))
	}
	for _, change := range []func(){
		func() { replace("c7.yaml", text("c7", "v", "api.c7.example.org")) },
		func() { r.remove("c7.yaml") },
		func() { replace("new.yaml", text("c7", "w", "api.c7.example.org")) },
	} {
		reads, was := r.reads.Load(), r.upstream("api.c7.example.org")
		change()
		runtest.Eventually(t, "the change is in force", func() bool { return r.upstream("api.c7.example.org") != was })
		if n := r.reads.Load() - reads; n > 1 {
			t.Errorf("%d files were read", n)
		}
	}
	runtime.KeepAlive(r.files)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
