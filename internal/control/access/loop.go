// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

const (
	gather  = 50 * time.Millisecond  // changes of one moment are one pass
	retry   = 2 * time.Second        // after a failure
	budget  = 200 * time.Millisecond // for coverage, in one pass
	breath  = 500 * time.Millisecond // until the next pass if clusters are left to look at
	pause   = 50 * time.Millisecond  // between looks
	looks   = 20                     // until statuses say what they found
	hurries = 5                      // passes in a row that leave telling to the next one
	patient = time.Minute            // a pass with all that it writes
)

// loop does passes: it is the one goroutine that writes.
type loop struct {
	cfg      controlconf.Access
	log      *slog.Logger
	told     *telemetry.Access
	reader   reader
	writer   writer
	status   client.SubResourceWriter
	say      func(about client.Object, warning bool, reason, note string) // an event
	memory   clusters.Memory
	gate     gate
	coverage *coverage
	wake     *watch.Loop
	last     judged       // of the last pass
	said     []string     // of problems
	looks    int          // since then
	edited   atomic.Bool  // since the last pass began
	hurried  int          // passes in a row that told nothing, because a policy was edited meanwhile
	since    atomic.Int64 // when, in nanoseconds since 1970; 0: nothing did
}

// changed wakes the loop. It may be called by anybody.
func (l *loop) changed() {
	l.since.CompareAndSwap(0, time.Now().UnixNano())
	l.wake.Wake()
}

// run does passes until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.memory = clusters.Memory{Always: istio.ReadAlways(l.cfg.AdditionalRanges)}
	l.gate = gate{settle: l.cfg.Settle, began: time.Now()}
	l.coverage = newCoverage()
	l.changed()
	l.wake.Run(ctx, func(ctx context.Context) time.Duration {
		again := l.pass(ctx)
		for again == breath && l.idle(ctx) { // nothing changed: look at more clusters
			again = l.look()
		}
		return again
	})
}

// idle waits a moment. It reports whether nothing changed meanwhile.
func (l *loop) idle(ctx context.Context) bool {
	return run.Wait(ctx, pause) && l.since.Load() == 0
}

// look judges the coverage of clusters by what the last pass saw, until all are judged or a status is due.
func (l *loop) look() time.Duration {
	l.looks++
	if l.coverage.judge(l.last.facts, l.cfg.Gateways, l.until(time.Now().Add(budget))) && l.looks < looks {
		return breath
	}
	l.looks = 0
	return time.Millisecond
}

// until says when to stop looking: at a time, or as soon as a policy is edited.
func (l *loop) until(end time.Time) (over func() bool) {
	return func() bool { return l.edited.Load() || !time.Now().Before(end) }
}

// pass brings the objects nearer to what they should be. It says when to look again; 0: when something changes.
func (l *loop) pass(parent context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	since := l.since.Swap(0)
	l.edited.Store(false)
	s, err := l.reader.read(ctx)
	if err != nil {
		l.log.Warn("objects cannot be read", broken(err)...)
		return retry
	}
	j := judge(l.cfg, l.memory.Read(inputs(s.policies, s.tenants)), s.facts)
	now := time.Now()
	write, remove, at := l.gate.due(j.steps, now)
	failed, blocked := l.do(ctx, j.want, write, remove)
	if blocked {
		l.gate.failed(now)
	} else if len(failed) == 0 && since > 0 && len(write)+len(remove) > 0 {
		l.told.Seconds.Observe(time.Since(time.Unix(0, since)).Seconds())
	}
	l.last = j
	l.coverage.note(j, s.versions, s.others, l.cfg.Gateways)
	more := l.coverage.judge(j.facts, l.cfg.Gateways, l.until(time.Now().Add(budget)))
	if l.edited.Load() && l.hurried < hurries { // what is written goes before what is told
		l.hurried++
		return time.Millisecond
	}
	l.hurried = 0
	o := outcome{
		judged: j, gateways: l.cfg.Gateways, coverage: l.coverage, failed: failed, now: now, named: named(j),
		ends:  j.want.Edits(),
		owner: owners(istio.Owned(j.facts, l.cfg.Namespaces()...), j.want),
	}
	for _, step := range j.steps {
		for _, r := range slices.Concat(step.Write, step.Remove) {
			if done := slices.Contains(write, r) || slices.Contains(remove, r); !done || failed[r] != "" {
				o.pending = append(o.pending, r)
			}
		}
	}
	stored := l.statuses(ctx, &o, s)
	l.tell(&o)
	switch {
	case len(failed) > 0 || !stored:
		return retry
	case more:
		return breath
	case !at.IsZero():
		return max(time.Until(at), time.Millisecond)
	}
	return 0
}

// do writes, and if all of ours succeeded removes: nothing that is ours waits for an object of others. It says what
// failed, and whether some of it was ours.
func (l *loop) do(ctx context.Context, p istio.Planned, write, remove []istio.Ref) (map[istio.Ref]string, bool) {
	failed, blocked := map[istio.Ref]string{}, false
	injected := map[istio.Ref]istio.Injection{}
	for _, i := range p.Injected {
		injected[i.Ref()] = i
	}
	for _, r := range write {
		if i, foreign := injected[r]; foreign {
			l.note(failed, "inject", r, l.writer.inject(ctx, i))
			continue
		}
		err := l.writer.write(ctx, p, r)
		l.note(failed, "write", r, err)
		blocked = blocked || err != nil
	}
	for _, r := range remove {
		if blocked {
			failed[r] = "it waits for what cannot be written"
			continue
		}
		err := l.writer.remove(ctx, r)
		l.note(failed, "remove", r, err)
		blocked = blocked || err != nil
	}
	return failed, blocked
}

// note tells what came of an action on an object.
func (l *loop) note(failed map[istio.Ref]string, action string, r istio.Ref, err error) {
	l.told.Writes.WithLabelValues(r.Kind, action, outcomeOf(err)).Inc()
	if err == nil {
		l.log.Info("an object changed", "object", r.String(), "action", action)
		return
	}
	failed[r] = why(err)
	l.log.Warn("an object cannot be changed", append(broken(err), "object", r.String(), "action", action)...)
}

// statuses stores what changed in them, and tells of what is new.
func (l *loop) statuses(ctx context.Context, o *outcome, s seen) (stored bool) {
	stored = true
	store := func(old, next client.Object) {
		err := client.IgnoreNotFound(l.status.Patch(ctx, next, client.MergeFrom(old), fieldOwner))
		if err != nil {
			stored = false
			l.log.Warn("a status cannot be stored", append(broken(err), "object", old.GetName())...)
		}
	}
	slices.SortFunc(s.policies, func(a, b objects.AccessPolicy) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.policies {
		old := &s.policies[i]
		next := old.DeepCopy()
		next.Status = o.policy(i, old.Status, old.Generation)
		if !equality.Semantic.DeepEqual(old.Status, next.Status) {
			store(old, next)
			l.events(next, old.Status, next.Status)
		}
	}
	tenants := map[string]int{}
	for i, t := range o.world.Tenants {
		tenants[t.Namespace+"/"+t.Name] = i
	}
	for i := range s.tenants {
		old := &s.tenants[i]
		next := old.DeepCopy()
		next.Status = o.tenant(o.world.Tenants[tenants[old.Namespace+"/"+old.Name]], old.Status, old.Generation)
		if !equality.Semantic.DeepEqual(old.Status, next.Status) {
			store(old, next)
		}
	}
	return stored
}
