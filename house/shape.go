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

// The alarms for types and lines.
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

// checkLocked requires the suffix Locked for functions that run under their caller's
// lock, and a lock in their callers.
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
					out = append(out, t.breach(f, c.at, "%s releases a lock that it does not take: its name must say so", name))
				}
			}
		}
	}
	return out
}

// call is a call, with the last part of the function's name.
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

func checkColumns(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go(wrapped) {
		for i, text := range bytes.Split(f.Data, []byte("\n")) {
			if utf8.RuneCount(text) > maxColumns && !bytes.Contains(text, []byte("// +kubebuilder:")) {
				out = append(out, Breach{f.Path, i + 1, sprintf("the line has more than %d columns", maxColumns)})
			}
		}
	}
	return out
}

// wrapped reports whether the lines of a file have at most maxColumns.
func wrapped(f *File) bool {
	top, _, _ := strings.Cut(f.Path, "/")
	return handwritten(f) || !f.Test() && (top == "house" || top == "tools")
}

// handwritten reports whether a file is product code that is not generated.
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
