// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// owner is what Run knows. Nobody else touches the kernel.
type owner struct {
	r      *Routing
	ctx    context.Context
	log    *slog.Logger
	kernel Kernel

	stale    bool // what is wanted has to be planned again
	wanted   bool // want says something
	want     plan.State
	have     *plan.State // what the kernel has; nil: it has to be read
	settled  bool        // want was in force already: what differs now, others have changed
	peers    topology.Peers
	problems []topology.Problem
	closed   []topology.Closed // of the input that is planned
	lowered  lowered
	local    topology.Local
	gathered bool // local is known

	failed    *fault.Fault // of the last try
	differs   []plan.Step  // that it did not do
	tries     int
	since     time.Time                // of the first of them
	refusals  map[fault.Code]time.Time // when each was last logged
	toldOf    bool                     // that it fails is logged
	unlocated bool                     // local could not be gathered
	told      time.Time                // when the log last said that something was put back
	tally     tally
	watch     *watching
	blind     int // tries to open a watch
	lost      chan error

	free time.Time // when the rest after the last change ends
	due  due
}

// due is when something is to be done; zero is never.
type due struct{ apply, look, watch, count, local, settings time.Time }

// first is the earliest.
func (d *due) first() (at time.Time) {
	for _, t := range []time.Time{d.apply, d.look, d.watch, d.count, d.local, d.settings} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

func passed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// Run puts what Set says into force, keeps it there, and takes it away when ctx ends,
// or leaves it with Keep, and where ctx ends because something failed: who ends so is
// started again, and until then nothing leaves in clear. The link it leaves to who made
// it. Before the first Set it changes nothing.
func (r *Routing) Run(ctx context.Context) error {
	defer close(r.over)
	now := time.Now()
	o := &owner{r: r, ctx: ctx, log: r.parts.Log, kernel: r.parts.Kernel, lost: make(chan error, 1)}
	o.tally.begin(o.kernel)
	o.due = due{look: now.Add(routingBlind), count: now.Add(routingCounts),
		settings: now.Add(routingSettings)}
	if r.parts.Watch != nil {
		o.due.watch = now
	}
	if r.parts.Local != nil {
		o.due.local = now
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return o.end()
		case <-r.set:
			o.stale = true
			o.soon(time.Now())
		case <-r.heard:
			o.have = nil
			o.soon(time.Now())
		case <-r.moved:
			if r.parts.Local != nil {
				o.due.local = time.Now()
			}
		case err := <-o.lost:
			o.close()
			o.blinded(time.Now(), err)
		case q := <-r.asks:
			q.answer <- o.explain(q.to)
		case <-timer.C:
		}
		o.work(time.Now())
		timer.Reset(time.Until(o.due.first()))
	}
}

// soon asks for a look at the kernel, when the rest is over, or the wait after a failure.
func (o *owner) soon(now time.Time) {
	if !o.due.apply.IsZero() {
		return
	}
	if o.due.apply = now; now.Before(o.free) {
		o.due.apply = o.free
	}
}

// work does what is due. The watch is opened before anything is looked at.
func (o *owner) work(now time.Time) {
	if passed(o.due.watch, now) {
		o.open(now)
	}
	if passed(o.due.local, now) {
		o.locate(now)
	}
	if passed(o.due.count, now) {
		o.due.count = now.Add(routingCounts)
		o.count()
	}
	if passed(o.due.settings, now) {
		o.due.settings = now.Add(routingSettings)
		if o.unsettled() {
			o.have = nil
			o.soon(now)
		}
	}
	if passed(o.due.look, now) {
		o.rearm(now)
		o.have = nil
		o.soon(now)
	}
	if passed(o.due.apply, now) {
		o.due.apply = time.Time{}
		o.cycle(now)
	}
}

func (o *owner) rearm(now time.Time) {
	if o.due.look = now.Add(routingLook); o.watch == nil {
		o.due.look = now.Add(routingBlind)
	}
}

// cycle leads the kernel to what is wanted.
func (o *owner) cycle(now time.Time) {
	if o.stale {
		in := o.r.last()
		if in == nil || o.r.parts.Local != nil && !o.gathered {
			return // Set, or what gathers, comes back
		}
		o.stale = false
		o.plan(*in)
	}
	if !o.wanted {
		return
	}
	steps, err := o.reach()
	if err != nil {
		o.fail(now, fault.From(err))
		return
	}
	o.succeed(now, steps)
}

// plan decides what is wanted.
func (o *owner) plan(in topology.Input) {
	in = o.r.complete(in)
	if o.r.parts.Local != nil {
		in.Local = o.local
	}
	rules := o.r.policy()
	if rules != nil {
		in.Access = o.lowered.access
	}
	want, peers, problems := topology.Plan(in)
	if rules != nil {
		f, changed := o.lowered.renew(rules, parties(peers, o.r.parts.Caller))
		if f != nil {
			o.log.Error("the policy between peers cannot be put into force: nothing new is let in", telemetry.AttrCode, f.Code,
				telemetry.AttrReason, f.Error())
		}
		if changed {
			o.r.write(func(s *Status) { s.Policy.Closed = f })
			in.Access = o.lowered.access
			want, peers, problems = topology.Plan(in)
		}
	}
	if o.r.parts.Peers != nil && (!o.wanted || !slices.EqualFunc(o.peers, peers, alike)) {
		o.r.parts.Peers(peers)
	}
	// What differs from the known kernel is what is newly wanted.
	o.settled = o.settled && o.have == nil && len(plan.Diff(o.want, want)) == 0
	o.want, o.peers, o.wanted, o.closed = want, peers, true, in.Closed
	o.tellProblems(problems)
	ranges := 0
	for _, p := range peers {
		ranges += len(p.Allowed)
	}
	o.r.write(func(s *Status) { s.Peers, s.Ranges, o.r.wanted = len(peers), ranges, &want })
}

