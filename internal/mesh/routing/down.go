// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Names are those of a mesh's objects in the kernel.
func Names(o topology.Options) kernel.Names {
	return kernel.Names{Link: o.Link, Filter: o.Filter, Table: o.Table, Protocol: kernel.Protocol}
}

// Down removes what a mesh has left in the kernel, with its link and what that has of IPsec,
// and says by which steps: also what has earlier names that its state directory knows. Where nothing is
// left there are none. Under a mesh that has its link open it takes nothing away; that one
// with the kernel's WireGuard does not run is its caller's to see.
func Down(names kernel.Names, dir string) ([]plan.Step, error) {
	a, broken := ReadApplied(dir)
	claims, err := claimed(names)
	if err == nil {
		err = a.strange(names, claims)
	}
	if err != nil {
		return nil, err
	}
	steps, err := removal(names)
	if err != nil {
		return steps, err
	}
	more, err := removals(a.Former(names, claims))
	if steps = append(steps, more...); err == nil && (broken != nil || len(a.Names) > 0) {
		err = a.Only().Write(dir)
	}
	return steps, errors.Join(err, broken)
}

// Clear removes what has earlier names, with its links.
func Clear(a Applied, now kernel.Names) ([]plan.Step, error) {
	claims, err := claimed(now)
	if err != nil {
		return nil, err
	}
	return removals(a.Former(now, claims))
}

func claimed(names kernel.Names) (claims []plan.Claim, err error) {
	k, err := kernel.New(names)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	return k.Claims()
}

func removals(former []kernel.Names) (steps []plan.Step, err error) {
	for _, n := range former {
		more, failed := removal(n)
		steps, err = append(steps, more...), errors.Join(err, failed)
	}
	return steps, err
}

func removal(names kernel.Names) (steps []plan.Step, err error) {
	k, err := kernel.New(names)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	used, err := k.InUse()
	if err != nil {
		return nil, err
	}
	if used {
		return nil, fault.New(fault.CodeStateBusy, "removing what the mesh has in the kernel").
			Whyf("a program has the link %s open: a mesh runs", names.Link).
			Hint("end it with SIGTERM, which takes the same away; or name its file with --config, if another mesh is meant")
	}
	if steps, err = remove(k, true); err != nil || names.Link == "" {
		return steps, err
	}
	left, err := ipsec.Leave(names.Link)
	if left.Any() {
		steps = append(steps, plan.Step{Verb: plan.Remove, On: left})
	}
	return steps, err
}

// remove tries until nothing is left, a few times: others may be removing the same.
func remove(k Kernel, link bool) ([]plan.Step, error) {
	var done []plan.Step
	var failed error
	for range routingRemovals {
		have, err := k.Observe()
		if err != nil {
			return done, err
		}
		var steps []plan.Step
		for _, s := range plan.Diff(have, plan.State{}) {
			if _, is := s.On.(plan.Link); is && s.Verb == plan.Remove && !link {
				continue
			}
			steps = append(steps, s)
		}
		if len(steps) == 0 {
			return done, nil
		}
		if failed = k.Apply(steps); failed == nil {
			done = append(done, steps...)
		}
	}
	have, err := k.Observe()
	if err != nil {
		return done, err
	}
	left := plan.Diff(have, plan.State{})
	switch {
	case failed != nil:
		return done, failed
	case len(left) > 0 && (link || len(left) > len(have.Links)):
		return done, fault.New(fault.CodeClash, "removing what the mesh has in the kernel").
			Whyf("it comes back again and again, so another program makes it: %s", left[0]).
			Hint("see that no mesh runs here, and try again")
	}
	return done, nil
}
