// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// The lines by which a guest tells what it does. Each begins a line of the console.
const (
	begin = "guest: step %d"
	exit  = "guest: step %d exit %d"
	end   = "guest: end"
	broke = "guest: broke: "
)

// MaxLine is the length at which a line of the console is cut, in bytes.
const MaxLine = 64 << 10

// Begin is the line before the program of a step, counted from 0.
func Begin(step int) string { return fmt.Sprintf(begin, step) }

// Exit is the line after the program of a step: its exit code, or 128 and the signal that ended it.
func Exit(step, code int) string { return fmt.Sprintf(exit, step, code) }

// End is the last line of a guest that has done all steps.
func End() string { return end }

// Broke is the last line of a guest that cannot go on.
func Broke(err error) string { return broke + strings.ReplaceAll(err.Error(), "\n", "; ") }

// Outcome is how a test has ended.
type Outcome string

// The outcomes, in the words of package testing.
const (
	Pass Outcome = "PASS"
	Fail Outcome = "FAIL"
	Skip Outcome = "SKIP"
)

// Test is the end of one test, or part of a test, that a step has run.
type Test struct {
	Name    string // TestName/part
	Outcome Outcome
}

// Ran is what a step has done.
type Ran struct {
	Step  int
	Code  int // the program's exit code; -1: the guest has not told it
	Tests []Test
	Lines []string // all that the program has printed
}

// Report is what a guest has told.
type Report struct {
	Steps []Ran
	Ended bool   // it has done all steps
	Broke string // why it could not go on; "" else
	Stray []string
}

var (
	beginLine = regexp.MustCompile(`^guest: step (\d{1,4})$`)
	exitLine  = regexp.MustCompile(`^guest: step (\d{1,4}) exit (\d{1,4})$`)
	testLine  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(\d+\.\d+s\)$`)
)

// Read reads a console to its end. Lines outside of steps are Stray: the kernel's last words
// are among them. The error is the reader's.
func Read(console io.Reader) (Report, error) {
	var r Report
	within := -1 // the index of the step that runs
	lines := bufio.NewReaderSize(console, MaxLine)
	for {
		raw, prefix, err := lines.ReadLine()
		for prefix && err == nil {
			_, prefix, err = lines.ReadLine()
		}
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		line := strings.TrimRight(string(raw), "\r")
		switch {
		case line == end:
			r.Ended, within = true, -1
		case strings.HasPrefix(line, broke):
			r.Broke, within = strings.TrimPrefix(line, broke), -1
		case beginLine.MatchString(line):
			r.Steps = append(r.Steps, Ran{Step: number(beginLine, line, 1), Code: -1})
			within = len(r.Steps) - 1
		case within >= 0 && exitLine.MatchString(line):
			r.Steps[within].Code = number(exitLine, line, 2)
			within = -1
		case within >= 0:
			r.Steps[within].add(line)
		case line != "":
			r.Stray = append(r.Stray, line)
		}
	}
}

func number(in *regexp.Regexp, line string, group int) int {
	n, _ := strconv.Atoi(in.FindStringSubmatch(line)[group]) // at most four digits
	return n
}

func (r *Ran) add(line string) {
	r.Lines = append(r.Lines, line)
	if found := testLine.FindStringSubmatch(line); found != nil {
		r.Tests = append(r.Tests, Test{Name: found[2], Outcome: Outcome(found[1])})
	}
}
