// SPDX-License-Identifier: Apache-2.0

package plan

import "strings"

// Verb is what a step does.
type Verb string

// The verbs.
const (
	Add    Verb = "add"
	Change Verb = "change"
	Remove Verb = "remove"
)

// Step is one change.
type Step struct {
	Verb Verb
	On   Object
}

func (s Step) String() string { return string(s.Verb) + " " + s.On.String() }

// Object is what a step changes: Link, Address, Route, Rule, Sysctl, TableName,
// SetName, Elements or ChainIn.
type Object interface{ String() string }

// TableName is a table without its content; removing it removes the content too.
type TableName string

func (t TableName) String() string { return "table inet " + string(t) }

// SetName is a set without its ranges.
type SetName struct {
	Table, Name string
	Family      Family
}

func (s SetName) String() string {
	return "set inet " + s.Table + " " + s.Name + " " + s.Family.String()
}

// Elements are ranges that are removed from and added to a set, atomically.
type Elements struct {
	Set         SetName
	Remove, Add []Range
}

func (e Elements) String() string {
	out := e.Set.String()
	if len(e.Remove) > 0 {
		out += " - " + list(e.Remove)
	}
	if len(e.Add) > 0 {
		out += " + " + list(e.Add)
	}
	return out
}

// ChainIn is a chain with all of its lines, which take effect atomically.
type ChainIn struct {
	Table string
	Chain Chain
}

func (c ChainIn) String() string {
	var b strings.Builder
	b.WriteString("chain inet " + c.Table + " " + c.Chain.Name)
	if c.Chain.Hook != "" {
		b.WriteString(" type " + c.Chain.Type + " hook " + c.Chain.Hook + " priority " + itoa(c.Chain.Priority))
	}
	for i, l := range c.Chain.Lines {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(l.String())
	}
	return b.String()
}

// Print returns the steps, one per line.
func Print(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}
