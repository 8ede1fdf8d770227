// SPDX-License-Identifier: Apache-2.0

// Package kerneltest is the kernel in memory, for tests of what lives on it, with a
// contract that holds for it and the real one.
package kerneltest

import (
	"fmt"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
)

// Kernel is in memory. It belongs to one goroutine.
type Kernel struct {
	state  plan.State
	Faults []*fault.Fault // what Check says
	Fail   error          // what Apply ends with after Left more steps, if it is set
	Left   int
	Log    []plan.Step // what was applied
	Drops  []kernel.Count
}

// New is an empty kernel.
func New() *Kernel { return &Kernel{} }

// Make makes a link, as a tunnel does.
func (k *Kernel) Make(name string) error {
	next, err := k.state.With(plan.Step{Verb: plan.Add, On: plan.Link{Name: name, MTU: 1500}})
	if err != nil {
		return err
	}
	for _, s := range [][3]string{{"ipv4", "rp_filter", "1"}, {"ipv4", "src_valid_mark", "0"},
		{"ipv6", "disable_ipv6", "0"}} {
		next.Sysctls = append(next.Sysctls, plan.Sysctl{Link: name, Path: s[0] + "/conf/" + name + "/" + s[1], Value: s[2]})
	}
	k.state = next.Normal()
	return nil
}

// Lose takes a link away with all that lies on it, as the end of its tunnel does.
func (k *Kernel) Lose(name string) error {
	next, err := k.state.With(plan.Step{Verb: plan.Remove, On: plan.Link{Name: name}})
	if err == nil {
		k.state = next
	}
	return err
}

// Observe is that of package kernel.
func (k *Kernel) Observe() (plan.State, error) { return k.state.Normal(), nil }

// Check is that of package kernel.
func (k *Kernel) Check(plan.State) []*fault.Fault { return k.Faults }

// Settings is that of package kernel.
func (k *Kernel) Settings() []plan.Sysctl { return slices.Clone(k.state.Sysctls) }

// Counts is that of package kernel.
func (k *Kernel) Counts() ([]kernel.Count, error) { return k.Drops, nil }

// Close is that of package kernel.
func (k *Kernel) Close() error { return nil }

// Apply is that of package kernel.
func (k *Kernel) Apply(steps []plan.Step) error {
	for _, s := range steps {
		if k.Fail != nil {
			if k.Left == 0 {
				return k.Fail
			}
			k.Left--
		}
		if link, ok := s.On.(plan.Link); ok && s.Verb == plan.Add {
			return fault.New(fault.CodeNotFound, s.String()).Whyf("there is no link %s", link.Name)
		}
		next, err := k.state.With(s)
		switch {
		case err == nil:
			k.state = next
		case s.Verb != plan.Remove: // what goes may be gone already
			return fault.New(fault.CodeInternal, s.String()).Because(err)
		}
		if link, ok := s.On.(plan.Link); ok && !link.Up && s.Verb == plan.Change {
			k.state = flushed(k.state, link.Name)
		}
		k.Log = append(k.Log, s)
	}
	return nil
}

// flushed is what the kernel leaves when a link is set down: its routes go with it,
// and its addresses of IPv6.
func flushed(s plan.State, link string) plan.State {
	out := s
	out.Routes, out.Addresses = nil, nil
	for _, r := range s.Routes {
		if r.Link != link {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, a := range s.Addresses {
		if a.Link != link || a.Prefix.Addr().Is4() {
			out.Addresses = append(out.Addresses, a)
		}
	}
	return out
}

// String is what the kernel has.
func (k *Kernel) String() string {
	return fmt.Sprint(plan.Print(plan.Diff(plan.State{}, k.state)))
}
