// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// portLink is what a stream to a port has in place of a session.
type portLink struct {
	cluster *cluster
	port    port
	at      netip.AddrPort // that was dialled
}

func (l *portLink) of() *cluster { return l.cluster }

// counts are of ports: what is written to one comes out of the cluster.
func (l *portLink) counts() (written, read *splice.Counter) {
	return &l.cluster.ports.out, &l.cluster.ports.in
}

// pays is for a caller that is in the cluster.
func (l *portLink) pays(s *hubStream) *quota.Account { return s.places.Start(&s.out, &s.in, nil) }

func (l *portLink) start(*hubStream) record.Start { return record.Start{At: l.at} }

func (l *portLink) left() { l.cluster.ports.streams.Add(-1) }

// dialPort is dial for an agent that asks for a port of the hub: it comes the way back. What is dialled is the target
// in the configuration, and never what was asked for.
func (dl *dialer) dialPort(ctx context.Context, name id.Cluster, d wire.Dial,
	at *record.Progress) (*hubStream, error) {
	c, err := dl.clusters.get(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(dl.settings.Load().dialTimeout, portDial))
	defer cancel()
	c.ports.streams.Add(1) // before it looks: a drain waits for what it has let in
	stream, err := dl.admitPort(ctx, c, d, at)
	if err != nil {
		c.ports.streams.Add(-1)
		return nil, err
	}
	dl.metrics.Streams.Inc()
	if r, ok := dl.access.Enter(name, stream); !ok {
		stream.Reset(splice.ResetCode(fault.CodePolicyDenied))
		return nil, authz.Denied(r, stream.request)
	}
	if f := dl.gone(stream); f != nil { // while it was dialled; from now on a change finds it
		stream.Cut(f)
		return nil, f
	}
	return stream, nil
}

// admitPort takes places for a stream, and opens it.
func (dl *dialer) admitPort(ctx context.Context, c *cluster, d wire.Dial, at *record.Progress) (*hubStream, error) {
	if dl.draining.Load() {
		return nil, shuttingDown()
	}
	held, err := c.accounts.Admit(ctx, d.Caller) // before anything else: what is refused costs, too
	if err != nil {
		return nil, err
	}
	stream, err := dl.openPort(ctx, c, d, at)
	if err != nil {
		held.Cancel()
		return nil, err
	}
	stream.begun = time.Now()
	stream.hold(held)
	return stream, nil
}

// openPort decides, and dials the target.
func (dl *dialer) openPort(ctx context.Context, c *cluster, d wire.Dial, at *record.Progress) (*hubStream, error) {
	if dl.draining.Load() { // while it waited for its turn
		return nil, shuttingDown()
	}
	asked, ok := wire.ParsePort(d.Address)
	if !ok {
		return nil, fault.New(fault.CodeUnauthorized, "an agent may dial nothing but ports of the hub").
			Hint("ask for %s", wire.PortAddress("NAME"))
	}
	p, f := dl.settings.Load().ports.find(c.name.String(), asked)
	if f != nil {
		return nil, f
	}
	q := policy.Request{Cluster: c.name.String(), Caller: d.Caller, Flow: policy.FlowBack, Source: d.Source, Name: asked}
	if err := dl.decideFirst(ctx, q, at); err != nil {
		return nil, err
	}
	conn, to, err := dialTarget(ctx, p, dl.own.FromHere())
	at.LeadsTo(q, to)
	if err != nil {
		return nil, err
	}
	return &hubStream{Stream: dl.splicer.Side(conn), parts: dl.parts, request: q, by: &portLink{c, p, to}}, nil
}

// dialTarget connects to the target of a port: to an address that was looked at, and outside of the reserve of
// descriptors. to is the address, or the one that was tried or refused last, if it is known.
func dialTarget(ctx context.Context, p port, own []policy.Listener) (conn net.Conn, to netip.AddrPort, err error) {
	d := keepingReserve()
	reserve := d.Control
	d.Control = func(network, address string, c syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := forbidden(at, p.target, own); why != "" {
			return fault.Newf(fault.CodePolicyDenied, "port %s leads to %s", p.name, why).
				Whyf("such an address is not dialled for agents").Hint("correct its target in the hub's configuration")
		}
		return reserve(network, address, c)
	}
	if conn, err = d.DialContext(ctx, "tcp", p.target.String()); err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Addr != nil {
			to, _ = netip.ParseAddrPort(op.Addr.String())
		}
		return nil, to, portFault(ctx, p.name, err)
	}
	to, _ = netip.ParseAddrPort(conn.RemoteAddr().String())
	return conn, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), nil
}

// keepingReserve makes connections that take nothing from the reserve of descriptors.
func keepingReserve() *net.Dialer {
	most := socket.Descriptors()
	first := most - socket.Reserve(most)
	return &net.Dialer{KeepAliveConfig: socket.KeepAlive(), Control: func(_, _ string, c syscall.RawConn) error {
		full := false
		err := c.Control(func(fd uintptr) { full = int(fd) >= first })
		if err == nil && full {
			err = syscall.EMFILE
		}
		return err
	}}
}

// portFault is the fault of a target that was not reached. It names the port only: what stands behind it is not for
// agents to know, and is in the record.
func portFault(ctx context.Context, name string, err error) error {
	var known *fault.Fault
	var dns *net.DNSError
	end := run.Ended(ctx)
	const look = "look at its target in the hub's configuration, and at the hub's record of the dial"
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault.New(fault.CodeLimit, "the hub has no descriptor left for targets of ports").
			Hint("raise the hub's limit of open files")
	case errors.Is(end, context.Canceled):
		return fault.New(fault.CodeDialCanceled, "the agent gave up")
	case end != nil, errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded):
		return fault.Newf(fault.CodeDialTimeout, "the target of port %s did not answer", name).Hint(look)
	case errors.As(err, &dns):
		return fault.Newf(fault.CodeDialDNS, "the target of port %s did not resolve at the hub", name).Hint(look)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.Newf(fault.CodeDialRefused, "the target of port %s refused the connection", name).Hint(look)
	}
	return fault.Newf(fault.CodeDialUnreachable, "the target of port %s cannot be reached from the hub", name).Hint(look)
}

// gone says why a stream may not live any more by the configuration as it is now, nil if it may.
func (dl *dialer) gone(s *hubStream) *fault.Fault {
	of := s.by.of()
	if c, err := dl.clusters.get(of.name); err != nil || c != of {
		return fault.Newf(fault.CodeClusterUnknown, "cluster %s was removed", of.name)
	}
	l, ok := s.by.(*portLink)
	if !ok {
		return nil
	}
	now, f := dl.settings.Load().ports.find(s.request.Cluster, s.request.Name)
	if f == nil && now.target != l.port.target {
		f = fault.Newf(fault.CodePolicyDenied, "port %s leads elsewhere now", s.request.Name).Hint("connect again")
	}
	return f
}

// endGone ends the streams of a cluster that may not live any more, and counts them.
func (dl *dialer) endGone(c *cluster) (n int) {
	for _, live := range dl.access.Streams(c.name) {
		s := live.(*hubStream)
		if _, ends := s.by.(*session); ends { // with its session
			continue
		}
		if f := dl.gone(s); f != nil {
			s.Cut(f)
			n++
		}
	}
	return n
}

// judgePorts asks all live streams to ports about a changed configuration.
func (dl *dialer) judgePorts() {
	ended := 0
	for _, c := range dl.clusters.all() {
		ended += dl.endGone(c)
	}
	if ended > 0 {
		dl.log.Info("streams ended whose port has changed", "streams", ended)
	}
}
