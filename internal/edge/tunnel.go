// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// tunnel is a visit that has been let in. A changed policy may end it.
type tunnel struct {
	request policy.Request
	cancel  context.CancelCauseFunc

	mu   sync.Mutex
	rule authz.Ruling // by which it lives, or that ended it
	over bool
}

// Request implements authz.Stream.
func (t *tunnel) Request() policy.Request { return t.request }

// Allowed implements authz.Stream.
func (t *tunnel) Allowed(r authz.Ruling) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rule = r
}

// Overrule implements authz.Stream.
func (t *tunnel) Overrule(r authz.Ruling) {
	t.mu.Lock()
	t.rule, t.over = r, true
	t.mu.Unlock()
	t.cancel(fault.New(fault.CodePolicyDenied, "a changed policy refuses the tunnel"))
}

func (t *tunnel) ruling() (authz.Ruling, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rule, t.over
}

// carry starts to copy between client and upstream. When both have ended it writes the record, and calls done.
func (v *visit) carry(ctx context.Context, up net.Conn, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := v.begin(cancel, up)
	if t == nil {
		cancel(nil)
		v.leave()
		done()
		return
	}
	v.of.splicer.Start(ctx, splice.Net(v.conn), splice.Net(up), splice.Options{
		Idle: v.of.settings.Load().IdleTimeout, Up: v.of.metrics.Up, Down: v.of.metrics.Down,
	}, func(r splice.Result) {
		v.over(t, r)
		cancel(nil)
		v.leave()
		done()
	})
}

// begin makes a tunnel of a visit; nil: the policy has changed since it was asked, or the client is gone.
func (v *visit) begin(cancel context.CancelCauseFunc, up net.Conn) *tunnel {
	t := &tunnel{request: v.request(), cancel: cancel, rule: v.rule}
	ruling, ok := v.of.table.Enter(v.route.Tenant.Cluster, t)
	var err error
	switch {
	case !ok:
		v.rule = ruling
		err = denied(ruling)
	case v.at.Connect:
		if err = v.established(); err != nil {
			v.of.table.Leave(v.route.Tenant.Cluster, t)
		}
	}
	if err != nil {
		up.Close()
		v.end(v.record(), err)
		return nil
	}
	v.carried = true
	v.of.metrics.Tunnels.WithLabelValues(v.at.Name).Inc()
	return t
}

// over ends a tunnel whose bytes have been carried.
func (v *visit) over(t *tunnel, r splice.Result) {
	v.of.table.Leave(v.route.Tenant.Cluster, t)
	rec := v.record()
	rec.Up, rec.Down = r.Up, r.Down
	var err error
	if now, over := t.ruling(); over {
		rec.Verdict, rec.Rule, rec.Policy = audit.Deny, now.Rule, now.Version.String()
		err = fault.New(fault.CodePolicyDenied, "a changed policy refuses the tunnel").Whyf("%s", now.Why())
	} else if r.Code != "" {
		err = fault.New(r.Code, "the tunnel ended").Because(r.Err)
	}
	v.end(rec, err)
}

// end writes the record of a visit and counts it. That of a tunnel is never summed: it alone says what was carried.
func (v *visit) end(rec audit.Record, err error) {
	f := fault.From(err)
	rec.Duration = audit.Millis(v.of.now().Sub(v.begun))
	rec.End(f)
	if f != nil && f.Code == fault.CodePolicyDenied {
		rec.Reason = f.Why
	}
	v.of.metrics.Visits.WithLabelValues(v.at.Name, outcome(err)).Inc()
	if f != nil && f.Code == fault.CodeDialCanceled && v.name == "" {
		return // a port scan, or a health check of a load balancer
	}
	if f != nil && !v.carried && refused(f.Code) && !errors.As(err, new(fromHub)) {
		rec.Kind = audit.KindRefusal
		if v.of.refusals.Take(v.of.now(), rec, sourceOf(v.client.Addr()).String()) {
			v.of.audit.Write(rec)
			v.of.log.Info("refused", telemetry.AttrCluster, rec.Cluster, telemetry.AttrPeer, rec.Source,
				telemetry.AttrTarget, rec.Asked, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		}
		return
	}
	v.of.audit.Write(rec)
}

// refused reports whether a code is an answer of ours, and not of an upstream.
func refused(code fault.Code) bool {
	switch fault.ClassOf(code) {
	case fault.Invalid, fault.Unauthenticated, fault.Denied, fault.NotFound, fault.Exhausted:
		return true
	}
	return false
}
