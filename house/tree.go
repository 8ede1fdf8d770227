// SPDX-License-Identifier: Apache-2.0

package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the main module.
const Module = "github.com/tombolo-io/tombolo"

// maxTextFile bounds what is read as text; larger files are artefacts.
const maxTextFile = 4 << 20

// Tree is the repository as the laws see it.
type Tree struct {
	Fset    *token.FileSet
	Files   []*File  // sorted by path
	Corpora []string // folders of testdata/fuzz that hold an input, sorted
}

// File is one file of the repository. Path uses slashes and is relative to the root.
type File struct {
	Path string
	Data []byte

	AST       *ast.File // nil unless a Go file of the repository's own code
	Generated bool      // carries the "Code generated" line
}

// Load reads a tree. It skips version control, build results and testdata, which
// belongs to the tests that read it.
func Load(root fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk: an editor's temporary file
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" {
				if err := t.corpora(root, p); err != nil {
					return err
				}
			}
			if slices.Contains([]string{".git", "bin", "testdata", "node_modules"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if d.Name() == ".git" {
			return nil // that of a linked worktree, which says where the repository is
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxTextFile {
			return nil
		}
		return t.add(root, p)
	})
	slices.SortFunc(t.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(t.Corpora)
	return t, err
}

// corpora notes which fuzz targets have inputs in a folder testdata; its other files do
// not matter.
func (t *Tree) corpora(root fs.FS, testdata string) error {
	inputs, err := fs.Glob(root, testdata+"/fuzz/*/*")
	for _, input := range inputs {
		if dir := path.Dir(input); !slices.Contains(t.Corpora, dir) {
			t.Corpora = append(t.Corpora, dir)
		}
	}
	return err
}

func (t *Tree) add(root fs.FS, p string) error {
	data, err := fs.ReadFile(root, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := &File{Path: p, Data: data}
	if strings.HasSuffix(p, ".go") {
		f.AST, err = parser.ParseFile(t.Fset, p, data, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("the house cannot read a Go file: %w", err)
		}
		f.Generated = ast.IsGenerated(f.AST)
	}
	t.Files = append(t.Files, f)
	return nil
}

// Dir is the folder of the file.
func (f *File) Dir() string { return path.Dir(f.Path) }

// Test reports whether the file is compiled into tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Product reports whether the file is code that we ship: not a test, a test twin or
// tooling.
func (f *File) Product() bool {
	if f.AST == nil || f.Test() || isTwin(f.Dir()) {
		return false
	}
	top, _, _ := strings.Cut(f.Path, "/")
	return slices.Contains([]string{"api", "client", "cmd", "internal", "proto"}, top)
}

// isTwin reports whether a folder holds a test twin: internal/stream/carrier/carriertest
// or internal/carriertest beside internal/stream/carrier.
func isTwin(dir string) bool {
	base := path.Base(dir)
	return strings.HasPrefix(dir, "internal/") && len(base) > len("test") && strings.HasSuffix(base, "test")
}

// Go returns the Go files that keep accepts.
func (t *Tree) Go(keep func(*File) bool) []*File {
	var out []*File
	for _, f := range t.Files {
		if f.AST != nil && keep(f) {
			out = append(out, f)
		}
	}
	return out
}

// Lookup finds a file by path.
func (t *Tree) Lookup(p string) *File {
	i, ok := slices.BinarySearchFunc(t.Files, p, func(f *File, p string) int { return strings.Compare(f.Path, p) })
	if !ok {
		return nil
	}
	return t.Files[i]
}

// Line is the line of a node.
func (t *Tree) Line(n ast.Node) int { return t.Fset.Position(n.Pos()).Line }

// breach makes a Breach at a node.
func (t *Tree) breach(f *File, n ast.Node, format string, args ...any) Breach {
	return Breach{f.Path, t.Line(n), fmt.Sprintf(format, args...)}
}

// imports maps the local name of each import of a file to its path.
func imports(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, spec := range f.Imports {
		p := importPath(spec)
		name := defaultName(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = p
	}
	return out
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// defaultName guesses the package name from its path: the last element that is not a
// major version, without a version suffix or a "go-" prefix.
func defaultName(p string) string {
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	base, _, _ = strings.Cut(base, ".")
	return strings.TrimPrefix(base, "go-")
}

// selector resolves pkg.Name to the import path and the name. It gives "" for
// anything else, a field of a local variable for instance.
func selector(imports map[string]string, n ast.Node) (pkg, name string) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || x.Obj != nil { // Obj is set for names declared in this file
		return "", ""
	}
	p, ok := imports[x.Name]
	if !ok {
		return "", ""
	}
	return p, sel.Sel.Name
}

// within reports whether a folder is one of the places; a place that ends in "/..."
// includes all folders below it.
func within(dir string, places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		if base, ok := strings.CutSuffix(place, "/..."); ok {
			return dir == base || strings.HasPrefix(dir, base+"/")
		}
		return dir == place
	})
}
