// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
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
		r.wait(2 * routingLink)
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
			r.wait(2 * routingRest)
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
		r.wait(routingSettings + routingRest)
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
		most := int(long/routingRest) + 1
		if n := r.kernel.applied - before; n > most || n < most/2 {
			t.Errorf("%d changes in %v", n, long)
		}
		if n := r.logged("it is put back"); n > 2 {
			t.Errorf("it is logged %d times", n)
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
		if s.InForce || !errors.Is(s.Fault, errBroken) || s.Tries < 6 || s.Tries > 60 || r.metric("tombolo_mesh_in_force") != 0 {
			t.Errorf("status %+v", s)
		}
		if n := r.logged("level=ERROR"); n != 1 {
			t.Errorf("%d errors are logged:\n%s", n, r.log)
		}
		r.kernel.Fail = nil
		r.wait(routingBackoff + time.Second)
		r.inForce(in)
		if s := r.Status(); s.Tries != 0 || s.Fault != nil || r.logged("takes the mesh's state again") != 1 {
			t.Errorf("status %+v:\n%s", s, r.log)
		}
		r.kernel.deaf = errBroken
		r.kernel.echo()
		r.settle()
		if s := r.Status(); s.InForce {
			t.Error("in force, though nothing can be read")
		}
		r.kernel.deaf = nil
		r.wait(routingBackoff + time.Second)
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
			r.wait(routingBackoff)
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
		r.wait(routingBlind + routingRest)
		r.inForce(in)
		r.refuse = nil
		r.wait(routingBackoff + time.Second)
		if s := r.Status(); !s.Watching || s.Blind != nil || len(r.watches) != 2 {
			t.Errorf("status %+v, %d watches", s, len(r.watches))
		}
		if r.logged("does not report its changes") != 1 || r.logged("reports its changes again") != 1 {
			t.Errorf("log:\n%s", r.log)
		}
		r.kernel.take(t, less)
		r.wait(2 * routingRest)
		r.inForce(in)
	})
}

// What takes long is followed by a rest that is longer.
func TestRests(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: routingRest, time.Millisecond: routingRest, 100 * time.Millisecond: 400 * time.Millisecond, time.Minute: limit.RoutingRestMost,
	} {
		if got := rested(took, routingRest, limit.RoutingRestMost, limit.RoutingShare); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
