// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/test/roles"
)

// verdict is what a line says of its figure.
type verdict string

const (
	good   verdict = "ok"
	short  verdict = "short"
	absent verdict = "n/a"
)

// line is one figure with its target.
type line struct {
	name    string
	value   float64
	target  float64
	atLeast bool   // else at most
	unit    string // behind both figures
	note    string // behind the verdict
	why     string // it cannot be judged here; empty: it can
}

// verdict takes what is no number for not met: it was not measured.
func (l line) verdict() verdict {
	switch {
	case l.why != "":
		return absent
	case math.IsNaN(l.value), l.atLeast && l.value < l.target, !l.atLeast && l.value > l.target:
		return short
	}
	return good
}

func (l line) bound() string {
	sign := "<="
	if l.atLeast {
		sign = ">="
	}
	return fmt.Sprintf("%s %.4g%s", sign, l.target, l.unit)
}

func (l line) cells() []string {
	value := fmt.Sprintf("%.3g%s", l.value, l.unit)
	if math.Abs(l.value) >= 1000 {
		value = fmt.Sprintf("%.0f%s", l.value, l.unit)
	}
	said := string(l.verdict())
	switch {
	case l.why != "":
		value, said = "-", said+": "+l.why
	case l.note != "":
		said += " (" + l.note + ")"
	}
	return []string{l.name, value, l.bound(), said}
}

func (l line) String() string { return strings.Join(l.cells(), "  ") }

func (l line) record() record {
	rec := record{Line: l.name, Target: l.target, Unit: strings.TrimSpace(l.unit), Verdict: l.verdict(), Note: l.why + l.note}
	if !math.IsNaN(l.value) && !math.IsInf(l.value, 0) {
		rec.Value = &l.value
	}
	return rec
}

func printLines(w io.Writer, lines []line) error {
	rows := make([][]string, len(lines))
	for i, l := range lines {
		rows[i] = l.cells()
	}
	return roles.PrintTable(w, rows)
}

// record is a line of the file: a point of a curve, or a judged figure.
type record struct {
	Measurement string             `json:"measurement,omitempty"`
	At          int                `json:"at,omitempty"` // where on the curve
	Case        string             `json:"case,omitempty"`
	Values      map[string]float64 `json:"values,omitempty"`

	Line    string   `json:"line,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	Target  float64  `json:"target,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	Verdict verdict  `json:"verdict,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// header is the first line of the file: what the figures are from.
type header struct {
	Begun   time.Time `json:"begun"`
	Cores   int       `json:"cores"`
	Kernel  string    `json:"kernel"`
	Go      string    `json:"go"`
	Version string    `json:"version"`
	Quick   bool      `json:"quick"`
	Load    string    `json:"load"` // of the machine before the run, by /proc/loadavg
}

func describe(o options, now time.Time) header {
	h := header{Begun: now.UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(), Version: version, Quick: o.quick}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		h.Load = strings.TrimSpace(string(data))
	}
	return h
}
