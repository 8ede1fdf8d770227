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

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

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
			r.wait(routingCounts)
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
