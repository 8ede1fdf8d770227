// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Many inputs at once are one change, and the last one counts.
func TestManyInputsAreOneChange(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.begun(input(3))
		before := r.kernel.applied
		var in topology.Input
		for n := range 1000 {
			in = input(3 + n%7)
			r.Set(in)
		}
		r.settle()
		r.inForce(in)
		if n := r.kernel.applied - before; n > 2 {
			t.Errorf("%d changes", n)
		}
		before = r.kernel.observed
		for range 1000 {
			r.Set(in)
		}
		r.settle()
		if n := r.kernel.observed - before; n > 1 {
			t.Errorf("the same again and again: %d looks", n)
		}
	})
}

// A health that changes is a change of sets, element by element.
func TestHealthChangesElementsOnly(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(10)
		in.Options.Bypass = true
		r.begun(in)
		set := func(id string, h topology.Health) []plan.Step {
			t.Helper()
			in.Health = map[string]topology.Health{}
			if h.Down || h.MTU > 0 {
				in.Health[id] = h
			}
			before := len(r.kernel.Log)
			r.Set(in)
			r.settle()
			r.inForce(in)
			return r.kernel.Log[before:]
		}
		for _, h := range []topology.Health{{Down: true}, {}} {
			steps := set("m0003", h)
			if len(steps) != 2 {
				t.Errorf("%+v:\n%s", h, plan.Print(steps))
			}
			for _, s := range steps {
				if e, ok := s.On.(plan.Elements); !ok || len(e.Add)+len(e.Remove) != 1 {
					t.Errorf("%+v: %s", h, s)
				}
			}
		}
		if n := len(r.told); n != 1 {
			t.Errorf("told of peers %d times, though none came or went", n)
		}
		set("m0003", topology.Health{MTU: 1300})
		in.Health = nil
		both := func(id string) []plan.Step {
			before := len(r.kernel.Log)
			in.Health = map[string]topology.Health{"m0003": {MTU: 1300}, id: {MTU: 1300}}
			r.Set(in)
			r.settle()
			r.inForce(in)
			return r.kernel.Log[before:]
		}
		for _, s := range both("m0004") {
			switch s.On.(type) {
			case plan.Elements, plan.Route:
			default:
				t.Errorf("another peer with a path as narrow: %s", s)
			}
		}
	})
}

// In a mesh of a thousand, one that comes costs what it has, and one that stays nothing.
func TestALargeMeshChangesByWhatChanges(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(1000)
		r.begun(in)
		if r.kernel.applied != 1 {
			t.Errorf("%d changes at first", r.kernel.applied)
		}
		before, looks := len(r.kernel.Log), r.kernel.observed
		in = input(1001)
		r.Set(in)
		r.settle()
		r.inForce(in)
		ranges := 0
		for _, s := range r.kernel.Log[before:] {
			e, ok := s.On.(plan.Elements)
			if !ok {
				t.Errorf("step %s", s)
			}
			ranges += len(e.Add) + len(e.Remove)
		}
		if steps := len(r.kernel.Log) - before; steps != 3 || ranges != 3 || r.kernel.observed-looks > 1 {
			t.Errorf("one more: %d steps with %d ranges, %d looks", steps, ranges, r.kernel.observed-looks)
		}
	})
}

func TestLocalFactsAreGatheredAgain(t *testing.T) {
	resolver := netip.MustParseAddr("10.0.3.53")
	var local topology.Local
	var fails error
	reads := 0
	inBubble(t, func(p *Parts) {
		p.Local = func() (topology.Local, error) {
			p.Kernel.(*twin).hand()
			reads++
			return local, fails
		}
	}, func(t *testing.T, r *rig) {
		in := input(3)
		fails = errBroken
		r.link()
		r.start()
		r.Set(in)
		r.settle()
		if len(r.kernel.Log) != 0 {
			t.Error("something is routed though this machine's own addresses are not known")
		}
		fails = nil
		r.wait(2 * routingBlind)
		r.inForce(in)
		local.Resolvers = []netip.Addr{resolver}
		r.Moved()
		r.settle()
		in.Local = local
		r.inForce(in)
		if s := r.Status(); s.Count != 1 || s.Problems[0].Kind != topology.Refused || len(s.Local.Resolvers) != 1 {
			t.Errorf("problems %v", s.Problems)
		}
		fails = errBroken
		r.Moved()
		r.settle()
		r.inForce(in)
		fails, local = nil, topology.Local{}
		r.wait(routingLocal)
		in.Local = local
		r.inForce(in)
		if before := reads; true {
			r.wait(10 * routingLocal)
			if reads-before > 11 {
				t.Errorf("read %d times", reads-before)
			}
		}
	})
}
