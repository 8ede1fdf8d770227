// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// watching is a watch with those who follow it.
type watching struct {
	Watch
	group  *run.Group
	opened time.Time
}

func (o *owner) open(now time.Time) {
	o.due.watch = time.Time{}
	w, err := o.r.parts.Watch()
	if err != nil {
		o.blinded(now, err)
		return
	}
	if o.blind > 0 {
		o.log.Info("the kernel reports its changes again")
	}
	o.watch = &watching{w, run.NewGroup(o.ctx), now}
	notify := func() { ring(o.r.heard) }
	for _, follow := range []func(context.Context, func()) error{w.Filter, w.Route} {
		o.watch.group.Do(func(ctx context.Context) {
			err := follow(ctx, notify)
			if ctx.Err() != nil {
				return
			}
			select {
			case o.lost <- errors.Join(err, errors.New("it has ended")):
			default: // the other one has said so
			}
		})
	}
	o.r.write(func(s *Status) { s.Watching, s.Blind = true, nil })
	o.have = nil // earlier changes were not reported
	o.soon(now)
	o.rearm(now)
}

// close ends a watch, and waits for those who follow it.
func (o *owner) close() {
	if o.watch == nil {
		return
	}
	o.watch.group.Stop()
	o.watch.group.Wait()
	o.watch.Close() // it belongs to nobody any more: an error has no reader
	if time.Since(o.watch.opened) >= limit.BackoffReset {
		o.blind = 0
	}
	o.watch = nil
	select {
	case <-o.lost:
	default:
	}
}

// blinded looks again and again, until there is a watch.
func (o *owner) blinded(now time.Time, err error) {
	f := fault.From(err)
	if o.blind == 0 {
		o.log.Warn("the kernel does not report its changes; it is read more often", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Error())
	}
	o.due.watch = now.Add(run.Backoff(o.blind, routingBackoff, rand.Float64()))
	o.blind++
	o.r.write(func(s *Status) { s.Watching, s.Blind = false, f })
	o.have = nil
	o.soon(now)
	o.rearm(now)
}

// tellFailure says why the kernel does not take what is wanted: once for as long as it continues
// for one reason. Where it fails for two in turn, or works now and then, each is logged
// once in a while; the status counts the tries.
func (o *owner) tellFailure(now time.Time, f *fault.Fault) {
	at, told := o.refusals[f.Code]
	if o.failed != nil && o.failed.Code == f.Code || told && now.Sub(at) < limit.RoutingQuiet {
		return
	}
	if o.refusals == nil {
		o.refusals = map[fault.Code]time.Time{}
	}
	o.refusals[f.Code], o.toldOf = now, true
	o.log.Error("the kernel does not take the mesh's state; it is tried again, and the status counts how often",
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
}

// unsettled says whether a sysctl of our link was changed.
func (o *owner) unsettled() bool {
	return o.settled && slices.ContainsFunc(o.kernel.Settings(), func(have plan.Sysctl) bool {
		return slices.ContainsFunc(o.want.Sysctls,
			func(want plan.Sysctl) bool { return want.Path == have.Path && want != have })
	})
}
