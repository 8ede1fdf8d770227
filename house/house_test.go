// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// repository loads the tree that this test stands in.
func repository(t *testing.T) *Tree {
	t.Helper()
	tree, err := Load(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if tree.Lookup("house/doc.go") == nil {
		t.Fatal("the tree does not hold house/doc.go: this is not the repository")
	}
	return tree
}

// TestHouse applies every law to the repository.
func TestHouse(t *testing.T) {
	broken := Judge(repository(t), Laws(), Exceptions())
	laws := append(Laws(), Law{Name: "exceptions", Why: "An exception that excuses nothing hides the next breach."})
	for _, law := range laws {
		t.Run(law.Name, func(t *testing.T) {
			for _, b := range broken[law.Name] {
				t.Errorf("%s", b)
			}
			if t.Failed() {
				t.Logf("why: %s", law.Why)
			}
		})
	}
}

// TestEveryLawCanFail judges a small bad tree for each law: testdata/<law>.txt
// holds files and, in "want", exactly the breaches to report.
func TestEveryLawCanFail(t *testing.T) {
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) {
			tree, want := fixture(t, "testdata/"+law.Name+".txt")
			if len(want) == 0 {
				t.Fatal("the fixture wants no breach: nothing is proven")
			}
			got := Judge(tree, []Law{law}, nil)[law.Name]
			for _, b := range got {
				if _, ok := want[b.String()]; !ok {
					t.Errorf("unexpected breach\n%s", b)
				}
				want[b.String()]--
			}
			for b, n := range want {
				if n > 0 {
					t.Errorf("missing breach\n%s", b)
				}
			}
		})
	}
}

// fixture reads a tree in the txtar format of the Go project: "-- path --" lines
// before each file.
func fixture(t *testing.T, file string) (*Tree, map[string]int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files, name := fstest.MapFS{}, ""
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(rest, " --\n") {
			name = strings.TrimSuffix(rest, " --\n")
			files[name] = &fstest.MapFile{}
		} else if name != "" {
			files[name].Data = append(files[name].Data, line...)
		}
	}
	want := map[string]int{}
	if w := files["want"]; w != nil {
		for line := range strings.Lines(string(w.Data)) {
			if line = strings.TrimSpace(line); line != "" {
				want[line]++
			}
		}
		delete(files, "want")
	}
	return tree(t, files), want
}

func tree(t *testing.T, files fstest.MapFS) *Tree {
	t.Helper()
	tree, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestEveryRowHasAFolder: the table of floors shows what there is.
func TestEveryRowHasAFolder(t *testing.T) {
	for _, b := range emptyRows(repository(t), Packages()) {
		t.Error(b)
	}
	bad := tree(t, fstest.MapFS{"internal/base/id/id.go": {Data: []byte("package id\n")}})
	rows := []Package{{Path: "internal/base/id"}, {Path: "internal/base/..."}, {Path: "internal/edge/..."}}
	if got := emptyRows(bad, rows); len(got) != 1 || !strings.Contains(got[0].Text, "internal/edge/...") {
		t.Errorf("%v", got)
	}
}

// one judges a single file.
func one(t *testing.T, path, source string, check func(*Tree) []Breach) []Breach {
	t.Helper()
	return check(tree(t, fstest.MapFS{path: {Data: []byte(source)}}))
}

// TestEveryImportRuleFires breaks each row of doorRules, and uses each allowed place.
func TestEveryImportRuleFires(t *testing.T) {
	for _, r := range doorRules() {
		path := strings.TrimSuffix(r.Import, "/...")
		source := "package x\n\nimport _ \"" + path + "\"\n"
		if got := one(t, "internal/base/telemetry/x.go", source, checkImports); len(got) != 1 {
			t.Errorf("import of %s: %d breaches, want 1", path, len(got))
		}
		for _, place := range r.Places {
			dir := strings.TrimSuffix(place, "/...")
			if got := one(t, dir+"/x.go", source, checkImports); len(got) != 0 {
				t.Errorf("import of %s in %s is allowed, got %v", path, dir, got)
			}
		}
	}
}

// TestEveryCallRuleFires breaks each name of callRules and pureRules.
func TestEveryCallRuleFires(t *testing.T) {
	fires := func(dir string, rules []callRule, check func(*Tree) []Breach) {
		for _, r := range rules {
			names := r.Names
			if len(names) == 0 {
				names = []string{"Anything"}
			}
			for _, name := range names {
				source := "package x\n\nimport p \"" + r.Import + "\"\n\nfunc f() { p." + name + "() }\n"
				if got := one(t, dir+"/x.go", source, check); len(got) == 0 {
					t.Errorf("%s.%s in %s: no breach", r.Import, name, dir)
				}
				if got := one(t, dir+"/x_test.go", source, check); len(got) != 0 {
					t.Errorf("%s.%s in a test of %s: %v", r.Import, name, dir, got)
				}
				for _, place := range r.Places {
					file := place
					if !strings.HasSuffix(place, ".go") {
						file = strings.TrimSuffix(place, "/...") + "/x.go"
					}
					if got := one(t, file, source, check); len(got) != 0 {
						t.Errorf("%s.%s is allowed in %s: %v", r.Import, name, file, got)
					}
				}
			}
		}
	}
	fires("internal/stream/hub", callRules(), checkCalls)
	fires("internal/access/policy", pureRules(), checkPurity)
	fires("internal/base/conf", pureRules(), checkPurity)
}

// TestEveryPlaceIsOnce keeps the table of floors unambiguous.
func TestEveryPlaceIsOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Packages() {
		if seen[p.Path] {
			t.Errorf("%s stands twice in the table", p.Path)
		}
		if p.Does == "" {
			t.Errorf("%s has no reason for its floor", p.Path)
		}
		seen[p.Path] = true
	}
}

// TestExceptions proves that an exception excuses only what it names, and that
// an idle one or one without a reason is reported.
func TestExceptions(t *testing.T) {
	law := Law{"always", "", func(*Tree) []Breach { return []Breach{{"a/x.go", 1, "bad thing"}, {"b/x.go", 1, "bad thing"}} }}
	got := Judge(&Tree{}, []Law{law}, []Exception{
		{"always", "a/", "bad", "because"},
		{"always", "b/x.go", "other", "matches nothing"},
		{"never", "b/x.go", "", "another law"},
	})
	if len(got["always"]) != 1 || got["always"][0].Path != "b/x.go" {
		t.Errorf("breaches left: %v, want the one in b/x.go", got["always"])
	}
	if len(got["exceptions"]) != 2 {
		t.Errorf("idle exceptions: %v, want two", got["exceptions"])
	}
	got = Judge(&Tree{}, []Law{law}, []Exception{{"always", "a/x.go", "", ""}})
	if len(got["exceptions"]) != 1 {
		t.Errorf("an exception without a reason passes: %v", got["exceptions"])
	}
}
