// SPDX-License-Identifier: Apache-2.0

package policyfile

import (
	"errors"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// refusals is what is wrong with files of the policy.
type refusals []refusal

// refusal is one file. If it is known its last good content stays in force, a
// new one has none.
type refusal struct {
	error
	known bool
}

func (p refusal) Unwrap() error { return p.error }

// err is nil if nothing is refused.
func (p refusals) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func (p refusals) Error() string { return errors.Join(p.Unwrap()...).Error() }

func (p refusals) Unwrap() (out []error) {
	for _, one := range p {
		out = append(out, one)
	}
	return out
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

// LogRefused logs the files of the policy that are refused. The metrics have
// counted them.
func (p *Files) LogRefused(err error, rest string) {
	errs := []error{err}
	var all refusals
	if errors.As(err, &all) {
		errs = all.Unwrap()
	}
	for i, err := range errs {
		if i == limit.PoliciesTold {
			p.Log.Error("more policies are refused; 'tombolo policy check' names them", "files", len(errs)-i)
			return
		}
		f := fault.From(err)
		p.Log.Error("a policy is refused; "+staying(err)+rest, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
	}
}
