// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// Status is what is known about the files.
type Status struct {
	Files    int       // with good content
	Refused  int       // files
	Refusals []Refusal // the newest of them first
	Changed  time.Time // when the content in force changed last
}

// Refusal says why a file is refused. Its last good content, if any, stays in force.
type Refusal struct {
	File   string
	Reason string
	At     time.Time
	New    bool // the file has no good content yet
}

// newest is the list that a status has of refusals.
func newest(all map[string]Refusal) []Refusal {
	out := slices.SortedFunc(maps.Values(all), func(a, b Refusal) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.File, b.File))
	})
	return slices.Clone(out[:min(len(out), refusalsListed)])
}

// oneLine is a fault as a status shows it.
func oneLine(err error) string {
	return untrusted.Text(strings.Join(strings.Fields(fault.From(err).Error()), " "), refusalText)
}

// refusals are the files that one reading refused.
type refusals []refusal

// refusal is one file. The last good content of a known file stays in force; a new one has none.
type refusal struct {
	error
	known bool
	same  bool // as at the reading before
}

func (r refusal) Unwrap() error { return r.error }

// refusalsOf is nil if nothing is refused.
func refusalsOf(byFile map[string]refusal) error {
	if len(byFile) == 0 {
		return nil
	}
	var out refusals
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		out = append(out, byFile[file])
	}
	return out
}

func (r refusals) Error() string { return errors.Join(r.Unwrap()...).Error() }

func (r refusals) Unwrap() (out []error) {
	for _, one := range r {
		out = append(out, one)
	}
	return out
}

// fresh leaves out the files that were refused for the same reason before.
func fresh(err error) error {
	var all refusals
	if !errors.As(err, &all) {
		return err
	}
	all = slices.DeleteFunc(all, func(r refusal) bool { return r.same })
	if len(all) == 0 {
		return nil
	}
	return all
}

// staying says what is in force instead of what err refuses.
func staying(err error) string {
	var one refusal
	switch {
	case !errors.As(err, &one):
		return "everything stays as it was" // a folder cannot be read
	case one.known:
		return "its last good content stays"
	}
	return "it was never good, and nothing of it is in force"
}

// LogRefused logs the files that an error of Load refuses. Reloaded has counted them.
func (p *Files[T]) LogRefused(err error, rest string) {
	errs := []error{err}
	var all refusals
	if errors.As(err, &all) {
		errs = all.Unwrap()
	}
	for i, err := range errs {
		if i == limit.PoliciesTold {
			p.Log.Error("more "+p.Words.Many+" are refused; '"+p.Words.Check+"' names them", "files", len(errs)-i)
			return
		}
		f := fault.From(err)
		p.Log.Error("a "+p.Words.One+" is refused; "+staying(err)+rest,
			telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	}
}
