// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// rig has a folder of files whose content is a word. In force is at most one file with each word.
type rig struct {
	t       *testing.T
	dir     string
	files   *Files[string]
	force   map[string]string // word by file
	looks   int
	reads   []string
	counted int
	now     time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), force: map[string]string{}, now: time.Unix(1000, 0)}
	r.files = New(Options[string]{
		Words: Words{One: "word", Many: "words", All: "words", Setting: "words", Check: "look"},
		Paths: func() []string { return []string{r.dir} },
		Read: func(file string, read Reader) (string, error) {
			data, err := read(file, 100)
			if word := string(data); err != nil || word != "bad" {
				return word, err
			}
			return "", fault.New(fault.CodeConfig, "a bad word")
		},
		Apply: r.apply, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now },
		Disk: func(path string, most int64) ([]byte, error) {
			r.reads = append(r.reads, filepath.Base(path))
			return ReadDisk(path, most)
		},
		Reloaded: func(error) { r.counted++ },
	})
	return r
}

func (r *rig) apply(c Change[string]) Outcome {
	r.looks++
	out := Outcome{Refused: map[string]error{}}
	for _, file := range c.Gone {
		delete(r.force, filepath.Base(file))
	}
	for _, file := range slices.Sorted(maps.Keys(c.Good)) {
		word, name := c.Good[file], filepath.Base(file)
		for other, taken := range r.force {
			if taken == word && other != name {
				out.Refused[file] = fault.Newf(fault.CodeConfig, "%s is taken by %s", word, other)
			}
		}
		if out.Refused[file] == nil {
			r.force[name] = word
		}
	}
	if len(c.Gone) > 0 {
		for _, refused := range r.files.Status().Refusals {
			out.Again = append(out.Again, refused.File)
		}
	}
	return out
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, word string) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(word), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// load loads, and compares what is read, in force and refused.
func (r *rig) load(named []string, reads string, force map[string]string, refused ...string) error {
	r.t.Helper()
	r.reads = nil
	err := r.files.Load(named...)
	var bad []string
	for _, f := range r.files.Status().Refusals {
		bad = append(bad, filepath.Base(f.File))
	}
	if got := strings.Join(r.reads, " "); got != reads || !reflect.DeepEqual(r.force, force) || !slices.Equal(bad, refused) {
		r.t.Fatalf("read %q, in force %v, refused %v; want %q, %v, %v", got, r.force, bad, reads, force, refused)
	}
	return err
}

