// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Finding is a problem with its position in a file.
type Finding struct {
	conf.Problem
	Warning bool
}

// Read compiles the AccessPolicy in a file's data. open returns the content of a list's file. If
// any finding is not a warning, the policy is nil.
func Read(file string, data []byte, open func(path string) ([]byte, error)) (*Policy, []Finding) {
	return read(file, data, open, func(*Policy) []Problem { return nil })
}

// ReadBetweenPeers is Read for a policy between the peers of a mesh. It refuses rules that have no
// meaning there.
func ReadBetweenPeers(cluster, file string, data []byte, open func(path string) ([]byte, error)) (*Policy, []Finding) {
	return read(file, data, open, func(p *Policy) []Problem { return p.BetweenPeers(cluster) })
}

func read(file string, data []byte, open func(path string) ([]byte, error),
	further func(*Policy) []Problem) (*Policy, []Finding) {
	var raw v1alpha1.AccessPolicy
	doc := conf.Decode(file, data, &raw)
	if doc.Unread() {
		return nil, refusals(doc)
	}
	doc.Want("apiVersion", v1alpha1.Version, raw.APIVersion)
	doc.Want("kind", v1alpha1.KindAccessPolicy, raw.Kind)
	r := reader{doc: doc, add: doc.Add, open: open}
	rules, lists := r.contents(raw.AccessContent)
	p, problems := Compile(rules, lists)
	if p != nil {
		problems = append(problems, further(p)...)
	}
	out := refusals(doc)
	for _, q := range problems {
		out = append(out, r.place(q))
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if slices.ContainsFunc(out, func(f Finding) bool { return !f.Warning }) {
		return nil, out
	}
	return p, out
}

// Lists returns the lists of a file, with the contents of the files that they name.
func Lists(file string, data []byte, open func(path string) ([]byte, error)) (out []List) {
	var raw v1alpha1.AccessPolicy
	doc := conf.Decode(file, data, &raw)
	r := reader{doc: doc, add: doc.Add, open: open}
	for i, l := range raw.Lists {
		out = append(out, r.list(fmt.Sprintf("lists[%d]", i), l))
	}
	return out
}

func refusals(doc *conf.Document) []Finding {
	var out []Finding
	for _, p := range doc.Problems() {
		out = append(out, Finding{Problem: p})
	}
	if n := doc.Unlisted(); n > 0 { // stays last in the list
		last := out[len(out)-1]
		out = append(out, Finding{Problem: conf.Problem{File: last.File, Line: last.Line, Column: last.Column,
			Message: fmt.Sprintf("and %d more", n)}})
	}
	return out
}

type reader struct {
	doc   *conf.Document // of a file
	add   conf.Report
	open  func(path string) ([]byte, error)
	files []listFile
}

// contents reads the rules and lists.
func (r *reader) contents(w v1alpha1.AccessContent) ([]Rule, []List) {
	lists := make([]List, 0, len(w.Lists))
	for i, l := range w.Lists {
		lists = append(lists, r.list(fmt.Sprintf("lists[%d]", i), l))
	}
	rules := make([]Rule, 0, len(w.Rules))
	for i, w := range w.Rules {
		rules = append(rules, r.rule(fmt.Sprintf("rules[%d]", i), w))
	}
	if len(w.Rules) == 0 {
		r.add("rules", "there are no rules: everything would be denied")
	}
	return rules, lists
}

// listFile is a list whose ranges are in a file of their own.
type listFile struct {
	path  string // of the list: lists[0]
	file  string
	first int   // index of its first range
	lines []int // of its ranges
}

func (r *reader) list(path string, w v1alpha1.RangeList) List {
	l := List{Name: w.Name, Ranges: w.Ranges}
	if w.File == "" {
		return l
	}
	data, err := r.open(w.File)
	if err != nil {
		r.add(path+".file", "%s cannot be read: %v", w.File, err)
		return l
	}
	f := listFile{path: path, file: w.File, first: len(l.Ranges)}
	l.Ranges = slices.Clip(l.Ranges)
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text, _, _ = strings.Cut(text, "#")
		if text = strings.TrimSpace(text); text != "" {
			l.Ranges = append(l.Ranges, text)
			f.lines = append(f.lines, line)
		}
	}
	r.files = append(r.files, f)
	return l
}

func (r *reader) rule(path string, w v1alpha1.AccessRule) Rule {
	out := Rule{
		Name: w.Name, Comment: w.Comment, Group: w.Group, Cluster: w.Clusters, Caller: w.Callers,
		UID: r.users(path+".uids", w.UIDs), Egress: w.Egress, Flow: w.Flows, Source: w.Sources, Destination: w.Allow,
	}
	switch {
	case w.Allow != nil && w.Deny != nil:
		r.add(path+".deny", "a rule either allows or denies: write two rules")
	case w.Deny != nil:
		out.Deny, out.Destination = true, w.Deny
	case w.Allow == nil:
		r.add(path, "the rule has neither allow nor deny")
		out.Destination = []string{"*"} // reported once
	}
	return out
}

// users distinguishes nil from an empty list.
func (r *reader) users(path string, in []int) []uint32 {
	if in == nil {
		return nil
	}
	out := make([]uint32, 0, len(in))
	for i, n := range in {
		if n < 0 || n >= math.MaxUint32 { // the last one means nobody (chown(2))
			r.add(fmt.Sprintf("%s[%d]", path, i), "%d is no user id", n)
			continue
		}
		out = append(out, uint32(n))
	}
	return out
}

// place finds the position of a problem.
func (r *reader) place(q Problem) Finding {
	for _, f := range r.files {
		var i int
		if n, _ := fmt.Sscanf(strings.TrimPrefix(q.Path, f.path), ".ranges[%d]", &i); n == 1 && i >= f.first {
			return Finding{conf.Problem{File: f.file, Line: f.lines[i-f.first], Column: 1, Message: q.Message}, q.Warning}
		}
	}
	return Finding{r.doc.Place(q.Path, q.Message), q.Warning}
}