// alike says whether a tunnel to two peers is the same: how it goes with the way to
// them is not looked at.
func alike(a, b topology.Peer) bool {
	a.Down, a.MTU, b.Down, b.MTU = false, 0, false, 0
	return reflect.DeepEqual(a, b)
}

// reach changes what differs. Where the kernel is not what it was thought to be it is
// read anew, once.
func (o *owner) reach() ([]plan.Step, error) {
	trusted := o.have != nil
	if o.differs = nil; !trusted {
		have, err := o.kernel.Observe()
		if err != nil {
			return nil, err
		}
		o.have = &have
	}
	steps := plan.Diff(*o.have, o.want)
	if len(steps) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(steps, rewrites) {
		o.count()
	}
	err := o.kernel.Apply(steps)
	if err == nil {
		want := o.want
		o.have = &want
		return steps, nil
	}
	o.have = nil
	if trusted {
		return o.reach()
	}
	o.differs = steps
	return nil, err
}

// rewrites says whether counters are lost with a step.
func rewrites(s plan.Step) bool {
	switch s.On.(type) {
	case plan.ChainIn, plan.TableName:
		return s.Verb != plan.Add
	}
	return false
}

func (o *owner) succeed(began time.Time, steps []plan.Step) {
	now := time.Now()
	o.free = now.Add(rested(now.Sub(began), routingRest, limit.RoutingRestMost, limit.RoutingShare))
	o.rearm(now)
	o.r.metrics.Applies.WithLabelValues(telemetry.Outcome("")).Inc()
	for _, s := range steps {
		o.r.metrics.Steps.WithLabelValues(string(s.Verb), kindOf(s.On)).Inc()
	}
	repaired := o.settled && len(steps) > 0
	if repaired {
		o.r.metrics.Repairs.Inc()
		o.tellRepair(now, steps)
	}
	if o.toldOf {
		o.log.Info("the kernel takes the mesh's state again", "tries", o.tries, "for", now.Sub(o.since))
	}
	o.settled, o.failed, o.tries, o.toldOf = true, nil, 0, false
	o.r.write(func(s *Status) {
		if !s.InForce {
			s.Since = now
		}
		s.InForce, s.Fault, s.Tries, s.Differs = true, nil, 0, nil
		s.Steps += uint64(len(steps))
		if len(steps) > 0 {
			s.Applied++
		}
		if repaired {
			s.Repairs++
		}
	})
	select {
	case <-o.r.up:
	default:
		close(o.r.up)
	}
}

// tellRepair says what others took away. Who does it again and again fills no log.
func (o *owner) tellRepair(now time.Time, steps []plan.Step) {
	if !o.told.IsZero() && now.Sub(o.told) < limit.RoutingQuiet {
		return
	}
	o.told = now
	o.log.Warn("the mesh's state in the kernel was changed; it is put back", "steps", len(steps),
		"first", steps[0].String())
}

func (o *owner) fail(began time.Time, f *fault.Fault) {
	now := time.Now()
	most := routingBackoff
	if f.Code == fault.CodeNotFound {
		most = routingLink
	}
	o.due.apply = now.Add(max(run.Backoff(o.tries, most, rand.Float64()),
		rested(now.Sub(began), routingRest, limit.RoutingRestMost, limit.RoutingShare)))
	if o.tries++; o.tries == 1 {
		o.since = now
	}
	o.r.metrics.Applies.WithLabelValues(telemetry.Outcome(f.Code)).Inc()
	o.tellFailure(now, f)
	o.failed = f
	o.r.write(func(s *Status) {
		if s.InForce {
			s.Since = now
		}
		s.InForce, s.Fault, s.Tries, s.Differs = false, f, o.tries, o.differs
	})
}

// locate gathers what this machine must reach in clear. Before it is known nothing is
// routed; later what was known before counts while it cannot be read.
func (o *owner) locate(now time.Time) {
	local, err := o.r.parts.Local()
	if err != nil {
		if !o.unlocated {
			f := fault.From(err)
			o.log.Warn("the addresses of this machine cannot be read; those known before count", telemetry.AttrCode, f.Code,
				telemetry.AttrReason, f.Error())
		}
		o.unlocated = true
		o.due.local = now.Add(routingBlind)
		return
	}
	o.unlocated = false
	o.due.local = now.Add(routingLocal)
	if o.gathered && reflect.DeepEqual(local, o.local) {
		return
	}
	o.local, o.gathered, o.stale = local, true, true
	o.soon(now)
	o.r.write(func(s *Status) { s.Local = local })
}

// end takes everything away, in the reverse order, unless it is to stay.
func (o *owner) end() error {
	o.close()
	o.count()
	o.r.write(func(s *Status) { s.Watching = false })
	if failed := !errors.Is(context.Cause(o.ctx), context.Canceled); failed || o.r.parts.Keep {
		o.log.Info("what the mesh has in the kernel stays there and fails closed; 'tombolo mesh down' removes it")
		return nil
	}
	steps, err := remove(o.kernel, false)
	o.r.write(func(s *Status) { s.InForce, s.Since, s.Fault = false, time.Now(), fault.From(err) })
	if err != nil {
		return err
	}
	o.log.Info("what the mesh had in the kernel is removed", "steps", len(steps))
	return nil
}
