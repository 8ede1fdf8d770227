// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Key, Value  string // of an attribute
	Elapsed     float64
	FailedBuild string
}

// tally is the result of a run of tests. A test with subtests counts as its subtests,
// and once more if it failed by itself.
type tally struct {
	passed, failed int
	skips          []string // "package.Test: reason"
	times          []timing // of tests that are no subtests
}

// timing is the duration of one test.
type timing struct {
	test    string
	seconds float64
}

func (t *tally) add(other tally) {
	t.passed += other.passed
	t.failed += other.failed
	t.skips = append(t.skips, other.skips...)
	t.times = append(t.times, other.times...)
}

// slowest returns the slowest tests.
func (t *tally) slowest(n int) []timing {
	sorted := slices.SortedStableFunc(slices.Values(t.times),
		func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	return sorted[:min(n, len(sorted))]
}

// counter turns events into a tally and lines to show.
type counter struct {
	tally
	verbose bool
	show    func(format string, args ...any)

	pkgs map[string]*pkgRun
	raw  []byte // an unfinished line
}

// pkgRun is a package whose tests run.
type pkgRun struct {
	tests  map[string]*testResult
	output []string // outside any test
	tally
}

// figure is the attribute (testing.T.Attr) of a measurement, which is shown even if the test
// passes.
const figure = "figure"

type testResult struct {
	action  string // "" while it runs
	output  []string
	figures []string
}

func newCounter(verbose bool, show func(string, ...any)) *counter {
	return &counter{verbose: verbose, show: show, pkgs: map[string]*pkgRun{}}
}

// Write takes the output of go test in pieces of any size.
func (c *counter) Write(data []byte) (int, error) {
	c.raw = append(c.raw, data...)
	for {
		line, rest, ok := bytes.Cut(c.raw, []byte("\n"))
		if !ok {
			return len(data), nil
		}
		c.line(line)
		c.raw = rest
	}
}

func (c *counter) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		c.show("%s", line) // a word of the toolchain itself
		return
	}
	switch {
	case e.Action == "build-output":
		c.show("  %s", strings.TrimRight(e.Output, "\n"))
	case e.Package == "":
	case e.Test == "":
		c.packageEvent(e)
	default:
		c.testEvent(e)
	}
}

func (c *counter) pkg(name string) *pkgRun {
	p := c.pkgs[name]
	if p == nil {
		p = &pkgRun{tests: map[string]*testResult{}}
		c.pkgs[name] = p
	}
	return p
}

func (c *counter) testEvent(e event) {
	p := c.pkg(e.Package)
	t := p.tests[e.Test]
	if t == nil {
		t = &testResult{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "attr":
		if e.Key == figure {
			t.figures = append(t.figures, e.Value)
		}
	case "pass", "fail", "skip":
		t.action = e.Action
		c.finished(e, p, t)
	}
}

// finished counts a test. Its subtests ended before it.
func (c *counter) finished(e event, p *pkgRun, t *testResult) {
	children, childFailed := p.children(e.Test)
	top := !strings.Contains(e.Test, "/")
	if top {
		p.times = append(p.times, timing{short(e.Package) + "." + e.Test, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		if !children {
			p.passed++
		}
		if c.verbose {
			c.show("  ok    %s (%.1f s)", e.Test, e.Elapsed)
			for _, f := range t.figures {
				c.show("        %s", f)
			}
		}
	case "skip":
		reason := reasonOf(t.output)
		p.skips = append(p.skips, short(e.Package)+"."+e.Test+": "+reason)
		c.show("  SKIP  %s %s: %s", short(e.Package), e.Test, reason)
	case "fail":
		if !childFailed {
			p.failed++
		}
		c.show("  FAIL  %s %s (%.1f s)", short(e.Package), e.Test, e.Elapsed)
		c.print(t.output)
	}
	t.output = nil
	if top && !c.verbose {
		maps.DeleteFunc(p.tests, func(name string, _ *testResult) bool { return strings.HasPrefix(name, e.Test+"/") })
	}
}

// children reports whether a test has subtests, and whether one of them failed.
func (p *pkgRun) children(test string) (any, failed bool) {
	for name, t := range p.tests {
		if strings.HasPrefix(name, test+"/") {
			any = true
			failed = failed || t.action == "fail"
		}
	}
	return any, failed
}

func (c *counter) packageEvent(e event) {
	p := c.pkg(e.Package)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
		return
	case "pass", "skip", "fail":
	default:
		return
	}
	// A test that never ended took the process with it: a panic, a timeout, an exit.
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if t := p.tests[name]; t.action == "" && e.Action == "fail" {
			if any, _ := p.children(name); !any {
				p.failed++
				c.show("  FAIL  %s %s: it did not end", short(e.Package), name)
			}
			c.print(t.output)
		}
	}
	if e.Action == "fail" {
		if p.failed == 0 {
			p.failed++ // it does not build, or TestMain failed
		}
		c.show("  FAIL  %s (%.1f s)", short(e.Package), e.Elapsed)
		c.print(p.output)
	} else if n := p.passed; n > 0 {
		c.show("  ok    %s: %d %s (%.1f s)", short(e.Package), n, plural(n, "test"), e.Elapsed)
	}
	c.add(p.tally)
	delete(c.pkgs, e.Package)
}

// cut counts packages that did not end, after an interruption.
func (c *counter) cut() {
	for _, p := range c.pkgs {
		c.add(p.tally)
	}
	c.pkgs = map[string]*pkgRun{}
}

// print shows the output of a test, without the framing lines.
func (c *counter) print(output []string) {
	for line := range strings.Lines(strings.Join(output, "")) {
		line = strings.TrimRight(line, "\n")
		if !framing(line) {
			c.show("        %s", line)
		}
	}
}

func framing(line string) bool {
	text := strings.TrimSpace(line)
	for _, prefix := range []string{"=== ", "--- FAIL", "--- PASS", "--- SKIP"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return text == "" || text == "PASS" || text == "FAIL"
}

// reasonOf is the text of t.Skip.
func reasonOf(output []string) string {
	var said []string
	for line := range strings.Lines(strings.Join(output, "")) {
		if !framing(line) {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// modulePath begins the path of each package of ours.
const modulePath = "github.com/tombolo-io/tombolo/"

// short drops the module from a package path.
func short(pkg string) string {
	return strings.TrimPrefix(pkg, modulePath)
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
