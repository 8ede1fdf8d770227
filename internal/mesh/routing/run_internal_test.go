// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/kernel"
	"github.com/tombolo-io/tombolo/internal/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/plan"
	"github.com/tombolo-io/tombolo/internal/topology"
)

func TestWhatIsSetComesIntoForceAndGoesAtTheEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.link()
		r.start()
		r.wait(10 * time.Minute)
		if len(r.kernel.Log) != 0 {
			t.Fatalf("changed before anything was said:\n%s", plan.Print(r.kernel.Log))
		}
		select {
		case <-r.Up():
			t.Error("up without a state")
		default:
		}
		in := input(3)
		r.Set(in)
		r.settle()
		r.inForce(in)
		<-r.Up()
		if len(r.told) != 1 || len(r.told[0]) != 2 {
			t.Errorf("told of peers %v", r.told)
		}
		in = input(5)
		r.Set(in)
		r.settle()
		r.inForce(in)
		if s := r.Status(); s.Peers != 4 || s.Ranges != 4*3 || s.Applied != 2 {
			t.Errorf("status %+v", s)
		}
		if got := r.metric("tombolo_mesh_ranges"); got != 12 {
			t.Errorf("%v ranges", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		// Who made the link takes it away.
		if left := r.kernel.lacks(plan.State{}); left != "remove link tombolo0 mtu 1420 down\n" {
			t.Errorf("left:\n%s", left)
		}
		if r.Status().InForce || r.metric("tombolo_mesh_in_force") != 0 {
			t.Error("in force after the end")
		}
	})
}

func TestWithKeepEverythingStays(t *testing.T) {
	inBubble(t, func(p *Parts) { p.Keep = true }, func(t *testing.T, r *rig) {
		in := input(3)
		r.begun(in)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.inForce(in)
	})
}

// Without a link all that fails closed is there, and the rest comes with the link.
func TestAfterAFailureEverythingStaysAndFailsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		r.begun(in)
		r.group.Go("another part", func(context.Context) error { return errBroken })
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		want, _, _ := topology.Plan(in)
		if left := r.kernel.lacks(want); left != "" {
			t.Errorf("what failed has opened the way for clear text:\n%s", left)
		}
	})
}

func TestBeforeTheLinkIsThereItFailsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		r.start()
		r.Set(in)
		r.settle()
		want, _, _ := topology.Plan(in)
		for line := range strings.Lines(r.kernel.lacks(want)) {
			if !strings.Contains(line, kerneltest.Link) {
				t.Errorf("not there: %s", line)
			}
		}
		if s := r.Status(); s.InForce || s.Fault == nil || s.Fault.Code != fault.CodeNotFound {
			t.Errorf("status %+v", s)
		}
		if n := r.metric("tombolo_mesh_applies_total", "not_found"); n < 1 {
			t.Errorf("%v failures", n)
		}
		r.wait(time.Minute)
		r.link()
		r.wait(2 * limit.RoutingLink)
		r.inForce(in)
		if n := r.logged("level=ERROR"); n != 1 {
			t.Errorf("%d errors are logged:\n%s", n, r.log)
		}
		if r.logged("takes the mesh's state again") != 1 {
			t.Errorf("that it is well is not logged:\n%s", r.log)
		}
	})
}

func TestWhatOthersTakeAwayIsPutBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		r.begun(in)
		full, _ := r.kernel.Kernel.Observe()
		for _, without := range []func(*plan.State){
			func(s *plan.State) { s.Tables = nil },
			func(s *plan.State) { s.Rules = s.Rules[1:] },
			func(s *plan.State) { s.Routes = s.Routes[2:] },
			func(s *plan.State) { s.Addresses = nil },
		} {
			less := full
			without(&less)
			r.kernel.take(t, less)
			r.wait(2 * limit.RoutingRest)
			r.inForce(in)
		}
		if s := r.Status(); s.Repairs != 4 || r.metric("tombolo_mesh_repairs_total") != 4 {
			t.Errorf("%d repairs", s.Repairs)
		}
		if n := r.logged("it is put back"); n != 1 {
			t.Errorf("it is logged %d times:\n%s", n, r.log)
		}
		// A sysctl of which the kernel does not tell.
		for i := range full.Sysctls {
			if strings.HasSuffix(full.Sysctls[i].Path, "rp_filter") {
				o := full.Sysctls[i]
				o.Value = "1"
				if err := r.kernel.Kernel.Apply([]plan.Step{{Verb: plan.Change, On: o}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.wait(limit.RoutingSettings + limit.RoutingRest)
		r.inForce(in)
	})
}

// Its own echo leads to one look and nothing more; without news there is one each minute.
func TestAnEchoMakesNoLoop(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.begun(input(3))
		if r.kernel.applied != 1 || r.kernel.observed > 2 {
			t.Errorf("%d changes, %d looks", r.kernel.applied, r.kernel.observed)
		}
		before := r.kernel.observed
		r.wait(time.Hour)
		if n := r.kernel.observed - before; n < 59 || n > 60 || r.kernel.applied != 1 {
			t.Errorf("%d looks and %d changes in an hour", n, r.kernel.applied)
		}
	})
}