func TestWhatIsAppliedAndRefused(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", "x")
	r.write("b.yml", "x")
	r.write("c.yaml", "bad")
	r.write("d.yaml", "y")
	for _, other := range []string{"README", ".hidden.yaml"} {
		r.write(other, "x")
	}
	force := map[string]string{"a.yaml": "x", "d.yaml": "y"}
	err := r.load(nil, "a.yaml b.yml c.yaml d.yaml", force, "b.yml", "c.yaml")
	if !fault.Has(err, fault.CodeConfig) || !strings.Contains(err.Error(), "x is taken by a.yaml") || !strings.Contains(err.Error(), "a bad word") || r.counted != 2 {
		t.Fatal(err, r.counted)
	}
	st := r.files.Status()
	if !st.Refusals[0].New || st.Files != 2 || st.Refused != 2 || !st.Changed.Equal(r.now) {
		t.Fatalf("%+v", st)
	}

	// What is good and has not changed is not read again. What is refused is, without a change in force.
	r.now = r.now.Add(time.Hour)
	_ = r.load(nil, "b.yml c.yaml", force, "b.yml", "c.yaml")
	if st := r.files.Status(); st.Changed.Equal(r.now) || !st.Refusals[0].At.Equal(r.now) {
		t.Fatalf("%+v", st)
	}

	// A known file that is broken, taken or unreadable keeps its last good content.
	for _, word := range []string{"bad", "x", strings.Repeat("z", 101)} {
		r.write("d.yaml", word)
		if err := r.load([]string{r.path("d.yaml")}, "d.yaml", force, "b.yml", "c.yaml", "d.yaml"); err == nil || staying(err) != "its last good content stays" {
			t.Fatal(err)
		}
	}
	if st := r.files.Status(); st.Files != 2 || st.Refusals[2].New {
		t.Fatalf("%+v", st)
	}

	// When the file in the way goes, those that it kept out are read again: only one of them fits.
	if err := os.Remove(r.path("a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.write("d.yaml", "y")
	force = map[string]string{"b.yml": "x", "d.yaml": "y"}
	if err := r.load([]string{r.path("a.yaml")}, "b.yml c.yaml d.yaml", force, "c.yaml"); err == nil || !strings.Contains(err.Error(), "a bad word") {
		t.Fatal(err)
	}
	if st := r.files.Status(); st.Files != 2 || st.Refused != 1 || !st.Changed.Equal(r.now) {
		t.Fatalf("%+v", st)
	}
}

func TestAFolderThatCannotBeReadChangesNothing(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", "x")
	_ = r.load(nil, "a.yaml", map[string]string{"a.yaml": "x"})
	dir := r.dir
	r.dir = filepath.Join(dir, "no")
	looks := r.looks
	for _, named := range [][]string{nil, {r.path("a.yaml")}} {
		err := r.load(named, "", map[string]string{"a.yaml": "x"})
		if err == nil || !strings.Contains(err.Error(), "the word "+r.dir+" cannot be read") || r.looks != looks || staying(err) != "everything stays as it was" {
			t.Fatal(err, r.looks)
		}
	}
}

// The last good file stays in force when it goes, until there is another: without any too much would be open.
func TestTheLastFileStays(t *testing.T) {
	r := newRig(t)
	r.files.Some = true
	gone := func(name string) string {
		t.Helper()
		if err := os.Remove(r.path(name)); err != nil {
			t.Fatal(err)
		}
		return r.path(name)
	}
	if err := r.load(nil, "", map[string]string{}); err == nil || !strings.Contains(err.Error(), "there is no word in "+r.dir) {
		t.Fatal(err)
	}
	r.write("a.yaml", "x")
	r.write("b.yaml", "y")
	if err := r.load([]string{r.path("a.yaml")}, "a.yaml b.yaml", map[string]string{"a.yaml": "x", "b.yaml": "y"}); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{"b.yaml": "y"}
	if err := r.load([]string{gone("a.yaml")}, "", last); err != nil {
		t.Fatal(err)
	}
	for _, named := range [][]string{{gone("b.yaml")}, nil} {
		if err := r.load(named, "", last); err == nil || staying(err) != "everything stays as it was" {
			t.Fatal(err)
		}
	}
	r.write("c.yaml", "bad") // as if it had been renamed, with a mistake
	if err := r.load([]string{r.path("c.yaml")}, "c.yaml", last, "c.yaml"); err == nil {
		t.Fatal("no error")
	}
	r.write("c.yaml", "z")
	// Refused ones are read once more, since another went.
	if err := r.load([]string{r.path("c.yaml")}, "c.yaml c.yaml", map[string]string{"c.yaml": "z"}); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := r.files.Judge([]string{other}); err == nil {
		t.Error("a folder without a file is good")
	}
	r.dir = other
	if err := r.load(nil, "", map[string]string{"c.yaml": "z"}); err == nil {
		t.Error("no error")
	}
}

// A status lists the newest refusals, and counts all.
// A look at all files tells of a refusal once, and again when its reason is another one.
func TestARefusalIsLoggedOnce(t *testing.T) {
	r := newRig(t)
	var log strings.Builder
	r.files.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := watcher[string]{of: r.files}
	logged := func(want ...string) {
		t.Helper()
		log.Reset()
		w.tell(fresh(r.files.Load()))
		for _, text := range want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%q, want %q", log.String(), text)
			}
		}
		if n := strings.Count(log.String(), "is refused"); n != len(want) {
			t.Errorf("%d lines, want %d: %s", n, len(want), log.String())
		}
	}
	r.write("a.yaml", "bad")
	logged("a bad word")
	logged()
	r.write("b.yaml", "bad")
	logged("a bad word")
	r.write("c.yaml", "one")
	logged()
	r.write("a.yaml", "one")
	logged("one is taken by c.yaml")
	logged()
	r.write("a.yaml", "bad")
	logged("a bad word")
}

func TestTheListOfRefusalsIsBounded(t *testing.T) {
	r := newRig(t)
	for i := range refusalsListed + 5 {
		r.write(fmt.Sprintf("f%d.yaml", i), "bad")
	}
	_ = r.files.Load()
	r.now = r.now.Add(time.Second)
	_ = r.files.Load(r.path("f77.yaml"))
	if st := r.files.Status(); st.Refused != refusalsListed+5 || len(st.Refusals) != refusalsListed || st.Refusals[0].File != r.path("f77.yaml") {
		t.Fatalf("%d of %d, %+v", len(st.Refusals), st.Refused, st.Refusals[0])
	}
}

func TestJudge(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", "bad")
	_ = r.files.Load()
	other := t.TempDir()
	if err := r.files.Judge([]string{r.dir}); err != nil {
		t.Error(err)
	}
	if err := r.files.Judge([]string{r.dir, other}); err != nil {
		t.Error(err) // a known file is judged when it is read
	}
	if err := os.WriteFile(filepath.Join(other, "b.yaml"), []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.files.Judge([]string{r.dir, other}); err == nil || !strings.Contains(err.Error(), "a bad word") {
		t.Error(err)
	}
}
