// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// Run serves until ctx ends; then it takes no new connections and gives the live tunnels the
// drain timeout, which the end of hard cuts short.
func (e *Edge) Run(ctx, hard context.Context) error {
	if err := e.policies.Load(); err != nil { // who is protected is not known: nobody is served
		return err
	}
	if err := e.files.Load(); err != nil { // what is good is in force
		e.files.LogRefused(err, "")
	}
	e.watchCoverage()
	e.upstreams.look(e.log)
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	g := run.NewGroup(inner)
	for _, f := range e.feeds {
		g.Go(f.Source, f.run)
	}
	e.hear(ctx)
	open, err := e.listen(ctx)
	if err != nil {
		cancel()
		return errors.Join(err, g.Wait())
	}
	for _, ln := range open.ports {
		e.portsAt = append(e.portsAt, ln.Addr().String())
	}
	e.healthAt = open.health.Addr().String()
	front := run.NewGroup(inner) // of probes and the admin socket: another edge may take them over
	front.Go("health", func(ctx context.Context) error { return e.health().Serve(ctx, open.health) })
	front.Go("admin socket", func(ctx context.Context) error {
		shed := func() { e.log.Debug("a silent connection of the admin socket was closed for a newer one") }
		return e.adminServer().Serve(ctx, listener.Few(open.admin, socketConns, shed))
	})
	g.Go("policy", e.policies.Watch)
	g.Go("tenants", e.files.Watch)
	g.Do(func(ctx context.Context) { run.Every(ctx, limit.AuditTold, e.sum) })
	g.Do(func(ctx context.Context) { run.Every(ctx, coverageEvery, e.watchCoverage) })
	doors, tunnels := run.NewGroup(ctx), run.NewGroup(inner)
	g.Go("handover", func(ctx context.Context) error {
		return e.handOver(ctx, open, func() error {
			doors.Stop()
			front.Stop()
			return errors.Join(doors.Wait(), front.Wait())
		})
	})
	for i, ln := range open.ports {
		doors.Go(e.cfg.Listeners[i].Name, func(ctx context.Context) error {
			return e.serve(ctx, e.cfg.Listeners[i], ln, tunnels)
		})
	}
	e.listening <- open.ports
	var at []string
	for _, ln := range open.ports {
		at = append(at, ln.Addr().String())
	}
	e.log.Info("edge is ready", "listen", at, "tenants", e.tenants.Len())
	err = doors.Wait()
	e.draining.Store(true)
	bound, stop := context.WithTimeout(hard, e.cfg.Drain)
	defer stop()
	if n := e.counts.total(); n > 0 {
		e.log.Info("draining", "tunnels", n, "bound", e.cfg.Drain)
	}
	if !tunnels.WaitContext(bound) {
		e.log.Warn("the drain is over: live tunnels are cut", "tunnels", e.counts.total())
	}
	tunnels.Stop()
	err = errors.Join(err, tunnels.Wait())
	cancel()
	err = errors.Join(err, front.Wait(), g.Wait())
	e.sum()
	return err
}

// hear waits until all sources of tenants have answered, if another edge serves meanwhile: before it hands over, this
// one should know what that one does.
func (e *Edge) hear(ctx context.Context) {
	if e.from == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, feedsHeard)
	defer cancel()
	for _, f := range e.feeds {
		select {
		case <-f.Heard():
		case <-ctx.Done():
			e.log.Warn("a source of tenants says nothing; the ports are taken over without its tenants", "source", f.Source)
		}
	}
}

// opened is all on which an edge listens.
type opened struct {
	ports                   []net.Listener // in the order of the configuration
	health, admin, handover net.Listener
}

func (o opened) close() error {
	var err error
	for _, ln := range append(o.ports, o.health, o.admin, o.handover) {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
	}
	return err
}

