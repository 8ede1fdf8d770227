// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The pages that are compared with the code.
const (
	faultsPage  = "docs/reference/faults.md"
	metricsPage = "docs/reference/metrics.md"
)

// name is a word that a reference page must document, with its position in the code.
type name struct {
	text string
	file *File
	node ast.Node
}

func checkFaults(t *Tree) []Breach {
	var out []Breach
	codes := t.faultCodes()
	if len(codes) == 0 {
		return []Breach{{"internal/base/fault", 0, "no constant of type Code is found: this law has lost its subject"}}
	}
	rows := documentedRows(t, faultsPage, regexp.MustCompile("`([a-z][a-z0-9_]+)`"))
	return append(out, t.compare(codes, rows, faultsPage, "fault code")...)
}

// faultCodes finds `CodeX Code = "x"` in internal/base/fault and the rows of its Table.
func (t *Tree) faultCodes() []name {
	var out []name
	for _, f := range t.Go(func(f *File) bool { return f.Dir() == "internal/base/fault" && !f.Test() }) {
		for _, decl := range f.AST.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				id, ok := value.Type.(*ast.Ident)
				if !ok || id.Name != "Code" {
					continue
				}
				for _, v := range value.Values {
					if s, ok := stringValue(v); ok {
						out = append(out, name{s, f, v})
					}
				}
			}
		}
	}
	return out
}

// metricName matches the names of our metrics.
func metricName() *regexp.Regexp { return regexp.MustCompile(`^tombolo_[a-z][a-z0-9_]*$`) }

func checkMetrics(t *Tree) []Breach {
	var out []Breach
	var registered []name
	for _, f := range t.Go((*File).Product) {
		if f.Generated {
			continue
		}
		found, breaches := t.metrics(f)
		registered, out = append(registered, found...), append(out, breaches...)
	}
	if len(registered) == 0 && t.usesPrometheus() {
		return append(out, Breach{"internal", 0,
			"prometheus is imported but no metric name is found: this law has lost its subject"})
	}
	rows := documentedRows(t, metricsPage, regexp.MustCompile("`(tombolo_[a-z0-9_]+)`"))
	return append(out, t.compare(registered, rows, metricsPage, "metric")...)
}

func (t *Tree) usesPrometheus() bool {
	return len(t.Go(func(f *File) bool {
		_, ok := imports(f.AST)["prometheus"]
		return ok && f.Product()
	})) > 0
}

// metrics finds the names of metrics: every string literal with that form, whether a
// constant, the Name of an Opts or the argument of NewDesc. It reports the ways to
// hide one: Namespace, Subsystem, and a concatenated name.
func (t *Tree) metrics(f *File) (found []name, out []Breach) {
	names := imports(f.AST)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, ok := stringValue(n); ok && metricName().MatchString(s) {
				found = append(found, name{s, f, n})
			}
		case *ast.CallExpr:
			if pkg, fn := selector(names, n.Fun); pkg == prometheusPath && fn == "BuildFQName" {
				out = append(out, t.breach(f, n, "a metric name built from pieces cannot be searched for: write it in one string"))
			}
		case *ast.CompositeLit:
			pkg, kind := selector(names, n.Type)
			if pkg != prometheusPath || !strings.HasSuffix(kind, "Opts") {
				return true
			}
			out = append(out, t.opts(f, n)...)
		}
		return true
	})
	return found, out
}

const prometheusPath = "github.com/prometheus/client_golang/prometheus"

// opts checks one prometheus.XOpts: a searchable name and a help text.
func (t *Tree) opts(f *File, lit *ast.CompositeLit) []Breach {
	var out []Breach
	help := false
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := lastName(kv.Key); key {
		case "Namespace", "Subsystem":
			out = append(out, t.breach(f, kv, "%s hides a part of the name: write the whole name in one string", key))
		case "Name":
			if s, ok := stringValue(kv.Value); ok && !metricName().MatchString(s) {
				out = append(out, t.breach(f, kv, "metric %q does not look like tombolo_...", s))
			}
			if _, ok := kv.Value.(*ast.BinaryExpr); ok {
				out = append(out, t.breach(f, kv, "a metric name built from pieces cannot be searched for: write it in one string"))
			}
		case "Help":
			s, ok := stringValue(kv.Value)
			help = !ok || s != ""
		}
	}
	if !help {
		out = append(out, t.breach(f, lit, "a metric without a help text"))
	}
	return out
}

// documentedRows returns the words that a page documents: the first code word of each
// table row, heading and list item, with its line.
func documentedRows(t *Tree, page string, word *regexp.Regexp) map[string]int {
	f := t.Lookup(page)
	if f == nil {
		return nil
	}
	out := map[string]int{}
	row := regexp.MustCompile("^\\s*(\\||#+|[-*])\\s*" + word.String())
	for i, line := range strings.Split(string(f.Data), "\n") {
		if m := row.FindStringSubmatch(line); m != nil {
			out[m[len(m)-1]] = i + 1
		}
	}
	return out
}

// compare reports names that the page does not document, and documented ones that do
// not exist.
func (t *Tree) compare(names []name, rows map[string]int, page, noun string) []Breach {
	var out []Breach
	if len(names) == 0 && len(rows) == 0 {
		return nil
	}
	if t.Lookup(page) == nil {
		return []Breach{{page, 0, sprintf("the page is missing; %d names wait for it", len(names))}}
	}
	var known []string
	for _, n := range names {
		if _, ok := rows[n.text]; !ok && !slices.Contains(known, n.text) {
			out = append(out, t.breach(n.file, n.node, "%s %s has no row in %s", noun, n.text, page))
		}
		known = append(known, n.text)
	}
	for text, line := range rows {
		if !slices.Contains(known, text) {
			out = append(out, Breach{page, line, sprintf("%s %s is documented but not in the code", noun, text)})
		}
	}
	return out
}

// stringValue returns the value of a string literal.
func stringValue(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// checkToolVersions compares the generators in tools/go.mod with the runtimes in go.mod.
func checkToolVersions(t *Tree) []Breach {
	const tools, main, runtime = "tools/go.mod", "go.mod", "google.golang.org/protobuf"
	have, want := requirement(t, tools, runtime), requirement(t, main, runtime)
	if want == "" || have == want {
		return nil
	}
	return []Breach{{tools, 0, sprintf("%s is %q here and %s in %s: generated code must match its runtime", runtime, have,
		want, main)}}
}

func requirement(t *Tree, file, module string) string {
	f := t.Lookup(file)
	if f == nil {
		return ""
	}
	for line := range strings.Lines(string(f.Data)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1]
		}
	}
	return ""
}