// Who takes it away as fast as it is put back costs a bounded rate.
func TestWhoFightsIsMetAtABoundedRate(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.begun(input(3))
		full, _ := r.kernel.Kernel.Observe()
		less := full
		less.Rules = nil
		before := r.kernel.applied
		const long = 5 * time.Second
		for range int(long / time.Millisecond) {
			if r.kernel.lacks(full) == "" {
				r.kernel.take(t, less)
			}
			r.wait(time.Millisecond)
		}
		most := int(long/limit.RoutingRest) + 1
		if n := r.kernel.applied - before; n > most || n < most/2 {
			t.Errorf("%d changes in %v", n, long)
		}
		if n := r.logged("it is put back"); n > 2 {
			t.Errorf("it is logged %d times", n)
		}
	})
}

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

func TestAFailureIsTriedAgainWithPatience(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.begun(input(3))
		r.kernel.Fail, r.kernel.Left = errBroken, 0
		before := r.kernel.applied
		in := input(4)
		for range 60 * 10 {
			r.Set(in) // what comes meanwhile does not hurry it
			r.kernel.echo()
			r.wait(100 * time.Millisecond)
		}
		if n := r.kernel.applied - before; n < 6 || n > 60 {
			t.Errorf("%d tries in a minute", n)
		}
		s := r.Status()
		if s.InForce || !errors.Is(s.Fault, errBroken) || r.metric("tombolo_mesh_in_force") != 0 {
			t.Errorf("status %+v", s)
		}
		if n := r.logged("level=ERROR"); n != 1 {
			t.Errorf("%d errors are logged:\n%s", n, r.log)
		}
		r.kernel.Fail = nil
		r.wait(limit.RoutingBackoff + time.Second)
		r.inForce(in)
		r.kernel.deaf = errBroken
		r.kernel.echo()
		r.settle()
		if s := r.Status(); s.InForce {
			t.Error("in force, though nothing can be read")
		}
		r.kernel.deaf = nil
		r.wait(limit.RoutingBackoff + time.Second)
		r.inForce(in)
	})
}

// A state that failed half way is led on from where it is.
func TestAnEndAtAnyStepIsMended(t *testing.T) {
	for n := 0; ; n++ {
		done := false
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.kernel.Fail, r.kernel.Left = errBroken, n
			r.link()
			r.start()
			in := input(3)
			r.Set(in)
			r.wait(50 * time.Millisecond)
			done = len(r.kernel.Log) < n
			r.kernel.Fail = nil
			r.wait(limit.RoutingBackoff)
			r.inForce(in)
		})
		if done || t.Failed() {
			return
		}
	}
}

func TestAWatchThatFailsIsOpenedAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		r.begun(in)
		if !r.Status().Watching || r.metric("tombolo_mesh_kernel_watched") != 1 {
			t.Error("it does not watch")
		}
		full, _ := r.kernel.Kernel.Observe()
		r.refuse = errBroken
		r.watches[0].fail <- errBroken
		r.settle()
		if s := r.Status(); s.Watching || s.Blind == nil || !s.InForce {
			t.Errorf("status %+v", s)
		}
		less := full
		less.Tables = nil
		r.kernel.take(t, less) // nobody tells
		r.wait(limit.RoutingBlind + limit.RoutingRest)
		r.inForce(in)
		r.refuse = nil
		r.wait(limit.RoutingBackoff + time.Second)
		if s := r.Status(); !s.Watching || s.Blind != nil || len(r.watches) != 2 {
			t.Errorf("status %+v, %d watches", s, len(r.watches))
		}
		if r.logged("does not tell of its changes") != 1 || r.logged("tells of its changes again") != 1 {
			t.Errorf("log:\n%s", r.log)
		}
		r.kernel.take(t, less)
		r.wait(2 * limit.RoutingRest)
		r.inForce(in)
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

// What takes long is followed by a rest that is longer.
func TestRests(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: limit.RoutingRest, time.Millisecond: limit.RoutingRest, 100 * time.Millisecond: 400 * time.Millisecond, time.Minute: limit.RoutingRestMost,
	} {
		if got := rested(took, limit.RoutingRest, limit.RoutingRestMost, limit.RoutingShare); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}

func TestDroppedPacketsAreAddedUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		drop := plan.Do("drop")
		source := plan.Line{plan.NotNamed(plan.KeySrc4, "routed4"), plan.Count(), drop}
		policy := plan.Line{plan.Count(), drop}
		counts := func(a, b uint64) {
			r.kernel.Drops = []kernel.Count{{Chain: "forward", Line: source, Packets: a}, {Chain: "access", Line: policy, Packets: b}}
		}
		counts(5, 0) // of an earlier run
		in := input(3)
		r.begun(in)
		for _, step := range []struct{ source, policy, sum, denied uint64 }{
			{7, 0, 2, 0}, {7, 3, 2, 3}, {1, 0, 3, 3} /* written anew */, {4, 1, 6, 4},
		} {
			counts(step.source, step.policy)
			r.wait(limit.RoutingCounts)
			if s := r.Status(); s.Dropped["source"] != step.sum || s.Dropped["policy"] != step.denied {
				t.Errorf("%+v: %v", step, s.Dropped)
			}
		}
		if got := r.metric("tombolo_mesh_dropped_packets_total", "source"); got != 6 {
			t.Errorf("metric %v", got)
		}
		counts(9, 1)
		in.Options.MTU = 1400 // chains are written anew: counted before
		r.Set(in)
		r.settle()
		if s := r.Status(); s.Dropped["source"] != 11 {
			t.Errorf("lost: %v", s.Dropped)
		}
	})
}

func TestProblemsAreToldOnceAndCounted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		in.Members[0].Ranges = append(in.Members[0].Ranges, netip.MustParsePrefix("0.0.0.0/0"), in.Members[1].Ranges[0])
		r.begun(in)
		for range 5 {
			r.Set(in)
			r.settle()
		}
		s := r.Status()
		if s.Count != 2 || len(s.Problems) != 2 || s.Kinds[topology.Refused] != 1 || s.Kinds[topology.Overlap] != 1 {
			t.Errorf("problems %v", s.Problems)
		}
		if n := r.logged("does not count"); n != 2 {
			t.Errorf("%d are logged:\n%s", n, r.log)
		}
		if r.metric("tombolo_mesh_problems", "refused") != 1 || r.metric("tombolo_mesh_problems", "self") != 0 {
			t.Error("metrics of problems")
		}
		r.Set(input(3))
		r.settle()
		if n := r.logged("is gone"); n != 2 || r.Status().Count != 0 {
			t.Errorf("%d are logged as gone:\n%s", n, r.log)
		}
		many := input(100)
		for i := range many.Members {
			many.Members[i].Ranges = append(many.Members[i].Ranges, netip.MustParsePrefix("0.0.0.0/0"))
		}
		before := r.logged("level=WARN")
		r.Set(many)
		r.settle()
		if n := r.logged("level=WARN") - before; n > limit.RoutingTold+1 || r.Status().Count != 99 {
			t.Errorf("%d lines for %d problems", n, r.Status().Count)
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
		r.wait(2 * limit.RoutingBlind)
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
		r.wait(limit.RoutingLocal)
		in.Local = local
		r.inForce(in)
		if before := reads; true {
			r.wait(10 * limit.RoutingLocal)
			if reads-before > 11 {
				t.Errorf("read %d times", reads-before)
			}
		}
	})
}

func TestExplainsWhatTheKernelHas(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := input(3)
		r.link()
		r.start()
		explain := func(to string) string {
			t.Helper()
			e, err := r.Explain(t.Context(), netip.MustParseAddr(to))
			if err != nil {
				t.Fatal(err)
			}
			return e.String()
		}
		if got := explain("10.0.3.7"); !strings.Contains(got, "not decided yet") {
			t.Errorf("before anything:\n%s", got)
		}
		r.Set(in)
		r.settle()
		if got := explain("10.0.3.7"); !strings.Contains(got, "set routed4 (10.0.3.0/24)") || !strings.HasSuffix(got, "peer n3 (m0003)\n") {
			t.Errorf("of a peer:\n%s", got)
		}
		r.kernel.Fail = errBroken
		full, _ := r.kernel.Kernel.Observe()
		r.kernel.Fail = nil
		less := full
		less.Tables = nil
		heard := r.kernel.heard
		r.kernel.heard = nil // nobody has told yet
		r.kernel.take(t, less)
		if got := explain("10.0.3.7"); !strings.Contains(got, "in clear") || !strings.Contains(got, "it lacks\n  add table inet tombolo_mesh\n") || !strings.Contains(got, "and more") {
			t.Errorf("after a flush:\n%s", got)
		}
		r.kernel.heard = heard
		r.kernel.deaf = errBroken
		if got := explain("10.0.3.7"); !strings.Contains(got, "could not be read") || !strings.Contains(got, "peer n3") {
			t.Errorf("unreadable:\n%s", got)
		}
		r.kernel.deaf = nil
		r.stop()
		if _, err := r.Explain(t.Context(), netip.MustParseAddr("10.0.3.7")); !fault.Has(err, fault.CodeNotFound) {
			t.Errorf("after the end: %v", err)
		}
	})
	inBubble(t, nil, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Explain(ctx, netip.Addr{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without Run: %v", err)
		}
		synctest.Wait()
	})
}
