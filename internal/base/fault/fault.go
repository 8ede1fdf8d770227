// SPDX-License-Identifier: Apache-2.0

// Package fault has the errors that users see: a stable code, what failed, why, and
// what to do next. Programs may match the code, never the text. It does not know HTTP,
// gRPC or exit codes: the borders map a Class to theirs.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is a stable, documented name of a kind of failure (docs/reference/faults.md).
type Code string

// Class groups codes by what a caller can do; borders map it to their own status.
type Class uint8

// The classes.
const (
	Internal        Class = iota // a defect of Tombolo
	Invalid                      // the input is wrong: correct it
	Unauthenticated              // the caller's identity is not proved
	Denied                       // the identity is proved but lacks the permission
	NotFound                     // the named object does not exist
	Conflict                     // the state of the world is in the way
	Unavailable                  // try again, or repair the other side
	Timeout                      // no answer within the bound
	Upstream                     // the target itself refused or cannot be reached
	Exhausted                    // a bound was reached
)

// Fault is an error with a code. What is what failed, Why the cause in one sentence,
// Next the command or change that helps.
type Fault struct {
	Code Code
	What string
	Why  string
	Next string
	// Again is how long to wait before another try; 0: unknown.
	Again time.Duration
	err   error // the cause, for errors.Is and errors.As within this process
}

// New makes a fault. The class follows from the code.
func New(code Code, what string) *Fault { return &Fault{Code: code, What: what} }

// Newf is New with a format.
func Newf(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, What: fmt.Sprintf(format, args...)}
}

// Because adds the cause; an error keeps its chain.
func (f *Fault) Because(cause error) *Fault {
	if cause != nil {
		f.Why, f.err = cause.Error(), cause
	}
	return f
}

// Whyf adds the cause as text.
func (f *Fault) Whyf(format string, args ...any) *Fault {
	f.Why = fmt.Sprintf(format, args...)
	return f
}

// Hint adds what to do next.
func (f *Fault) Hint(format string, args ...any) *Fault {
	f.Next = fmt.Sprintf(format, args...)
	return f
}

// After adds how long to wait before another try.
func (f *Fault) After(d time.Duration) *Fault {
	f.Again = d
	return f
}

// Error renders "code: what: why"; the borders show the next step.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(string(f.Code))
	for _, s := range []string{f.What, f.Why} {
		switch {
		case strings.HasPrefix(s, "\n"): // a list, which starts a line of its own
			b.WriteString(":" + s)
		case s != "":
			b.WriteString(": " + s)
		}
	}
	return b.String()
}

// Explain renders the whole fault in one line: "code: what: why; next".
func (f *Fault) Explain() string {
	if f.Next == "" {
		return f.Error()
	}
	return f.Error() + "; " + f.Next
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.err }

// Is makes two faults of one code equal for errors.Is.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t.Code == f.Code
}

// From finds the fault in err's chain; an error without one becomes an internal fault.
// From(nil) is nil.
func From(err error) *Fault {
	if err == nil {
		return nil
	}
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return New(CodeInternal, "unexpected failure").Because(err)
}

// Has reports whether err carries the code.
func Has(err error, code Code) bool {
	var f *Fault
	return errors.As(err, &f) && f.Code == code
}

// ClassOf returns the class of a code; a code that this version does not know is Internal.
func ClassOf(code Code) Class {
	for _, e := range Table() {
		if e.Code == code {
			return e.Class
		}
	}
	return Internal
}
