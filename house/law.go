// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"slices"
	"strings"
)

// Law is one rule of the house.
type Law struct {
	Name  string
	Why   string // the reason, printed with every breach
	Check func(*Tree) []Breach
}

// Breach is one violation of a law. Line 0 is the file as a whole.
type Breach struct {
	Path string
	Line int
	Text string
}

func (b Breach) String() string {
	if b.Line == 0 {
		return fmt.Sprintf("%s: %s", b.Path, b.Text)
	}
	return fmt.Sprintf("%s:%d: %s", b.Path, b.Line, b.Text)
}

// Laws lists every law that reads the tree. Laws that have to run a program
// (generated files, configuration examples) are tests of their own.
func Laws() []Law {
	return []Law{
		{"floors", "A floor imports only floors below; packages on one floor do not know each other.", checkFloors},
		{"imports", "Some packages belong behind one door.", checkImports},
		{"calls", "Effects live where their owner is.", checkCalls},
		{"log-lines", "Lines of the log are bounded by their message: one that a peer could choose has no bound.",
			checkLogLines},
		{"purity", "Floors 0 and 1 decide: no I/O, no clock, no goroutine, a deterministic answer.", checkPurity},
		{"goroutines", "Every goroutine has one owner: internal/base/run, internal/stream/splice or internal/stream/carrier.",
			checkGoroutines},
		{"globals", "State is passed to constructors, so that two instances can run in one process.", checkGlobals},
		{"recover", "A panic is a defect, not control flow.", checkRecover},
		{"error-text", "Errors carry codes; their text is for people and may change.", checkErrorText},
		{"package-comments", "A reader learns from one place what a package does and what it does not.",
			checkPackageComments},
		{"package-names", "A package is named by a noun that reads well in the sentence.", checkPackageNames},
		{"size", "Size is an alarm: split, or say why not.", checkSize},
		{"methods", "A type that everything calls cannot be changed.", checkMethods},
		{"interfaces", "An interface belongs to its consumer, who needs a few methods.", checkInterfaces},
		{"locked", "A function's name must show its caller that it needs a lock.", checkLocked},
		{"columns", "A line fits on half a screen.", checkColumns},
		{"licence", "Every Go file names its licence in the first line.", checkLicence},
		{"faults", "Every fault code has a section in " + faultsPage + ", and only these.", checkFaults},
		{"metrics", "Every metric has a row in " + metricsPage + ", and only these.", checkMetrics},
		{"links", "A link inside the repository has a target.", checkLinks},
		{"source-links", "A page that leads to a function names the file that has it.", checkSourceLinks},
		{"file-tables", "The table of files in a README is the folder.", checkFileTables},
		{"words", "One word has one meaning, the field's own: docs/glossary.md.", checkWords},
		{"page-widths", "A line of prose fits on half a screen.", checkPageWidths},
		{"machine-traces", "The repository stands alone: no path of the machine it was written on.", checkMachineTraces},
		{"corpora", "A fuzz target has a corpus of known odd inputs, which make test runs each time.", checkCorpora},
		{"threats", "The tests that the security page names exist.", checkThreats},
		{"sleeps", "A test waits in simulated time or for a condition: a sleep is too short on a busy machine, " +
			"and too long on any other.", checkSleeps},
		{"build-tags", "A test behind a tag that no stage sets never runs.", checkBuildTags},
		{"tool-versions", "Generated code and its runtime are of one version.", checkToolVersions},
	}
}

// Exception allows one path to break one law for a reason. A path that ends in "/"
// includes everything below it. What, if set, must occur in the breach.
type Exception struct {
	Law, Path, What string
	Reason          string
}

func (e Exception) covers(law string, b Breach) bool {
	if e.Law != law || !strings.Contains(b.Text, e.What) {
		return false
	}
	return e.Path == b.Path || strings.HasSuffix(e.Path, "/") && strings.HasPrefix(b.Path, e.Path)
}

// Judge applies the laws to the tree, removes excepted breaches, and reports
// exceptions that excuse nothing or have no reason. The result maps the name of a law
// to its breaches.
func Judge(t *Tree, laws []Law, exceptions []Exception) map[string][]Breach {
	used := make([]bool, len(exceptions))
	out := map[string][]Breach{}
	for _, law := range laws {
		for _, b := range law.Check(t) {
			excused := false
			for i, e := range exceptions {
				if e.covers(law.Name, b) {
					used[i], excused = true, true
				}
			}
			if !excused {
				out[law.Name] = append(out[law.Name], b)
			}
		}
		slices.SortFunc(out[law.Name], func(a, b Breach) int {
			if c := strings.Compare(a.Path, b.Path); c != 0 {
				return c
			}
			return a.Line - b.Line
		})
	}
	for i, e := range exceptions {
		switch {
		case !used[i]:
			out["exceptions"] = append(out["exceptions"], Breach{"house/exceptions.go", 0,
				fmt.Sprintf("the exception of %s from law %q excuses nothing: delete it", e.Path, e.Law)})
		case e.Reason == "":
			out["exceptions"] = append(out["exceptions"], Breach{"house/exceptions.go", 0,
				fmt.Sprintf("the exception of %s from law %q gives no reason", e.Path, e.Law)})
		}
	}
	return out
}

// sprintf is fmt.Sprintf, for the tables of checks.
func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