// listen opens every port, or none.
func (e *Edge) listen(ctx context.Context) (o opened, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	for _, l := range e.cfg.Listeners {
		ln, err := e.port(ctx, l.Name, "listeners["+l.Name+"].listen", l.Address)
		if err != nil {
			return o, err
		}
		o.ports = append(o.ports, ln)
	}
	if o.health, err = e.port(ctx, healthPort, "healthListen", e.cfg.HealthListen); err != nil {
		return o, err
	}
	e.from.finish()
	socket, err := listener.ListenUnix("runDir", AdminSocket(e.cfg.RunDir))
	if err != nil {
		return o, err
	}
	o.admin = socket
	o.handover, err = socket.Beside(filepath.Base(handoverSocket(e.cfg.RunDir)))
	return o, err
}

// port opens a port, or takes it from the edge that hands over its own.
func (e *Edge) port(ctx context.Context, name, setting, address string) (net.Listener, error) {
	if ln := e.from.take(name, address); ln != nil {
		return ln, nil
	}
	ln, err := listener.Listen(ctx, setting, address)
	if f := fault.From(err); f != nil && f.Code == fault.CodeAddressBusy {
		err = f.Hint("%s; to replace an edge that runs here with this one, use --take-over", f.Next)
	}
	return ln, err
}

func (e *Edge) health() listener.Health {
	return listener.Health{Metrics: e.reg, Log: e.log, Ready: func() *fault.Fault {
		if e.draining.Load() {
			return fault.New(fault.CodeDraining, "the edge is shutting down")
		}
		return nil
	}}
}

// sum writes the sums of refusals without a record.
func (e *Edge) sum() {
	for _, rec := range e.refusals.Turn(e.now()) {
		e.audit.Write(rec)
	}
}

// serve accepts on one port until ctx ends.
func (e *Edge) serve(ctx context.Context, l Listener, ln net.Listener, tunnels *run.Group) error {
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	silent := listener.NewUnauthenticated(mostSilent(), func() {}) // a visit that is shed counts itself
	return listener.Accept(ctx, ln, func(raw net.Conn) {
		conn, ok := raw.(*net.TCPConn)
		if !ok {
			raw.Close()
			return
		}
		v := &visit{of: e, at: l, conn: conn, begun: e.now()}
		v.client, v.local = listener.AddrPort(conn.RemoteAddr()), listener.AddrPort(conn.LocalAddr())
		if !l.Trusted.Has(v.client.Addr()) { // a load balancer brings the clients of all, who are counted by what it says
			if err := v.count(); err != nil {
				v.end(v.record(), err)
				conn.Close()
				return
			}
		}
		pending := silent.Add(ctx, conn) // until the client has said what it wants
		tunnels.Do(func(ctx context.Context) {
			defer pending.Gone()
			defer run.OnDone(ctx, func() { conn.Close() })()
			if up := v.pass(ctx, pending.Authenticated); up != nil {
				ctx, done := tunnels.Begin()
				v.carry(ctx, up, done)
			}
		})
	})
}

// mostSilent bounds the connections of a port whose client has not said yet what it wants.
func mostSilent() int { return min(mostPending, socket.Descriptors()/4) }

// pass takes a visit through until it is let in, and gives the connection to its upstream; nil: it was refused.
func (v *visit) pass(ctx context.Context, arrived func()) net.Conn {
	err := v.arrive()
	if err == nil {
		err = v.judge()
	}
	if err == nil { // whoever is refused stays among the silent, and takes no place of a cluster
		arrived()
		s := v.of.settings.Load()
		err = v.of.counts.enter(v.route.Tenant.Name, s.PerCluster, s.Total)
		v.entered = err == nil
	}
	var up net.Conn
	if err == nil {
		up, err = v.enter(ctx)
	}
	if err == nil {
		return up
	}
	v.unenter()
	defer v.leave()
	var to redirect
	if !errors.As(err, &to) {
		v.end(v.record(), err)
	}
	v.answer(err)
	return nil
}

// leave gives back what a visit had.
func (v *visit) leave() {
	v.unenter()
	v.uncount()
	v.conn.Close()
}

// unenter gives back the place of its cluster.
func (v *visit) unenter() {
	if v.entered {
		v.entered = false
		v.of.counts.leave(v.route.Tenant.Name)
	}
}
