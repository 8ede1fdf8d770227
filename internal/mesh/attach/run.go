// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

// Join gets the certificate before the node changes anything, if it has none yet and may
// get one. It asks once, for a while; Run keeps trying. A fault is only what a hub refuses for
// good: who gave the wrong line learns it from the command that has it.
func (a *Attach) Join(ctx context.Context) error {
	a.mu.Lock()
	me, line := a.me, a.line
	a.mu.Unlock()
	if next(me, line, false) != join {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachFirst)
	defer cancel()
	a.join(ctx, line, false, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spent == nil {
		return nil
	}
	return a.last
}

// Run joins, renews and relays until ctx ends. What hubs refuse is in the status, and
// ends nothing: direct paths need no hub.
func (a *Attach) Run(ctx context.Context, to relay.Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("relay", func(ctx context.Context) error { return a.client.Run(ctx, to) })
	g.Go("certificate", a.certify)
	return g.Wait()
}

// certify does what is to be done about the certificate, one thing after the other. A
// wait ends when something changes that may make it another thing; what is under way
// does not, or who asks for it often enough would never see it done.
func (a *Attach) certify(ctx context.Context) error {
	var tried *trust.Join
	try := 0
	for ctx.Err() == nil {
		turn, end := context.WithCancel(ctx)
		a.mu.Lock()
		a.turn = end
		me, line, barred := a.me, a.line, a.barred
		if line == a.spent {
			line = nil
		}
		a.mu.Unlock()
		switch next(me, line, barred != nil) {
		case join:
			if try++; line != tried {
				tried, try = line, 0
			}
			run.Wait(turn, a.join(ctx, line, barred != nil, try))
		case renew:
			if k := a.keeper(); k.Due(turn) {
				run.Wait(turn, k.Renew(ctx))
			}
		case later:
			if run.Wait(turn, limit.AttachRefused) {
				a.bar(nil)
			}
		case idle:
			<-turn.Done()
		}
		end()
	}
	return nil
}

// join tries once, and says how long to wait after it. A line that is refused for good it
// notes instead.
func (a *Attach) join(ctx context.Context, line *trust.Join, anew bool, try int) (again time.Duration) {
	joined, err := a.enrol(ctx, *line, anew)
	if err != nil && ctx.Err() != nil {
		return 0
	}
	f := fault.From(err)
	a.metrics.Joins.WithLabelValues(outcome(f)).Inc()
	if f == nil {
		a.take(joined)
		a.log.Info("joined", "identity", joined.Who.URI(), "certificateEnd", joined.Cert.NotAfter)
		return 0
	}
	if spent(f.Code) {
		a.failed(f)
		a.mu.Lock()
		a.spent = line
		a.mu.Unlock()
		a.log.Error("the join line is refused for good; only another one is tried", telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
		return 0
	}
	again = pause(f, try, rand.Float64())
	if was := a.failed(f); was == nil || was.Code != f.Code {
		a.log.Warn("cannot join", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain(),
			"retryIn", again.Round(time.Millisecond))
	}
	return again
}

// enrol asks for a certificate, and stores it. The key is stored first, so that a join
// whose answer was lost can be repeated; anew it is another one than that of a
// certificate that nobody wants.
func (a *Attach) enrol(ctx context.Context, line trust.Join, anew bool) (*enrol.Identity, error) {
	me := a.identity()
	if me == nil || anew {
		var err error
		if me, err = enrol.Begin(a.cfg.StateDir, line.Hubs); err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.me, a.barred = me, nil
		a.mu.Unlock()
		if anew {
			a.client.Use(nil)
			a.changed()
		}
	}
	a.mu.Lock()
	if len(a.hubs) > 0 {
		line.Hubs = a.hubs
	}
	a.mu.Unlock()
	joined, err := a.enrolment().Join(ctx, line, me.Key)
	if err != nil {
		return nil, err
	}
	return joined, joined.Save(a.cfg.StateDir)
}

// take puts a new certificate into use.
func (a *Attach) take(me *enrol.Identity) {
	a.mu.Lock()
	fresh := !a.me.Joined()
	a.me, a.last, a.barred = me, nil, nil
	a.mu.Unlock()
	if !fresh {
		a.client.Renew()
		return
	}
	a.client.Use(a.Addresses())
	a.changed()
}

// keeper renews the certificate in time.
func (a *Attach) keeper() enrol.Keeper {
	return enrol.Keeper{
		Client: a.enrolment(), Dir: a.cfg.StateDir, Current: a.identity,
		Hubs: func(*enrol.Identity) []string { return a.Addresses() },
		Tried: func(next *enrol.Identity, err error) {
			f := fault.From(err)
			a.metrics.Renewals.WithLabelValues(outcome(f)).Inc()
			if f == nil {
				a.take(next)
				return
			}
			a.failed(f)
			if final(f.Code) {
				a.bar(f)
				a.again()
			}
		},
	}
}

// failed notes why there is no certificate, or no newer one, and gives what it was before.
func (a *Attach) failed(f *fault.Fault) (was *fault.Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, a.last = a.last, f
	return was
}

func (a *Attach) bar(f *fault.Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.barred = f
}
