// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"go/ast"
	"go/build/constraint"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The alarms. Tests may be longer, because their tables are read row by row.
const (
	maxFileLines     = 400
	maxFuncLines     = 80
	maxParams        = 5
	maxTestFileLines = 600
	maxTestFuncLines = 120
)

func checkSize(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(func(f *File) bool { return !f.Generated }) {
		fileLimit, funcLimit := maxFileLines, maxFuncLines
		if f.Test() {
			fileLimit, funcLimit = maxTestFileLines, maxTestFuncLines
		}
		if n := bytes.Count(f.Data, []byte("\n")); n > fileLimit {
			out = append(out, Breach{f.Path, 0, sprintf("the file has %d lines, the alarm rings at %d", n, fileLimit)})
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncDecl)
			if !ok {
				return true
			}
			first, last := t.Line(fn), t.Fset.Position(fn.End()).Line
			if n := last - first + 1; n > funcLimit {
				out = append(out, t.breach(f, fn, "func %s has %d lines, the alarm rings at %d", fn.Name.Name, n, funcLimit))
			}
			if n := fn.Type.Params.NumFields(); n > maxParams {
				out = append(out, t.breach(f, fn, "func %s has %d parameters, the alarm rings at %d: make a struct", fn.Name.Name,
					n, maxParams))
			}
			return true
		})
	}
	return out
}

// licenceLine is the first line of every Go file.
const licenceLine = "// SPDX-License-Identifier: Apache-2.0"

func checkLicence(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(func(*File) bool { return true }) {
		first, _, _ := bytes.Cut(f.Data, []byte("\n"))
		generatedBefore := f.Generated && bytes.Contains(f.Data[:min(len(f.Data), 1024)], []byte(licenceLine))
		if string(bytes.TrimSpace(first)) != licenceLine && !generatedBefore {
			out = append(out, Breach{f.Path, 1, "the first line is not " + licenceLine + " (make fmt adds it)"})
		}
	}
	return out
}

// bannedNames are package names without a meaning.
func bannedNames() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "types", "lib", "shared", "internal",
		"tools", "core", "pkg", "models", "interfaces", "generic", "stuff"}
}

func checkPackageNames(t *Tree) []Breach {
	var out []Breach
	seen := map[string]bool{}
	for _, f := range t.Go(mainModule) {
		name := strings.TrimSuffix(f.AST.Name.Name, "_test")
		if seen[f.Dir()+" "+name] {
			continue
		}
		seen[f.Dir()+" "+name] = true
		dir := path.Base(f.Dir())
		switch {
		case slices.Contains(bannedNames(), name):
			out = append(out, t.breach(f, f.AST.Name, "package name %s says nothing: name the noun", name))
		case strings.ContainsAny(name, "_-") || strings.ToLower(name) != name:
			out = append(out, t.breach(f, f.AST.Name, "package name %s is not one lower-case word", name))
		case name != "main" && name != dir && f.Dir() != ".":
			out = append(out, t.breach(f, f.AST.Name, "package %s lives in folder %s: call both the same", name, dir))
		}
	}
	return out
}

func checkPackageComments(t *Tree) []Breach {
	type pkg struct {
		first   *File
		comment string
	}
	pkgs := map[string]*pkg{}
	var dirs []string
	for _, f := range t.Go(func(f *File) bool {
		return !f.Test() && mainModule(f) ||
			strings.HasPrefix(f.Path, "house/")
	}) {
		p := pkgs[f.Dir()]
		if p == nil {
			p = &pkg{first: f}
			pkgs[f.Dir()] = p
			dirs = append(dirs, f.Dir())
		}
		if f.AST.Doc != nil && !f.Generated {
			p.comment += f.AST.Doc.Text()
		}
	}
	var out []Breach
	for _, dir := range dirs {
		p := pkgs[dir]
		name := p.first.AST.Name.Name
		start := "Package " + name + " "
		if name == "main" {
			start = "Command " + path.Base(dir) + " "
		}
		bare := strings.HasPrefix(p.comment, "Package main ") ||
			strings.HasPrefix(p.comment, strings.TrimPrefix(start, "Command "))
		switch {
		case p.comment == "":
			out = append(out, Breach{p.first.Path, 0, "the package has no comment: what does it do, what does it not do?"})
		case !strings.HasPrefix(p.comment, start) && !(name == "main" && bare):
			out = append(out, Breach{p.first.Path, 0, sprintf("the package comment does not begin with %q", start)})
		case strings.HasPrefix(dir, "internal/") && !isTwin(dir) && !negation().MatchString(p.comment):
			out = append(out, Breach{p.first.Path, 0,
				`the package comment does not say what the package does not do ("It does not ...")`})
		}
	}
	return out
}

// negation finds the sentence about what a package does not do.
func negation() *regexp.Regexp {
	return regexp.MustCompile(`\b(not|no|never|nothing|neither|none|nor)\b`)
}

// stageTags are the build tags that stages of `make test` set, and those that the
// toolchain itself sets on the supported machines.
func stageTags() []string {
	return []string{"lab", "guest", "qemu", "kube", "counts", "pilot", "linux", "amd64", "arm64", "race", "unix", "cgo"}
}

func checkBuildTags(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Test) {
		for _, group := range f.AST.Comments {
			for _, c := range group.List {
				if c.Pos() > f.AST.Package || !constraint.IsGoBuild(c.Text) {
					continue
				}
				expr, err := constraint.Parse(c.Text)
				if err != nil {
					out = append(out, t.breach(f, c, "the build constraint cannot be read: %v", err))
					continue
				}
				// Eval asks for every tag of the expression.
				expr.Eval(func(tag string) bool {
					if !slices.Contains(stageTags(), tag) {
						out = append(out, t.breach(f, c, "build tag %s: no stage of make test sets it, so the test never runs", tag))
					}
					return true
				})
			}
		}
	}
	return out
}
