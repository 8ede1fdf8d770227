// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The alarms for types. A type that everything calls is one that nobody can change.
const (
	maxMethods          = 50
	maxInterfaceMethods = 5
	maxColumns          = 120
)

func checkMethods(t *Tree) []Breach {
	type key struct{ dir, name string }
	count := map[key]int{}
	where := map[key]Breach{}
	for _, f := range t.Go(handwritten) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					count[key{f.Dir(), receiver(n)}]++
				}
			case *ast.TypeSpec:
				where[key{f.Dir(), n.Name.Name}] = t.breach(f, n, "")
			}
			return true
		})
	}
	var out []Breach
	for k, n := range count {
		if n > maxMethods {
			b := where[k]
			b.Text = sprintf("type %s has %d methods, the alarm rings at %d: split its state", k.name, n, maxMethods)
			out = append(out, b)
		}
	}
	return out
}

func checkInterfaces(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(handwritten) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxInterfaceMethods {
				out = append(out, t.breach(f, spec, "interface %s has %d methods, the alarm rings at %d: split it by its consumers",
					spec.Name.Name, i.Methods.NumFields(), maxInterfaceMethods))
			}
			return true
		})
	}
	return out
}

// checkLocked holds functions that run under their caller's lock to the suffix
// Locked, and their callers to having one.
func checkLocked(t *Tree) []Breach {
	underLock := regexp.MustCompile(`\b(needs? (the|a|both) locks?|(The lock|The locks|mu) (is|are) held|` +
		`holds? (the|both|its) locks?|holds? mu)\b`)
	var out []Breach
	for _, f := range t.Go(handwritten) {
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			locked := strings.HasSuffix(name, "Locked") || strings.Contains(strings.ToLower(name), "unlock")
			if !locked && underLock.MatchString(strings.ReplaceAll(fn.Doc.Text(), "\n", " ")) {
				out = append(out, t.breach(f, fn, "%s runs under its caller's lock: call it %sLocked", name, name))
			}
			calls := called(fn.Body)
			takes := slices.ContainsFunc(calls,
				func(c call) bool { return slices.Contains([]string{"Lock", "RLock", "TryLock", "lock"}, c.name) })
			for _, c := range calls {
				switch {
				case takes || locked:
				case strings.HasSuffix(c.name, "Locked"):
					out = append(out, t.breach(f, c.at, "%s takes no lock and calls %s: call it %sLocked, or take the lock", name,
						c.name, name))
				case c.name == "Unlock" || c.name == "RUnlock":
					out = append(out, t.breach(f, c.at, "%s gives back a lock that it does not take: its name must say so", name))
				}
			}
		}
	}
	return out
}

// call is a call by the last name of what is called.
type call struct {
	name string
	at   ast.Node
}

func called(body ast.Node) (out []call) {
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			out = append(out, call{lastName(c.Fun), c})
		}
		return true
	})
	return out
}

// longLines are the wings that still have lines over maxColumns, and how many.
// The numbers only go down.
func longLines() map[string]int {
	return map[string]int{
		"internal/base": 10,
	}
}

// wing is the first two folders of a file.
func wing(f *File) string {
	parts := strings.SplitN(f.Dir(), "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func checkColumns(t *Tree) []Breach {
	type line struct {
		f *File
		n int
	}
	long := map[string][]line{}
	for _, f := range t.Go(handwritten) {
		for i, text := range bytes.Split(f.Data, []byte("\n")) {
			if utf8.RuneCount(text) > maxColumns && !bytes.Contains(text, []byte("// +kubebuilder:")) {
				long[wing(f)] = append(long[wing(f)], line{f, i + 1})
			}
		}
	}
	var out []Breach
	for dir, lines := range long {
		if len(lines) <= longLines()[dir] {
			continue
		}
		for _, l := range lines {
			out = append(out, Breach{l.f.Path, l.n, sprintf("the line has more than %d columns", maxColumns)})
		}
	}
	return out
}

// handwritten says whether a file is code of the product that somebody wrote.
func handwritten(f *File) bool { return f.Product() && !f.Generated }

// receiver is the name of the type that a method belongs to.
func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
