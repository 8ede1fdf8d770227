// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// threatsPage lists for each threat its control and the tests that show it.
const threatsPage = "docs/concepts/security.md"

// checkCorpora requires inputs in the repository for each fuzz target, and a target for
// each folder of inputs.
func checkCorpora(t *Tree) []Breach {
	var out []Breach
	var wanted []string
	for _, f := range t.Go((*File).Test) {
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			dir := path.Join(f.Dir(), "testdata/fuzz", fn.Name.Name)
			wanted = append(wanted, dir)
			if !slices.Contains(t.Corpora, dir) {
				out = append(out, t.breach(f, fn, "%s has no input in %s", fn.Name.Name, dir))
			}
		}
	}
	for _, dir := range t.Corpora {
		if !slices.Contains(wanted, dir) {
			out = append(out, Breach{Path: dir, Text: "inputs of a fuzz target that does not exist"})
		}
	}
	return out
}

// checkThreats requires that each test that the page names exists.
func checkThreats(t *Tree) []Breach {
	page := t.Lookup(threatsPage)
	if page == nil {
		return nil
	}
	tests := map[string]bool{}
	for _, f := range t.Go((*File).Test) {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	var out []Breach
	for i, line := range strings.Split(string(page.Data), "\n") {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				out = append(out, Breach{threatsPage, i + 1, "there is no test " + m[1]})
			}
		}
	}
	return out
}

// checkSleeps allows a sleep only in a test with simulated time.
func checkSleeps(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Test) {
		known := imports(f.AST)
		if slices.Contains(slices.Collect(maps.Values(known)), "testing/synctest") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if pkg, name := selector(known, n); pkg == "time" && name == "Sleep" {
				out = append(out, t.breach(f, n,
					"time.Sleep in a test without simulated time: use testing/synctest, or wait for a condition"))
			}
			return true
		})
	}
	return out
}
