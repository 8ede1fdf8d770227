// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"slices"
)

// sharedTypes are types of which a package-level variable is shared state, even if it is
// never assigned.
func sharedTypes() map[string][]string {
	return map[string][]string{
		"sync":        nil, // any
		"sync/atomic": nil,
		"log/slog":    {"Logger", "Handler", "LevelVar"},
		"net/http":    {"Client", "Server", "ServeMux", "Transport"},
		"context":     {"Context", "CancelFunc"},
		"expvar":      nil,
		"github.com/prometheus/client_golang/prometheus": {"Registry", "Registerer", "Gatherer", "Counter", "CounterVec",
			"Gauge", "GaugeVec", "Histogram", "HistogramVec", "Summary", "SummaryVec", "Collector", "NewRegistry",
			"NewCounter", "NewCounterVec", "NewGauge", "NewGaugeVec", "NewGaugeFunc", "NewCounterFunc", "NewHistogram",
			"NewHistogramVec", "NewSummary", "NewSummaryVec"},
	}
}

// sharedCalls make shared state: var x = sync.OnceFunc(...), slog.New(...), new(sync.Mutex).
func sharedValue(names map[string]string, e ast.Node) (string, bool) {
	var found string
	ast.Inspect(e, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false // state of a call
		}
		pkg, name := selector(names, n)
		if pkg == "" {
			return true
		}
		which, ok := sharedTypes()[pkg]
		shared := ok && (len(which) == 0 || slices.Contains(which, name))
		shared = shared || pkg == "log/slog" && (name == "New" || name == "With")
		if shared && found == "" {
			found = pkg + "." + name
		}
		return true
	})
	return found, found != ""
}

func checkGlobals(t *Tree) []Breach {
	var out []Breach
	byDir := map[string][]*File{}
	for _, f := range t.Go((*File).Product) {
		if !f.Generated {
			byDir[f.Dir()] = append(byDir[f.Dir()], f)
		}
	}
	for _, files := range byDir {
		vars := map[string]bool{}
		for _, f := range files {
			out = append(out, t.declared(f, vars)...)
		}
		for _, f := range files {
			out = append(out, t.assigned(f, vars)...)
		}
	}
	return out
}

// declared reports init functions and shared state at package level, and adds
// the package's variables to vars.
func (t *Tree) declared(f *File, vars map[string]bool) []Breach {
	var out []Breach
	names := imports(f.AST)
	for _, decl := range f.AST.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
			out = append(out, t.breach(f, fn, "an init function: importers cannot avoid it; make a constructor"))
		}
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			for _, id := range value.Names {
				if id.Name != "_" {
					vars[id.Name] = true
				}
			}
			if value.Names[0].Name == "_" {
				continue // an assertion
			}
			if what, shared := sharedValue(names, value); shared {
				out = append(out, t.breach(f, value, "package variable %s holds shared state (%s): give it to a struct",
					value.Names[0].Name, what))
			}
		}
	}
	return out
}

// assigned reports writes to package variables: a table is written only at its
// declaration.
func (t *Tree) assigned(f *File, vars map[string]bool) []Breach {
	var out []Breach
	report := func(n ast.Node, e ast.Expr, what string) {
		if id := root(e); id != nil && vars[id.Name] && packageLevel(f.AST, id) {
			out = append(out, t.breach(f, n, "%s package variable %s: give it to a struct", what, id.Name))
		}
	}
	for _, decl := range f.AST.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						report(n, e, "writes")
					}
				}
			case *ast.IncDecStmt:
				report(n, n.X, "writes")
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					report(n, n.X, "takes the address of")
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && slices.Contains([]string{"delete", "clear"}, id.Name) {
					report(n, n.Args[0], "empties")
				}
			}
			return true
		})
	}
	return out
}

// root is the variable at the beginning of x, x.f, x[i], *x or (x).
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// packageLevel reports whether a name refers to the package's variable and not to a
// local one. The parser resolves the names of one file; a name from another file of
// the package stays unresolved.
func packageLevel(f *ast.File, id *ast.Ident) bool {
	return id.Obj == nil || f.Scope.Lookup(id.Name) == id.Obj
}
