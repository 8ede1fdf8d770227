// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"fmt"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Cause says what is wrong with a field: a cause of a Status of the Kubernetes API.
type Cause string

// The causes.
const (
	Required     Cause = "FieldValueRequired"
	Invalid      Cause = "FieldValueInvalid"
	NotSupported Cause = "FieldValueNotSupported"
	TooMany      Cause = "FieldValueTooMany"
	Duplicate    Cause = "FieldValueDuplicate"
	WrongType    Cause = "FieldValueTypeInvalid"
	Forbidden    Cause = "FieldValueForbidden"
	NotFound     Cause = "FieldValueNotFound"
)

// Problem is something wrong with an access list, or with an object that it depends on.
type Problem struct {
	Object  string // such as "Seed eu1"; empty: what was asked about
	Path    string // such as spec.providerConfig.rule.cidrs[3]
	Cause   Cause
	Code    fault.Code
	Warning bool // the list can be used
	What    string
	Next    string // what to do about it; may be empty
}

func (p Problem) String() string {
	out := p.What
	if p.Path != "" {
		out = p.Path + ": " + out
	}
	if p.Object != "" {
		out = p.Object + ": " + out
	}
	if p.Next != "" {
		out += "; " + p.Next
	}
	return out
}

// Fault is the problem as an error.
func (p Problem) Fault() *fault.Fault {
	return fault.Newf(p.Code, "%s cannot be used", orElse(p.Path, "the access list")).
		Whyf("%s", Problem{Object: p.Object, Path: p.Path, What: p.What}).Hint("%s", p.Next)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Usable reports whether all problems are warnings.
func Usable(problems []Problem) bool {
	return !slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning })
}

// mostProblems bounds what is listed: nobody reads more at once, and answers of webhooks are stored.
const mostProblems = 100

// problems are those found so far.
type problems struct {
	object string
	list   []Problem
	more   int
}

func (ps *problems) add(p Problem) {
	if p.Object == "" {
		p.Object = ps.object
	}
	if p.Code == "" {
		p.Code = fault.CodeAccessList
	}
	if len(ps.list) < mostProblems {
		ps.list = append(ps.list, p)
		return
	}
	ps.more++
	if !p.Warning { // an error must not get lost behind warnings
		ps.list[mostProblems-1] = p
	}
}

func (ps *problems) refuse(path string, cause Cause, next, format string, args ...any) {
	ps.add(Problem{Path: path, Cause: cause, What: fmt.Sprintf(format, args...), Next: next})
}

func (ps *problems) warn(path string, cause Cause, format string, args ...any) {
	ps.add(Problem{Path: path, Cause: cause, What: fmt.Sprintf(format, args...), Warning: true})
}

// all are the problems, and how many were left out.
func (ps *problems) all() []Problem {
	if ps.more == 0 {
		return ps.list
	}
	last := ps.list[len(ps.list)-1]
	return append(ps.list, Problem{Object: last.Object, Cause: last.Cause, Code: last.Code, Warning: true,
		What: fmt.Sprintf("and %d more", ps.more)})
}
