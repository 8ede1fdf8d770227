// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// Run works until ctx ends; then it drains: it asks the hub for no new streams
// and gives the live ones the drain timeout, which the end of hard cuts short.
func (a *Agent) Run(ctx, hard context.Context) error {
	ln, err := listener.Listen(ctx, "--health-listen", a.cfg.HealthListen)
	if err != nil {
		return err
	}
	ports, err := a.openPorts(ctx)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	a.mu.Lock()
	a.bound = []netip.AddrPort{bound(ln)}
	for _, p := range ports {
		a.bound = append(a.bound, bound(p))
	}
	a.mu.Unlock()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	g := run.NewGroup(inner)
	g.Go("health", func(ctx context.Context) error { return a.health().Serve(ctx, ln) })
	// Joining can take long while the hub is away; probes answer meanwhile.
	if err := a.prepareWhile(ctx, g); err != nil {
		g.Stop()
		werr := errors.Join(g.Wait(), closeAll(ports))
		if ctx.Err() != nil {
			return werr
		}
		return errors.Join(err, werr)
	}
	g.Go("certificate", a.keepCertificate)
	g.Go("session", a.keepSession)
	for i, p := range a.cfg.Ports {
		g.Go("port "+p.Name, func(inner context.Context) error { return a.servePort(inner, ctx, p, ports[i]) })
	}
	if a.audit != nil {
		g.Go("refusals", a.countRefusals)
	}
	select {
	case <-ctx.Done():
		a.drain(hard)
	case <-g.Context().Done(): // a part failed; Wait says which
	}
	cancel()
	err = g.Wait()
	a.tellSums(a.refusals.Turn(time.Now())) // of streams that ended last
	return err
}

func (a *Agent) prepareWhile(ctx context.Context, g *run.Group) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := run.OnDone(g.Context(), cancel)
	defer stop()
	return a.prepare(ctx)
}

func (a *Agent) health() listener.Health {
	return listener.Health{Metrics: a.reg, Log: a.log, Ready: func() *fault.Fault {
		if a.Ready() {
			return nil
		}
		if f := a.revoked.Load(); f != nil {
			return f
		}
		return fault.New(fault.CodeHubAway, "there is no session to a hub")
	}}
}

// drain asks the hub for no new streams. Those on their way are refused unseen, and
// the hub tries them elsewhere.
func (s *session) drain(reason string) {
	s.draining.Store(true)
	s.link.GoAway()
	s.beat.Send(&pb.Control{Frame: &pb.Control_Drain{Drain: &pb.Drain{Reason: reason}}})
}

func (s *session) goodbye(why *fault.Fault) {
	s.farewell.CompareAndSwap(nil, why)
	s.beat.Send(&pb.Control{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{Reason: wire.ToFault(why)}}})
	// The hub closes when it has read the farewell; a hub that does not is not waited for.
	timer := time.NewTimer(limit.Farewell)
	defer timer.Stop()
	select {
	case <-s.link.Done():
	case <-timer.C:
	}
	s.link.Close()
}

// unfinished is how many streams have bytes on their way: those that are served,
// and those whose target has ended and whose last bytes still wait for the hub to
// take them. The control stream is none of them.
func (s *session) unfinished() int64 {
	return max(s.streams.Load(), int64(s.link.Info().Streams)-1)
}

func (a *Agent) unfinished() (n int64) {
	for _, s := range a.sessions.list() {
		n += max(s.unfinished(), 0)
	}
	return n + a.back.live.Load()
}

// drain waits for the live streams to end, for the drain timeout, or for the end of hard.
func (a *Agent) drain(hard context.Context) {
	bound, cancel := context.WithTimeout(hard, a.cfg.Drain)
	defer cancel()
	for _, s := range a.sessions.list() {
		s.drain("the agent is shutting down")
	}
	a.log.Info("draining", "streams", a.streams.Load(), "ports", a.back.live.Load(), "bound", a.cfg.Drain)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for a.unfinished() > 0 {
		select {
		case <-bound.Done():
			a.log.Warn("the drain is over: live streams are cut", "streams", a.unfinished())
			return
		case <-tick.C:
		}
	}
	for _, s := range a.sessions.list() {
		s.goodbye(fault.New(fault.CodeDraining, "the agent was stopped"))
	}
	a.log.Info("drained")
}
