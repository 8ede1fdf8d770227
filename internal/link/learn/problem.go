// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Reason is the kind of a problem: a reason of a condition, which does not change.
type Reason string

// The reasons. What is unknown is missing in the result, what is invalid or overlaps between nodes was left out, and
// what else disagrees or overlaps is in it.
const (
	CNIUnknown            Reason = "CNIUnknown"
	CNIAmbiguous          Reason = "CNIAmbiguous"
	PodRangesUnknown      Reason = "PodRangesUnknown"
	PodRangesDisagree     Reason = "PodRangesDisagree" // ranges of nodes outside of those of the cluster: left out
	NodeRangesOverlap     Reason = "NodeRangesOverlap"
	ServiceRangesUnknown  Reason = "ServiceRangesUnknown"
	ServiceRangesDisagree Reason = "ServiceRangesDisagree"
	RangesOverlap         Reason = "RangesOverlap" // of pods with those of services
	RangeInvalid          Reason = "RangeInvalid"
	RightMissing          Reason = "RightMissing"
	ObjectUnreadable      Reason = "ObjectUnreadable"
	TooManyObjects        Reason = "TooManyObjects"
)

// Problem is something that could not be learned, or that somebody should know.
type Problem struct {
	Reason Reason
	What   string
	Next   string // what to do about it; may be empty
}

func (p Problem) String() string {
	if p.Next == "" {
		return p.What
	}
	return p.What + "; " + p.Next
}

const (
	// mostProblems bounds what is listed: conditions are stored and read by people.
	mostProblems = 32
	// mostText bounds each name or text of an object that a problem or a source shows.
	mostText = 253
	// mostNamed is how many names of many a problem has.
	mostNamed = 3
)

type problems struct {
	list []Problem
}

func (ps *problems) add(reason Reason, next, format string, args ...any) {
	ps.list = append(ps.list, Problem{Reason: reason, What: fmt.Sprintf(format, args...), Next: next})
}

// all are the problems in order, and how many of a kind were left out: each kind has some.
func (ps *problems) all() []Problem {
	slices.SortFunc(ps.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.What, b.What))
	})
	ps.list = slices.Compact(ps.list)
	kinds := map[Reason]int{}
	for _, p := range ps.list {
		kinds[p.Reason]++
	}
	var out []Problem
	each := mostProblems / max(1, len(kinds))
	for i := 0; i < len(ps.list); {
		n := kinds[ps.list[i].Reason]
		kept := ps.list[i : i+min(n, each)]
		if n > each {
			kept = slices.Clone(kept)
			kept[each-1].What = fmt.Sprintf("%s, and %d more of this kind", kept[each-1].What, n-each)
		}
		out = append(out, kept...)
		i += n
	}
	return out
}

// shown is a text of an object that can be printed.
func shown(text string) string { return untrusted.Text(text, mostText) }

// some are the first names in order, and how many more there are.
func some(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - mostNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
		names = names[:mostNamed]
	}
	for i, name := range names {
		names[i] = shown(name)
	}
	return strings.Join(names, ", ") + more
}
