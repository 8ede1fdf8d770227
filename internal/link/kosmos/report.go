// SPDX-License-Identifier: Apache-2.0

package kosmos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Object is an object of linked clusters, as Kubernetes takes it.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   Name   `json:"metadata"`
	Spec       any    `json:"spec"` // of package api/v1alpha1
}

// Name is what is written of an object's metadata.
type Name struct {
	Name string `json:"name"`
}

// Finding is what became of one field of one object.
type Finding struct {
	Object  string  `json:"object"` // such as "Cluster a", as Kosmos names it
	Field   string  `json:"field,omitempty"`
	Line    int     `json:"line"`
	Column  int     `json:"column"`
	Outcome Outcome `json:"outcome"`
	To      string  `json:"to,omitempty"`
	Why     string  `json:"why,omitempty"`
}

// String is the finding without its place.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.Object + ": ")
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	switch f.Outcome {
	case Mapped:
		b.WriteString("mapped to " + f.To)
	case Renewed:
		b.WriteString("found out again, as " + f.To)
	case Gone:
		b.WriteString("has no meaning any more")
	case Withheld:
		b.WriteString("not copied")
	default:
		b.WriteString(string(f.Outcome))
	}
	if f.Why != "" {
		b.WriteString(": " + f.Why)
	}
	return b.String()
}

// Report is what came of a file.
type Report struct {
	Objects  []Object
	Findings []Finding // in the order of the file
}

// Count is the number of findings with an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, f := range r.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// Summary counts the outcomes as a sentence does.
func (r Report) Summary() string {
	return fmt.Sprintf("objects: %d; fields mapped: %d, found out again: %d, without a meaning: %d, not copied: %d, "+
		"refused: %d",
		len(r.Objects), r.Count(Mapped), r.Count(Renewed), r.Count(Gone), r.Count(Withheld), r.Count(Refused))
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	slices.SortStableFunc(r.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
}
