// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/tombolo-io/tombolo/test/roles"
)

// line is one figure with its target.
type line struct {
	name    string
	value   float64
	target  float64
	atLeast bool // else at most
	unit    string
	note    string
	why     string // it cannot be judged here; empty: it can
}

func (l line) short() bool {
	if l.why != "" {
		return false
	}
	if l.atLeast {
		return !(l.value >= l.target)
	}
	return !(l.value <= l.target)
}

func (l line) cells() (name, value, target, verdict string) {
	sign := "<="
	if l.atLeast {
		sign = ">="
	}
	value, target = fmt.Sprintf("%.4g%s", l.value, l.unit), fmt.Sprintf("%s %.4g%s", sign, l.target, l.unit)
	switch {
	case l.why != "":
		value, verdict = "-", "n/a: "+l.why
	case l.short():
		verdict = "short"
	default:
		verdict = "ok"
	}
	if l.note != "" {
		verdict += " (" + l.note + ")"
	}
	return l.name, value, target, verdict
}

func (d *driver) line(l line) {
	d.lines = append(d.lines, l)
	name, value, target, verdict := l.cells()
	d.say("%s: %s, %s: %s", name, value, target, verdict)
}

func (d *driver) short() bool { return slices.ContainsFunc(d.lines, line.short) }

func printLines(w io.Writer, lines []line) error {
	rows := make([][]string, len(lines))
	for i, l := range lines {
		name, value, target, verdict := l.cells()
		rows[i] = []string{name, value, target, verdict}
	}
	return roles.PrintTable(w, rows)
}
