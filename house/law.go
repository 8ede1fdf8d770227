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

// Breach is one place where a law is broken. Line 0 means the file as a whole.
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
		{"purity", "Floors 0 and 1 decide: no I/O, no clock, no goroutine, the same answer twice.", checkPurity},
		{"goroutines", "Every goroutine has one owner: internal/base/run, internal/stream/splice or internal/stream/carrier.",
			checkGoroutines},
		{"globals", "State comes by constructor, so that two of a thing can live in one process.", checkGlobals},
		{"recover", "A panic is a defect, not control flow.", checkRecover},
		{"error-text", "Errors carry codes; their text is for people and may change.", checkErrorText},
		{"package-comments", "A reader learns from one place what a package does and what it does not.",
			checkPackageComments},
		{"package-names", "A package is named by a noun that reads well in the sentence.", checkPackageNames},
		{"size", "Size is an alarm: split, or say why not.", checkSize},
		{"methods", "A type that everything calls is one that nobody can change.", checkMethods},
		{"interfaces", "An interface belongs to its consumer, who needs a few methods.", checkInterfaces},
		{"locked", "Whoever calls a function must see that it needs a lock.", checkLocked},
		{"columns", "A line is read at one glance, and beside another file.", checkColumns},
		{"licence", "Every Go file says its licence in the first line.", checkLicence},
		{"faults", "Every fault code has a section in " + faultsPage + ", and only these.", checkFaults},
		{"metrics", "Every metric has a row in " + metricsPage + ", and only these.", checkMetrics},
		{"links", "A link inside the repository leads somewhere.", checkLinks},
		{"source-links", "A page that leads to a function names the file that has it.", checkSourceLinks},
		{"file-tables", "The table of files in a README is the folder.", checkFileTables},
		{"words", "One word has one meaning, the field's own: docs/glossary.md.", checkWords},
		{"page-widths", "A line that does not fit is not read.", checkPageWidths},
		{"machine-traces", "The repository stands alone: no path of the machine it was written on.", checkMachineTraces},
		{"corpora", "A fuzz target begins with what is known to be odd, and make test runs that each time.", checkCorpora},
		{"threats", "The page of threats names tests that there are.", checkThreats},
		{"sleeps", "A test waits in simulated time or for a condition: a sleep is too short on a busy machine, " +
			"and too long on any other.", checkSleeps},
		{"build-tags", "A test behind a tag that no stage sets never runs.", checkBuildTags},
		{"tool-versions", "Generated code and its runtime are of one version.", checkToolVersions},
	}
}

// Exception lets one path break one law for a reason. A path that ends in "/"
// stands for everything below it. What, if set, must occur in the breach.
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

// Judge applies the laws to the tree, takes the exceptions away and reports
// exceptions that excused nothing or give no reason. The result maps the law's
// name to its breaches.
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
