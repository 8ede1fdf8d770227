// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// back is what goes the way back, to ports of the hub.
type back struct {
	live atomic.Int64 // connections at all ports

	mu   sync.Mutex
	said map[string]fault.Code // why a port did not work last; empty: it did
}

// openPorts listens at all ports, or at none.
func (a *Agent) openPorts(ctx context.Context) (out []net.Listener, err error) {
	for _, p := range a.cfg.Ports {
		ln, err := listener.Listen(ctx, "ports[].listen of "+p.Name, p.Listen.String())
		if err != nil {
			return nil, errors.Join(err, closeAll(out))
		}
		out = append(out, ln)
		a.log.Info("listening for a port of the hub", "port", p.Name, "listen", ln.Addr().String())
	}
	return out, nil
}

func closeAll(all []net.Listener) (err error) {
	for _, ln := range all {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// servePort takes connections until accepting ends, and carries them until ctx ends.
func (a *Agent) servePort(ctx, accepting context.Context, p Port, ln net.Listener) error {
	defer run.OnDone(ctx, func() { ln.Close() })()
	defer run.OnDone(accepting, func() { ln.Close() })()
	g := run.NewGroup(ctx)
	most := socket.Descriptors()
	first := most - socket.Reserve(most)
	err := listener.Accept(accepting, ln, func(conn net.Conn) {
		refuse := func(code fault.Code) {
			a.metrics.Ports.WithLabelValues(p.Name, telemetry.Outcome(code)).Inc()
			a.log.Debug("connection to a port refused", "port", p.Name, telemetry.AttrPeer, conn.RemoteAddr().String(),
				telemetry.AttrCode, code)
		}
		if !p.admits(addrPort(conn.RemoteAddr()).Addr()) {
			refuse(fault.CodePolicyDenied)
			conn.Close()
			return
		}
		if a.back.live.Add(1) > portConnections || socket.Descriptor(conn) >= first {
			a.back.live.Add(-1)
			refuse(fault.CodeLimit)
			splice.Net(conn).Reset(0)
			return
		}
		g.Do(func(ctx context.Context) {
			defer a.back.live.Add(-1)
			a.carryBack(ctx, p, conn)
		})
	})
	return errors.Join(err, g.Wait())
}

// carryBack copies between a caller and a port of the hub. The kernel has told the caller that it is connected: what
// fails from then on is a reset.
func (a *Agent) carryBack(ctx context.Context, p Port, conn net.Conn) {
	caller := splice.Net(conn)
	stream, err := a.openBack(ctx, p.Name, conn.RemoteAddr().String())
	f := fault.From(err)
	a.metrics.Ports.WithLabelValues(p.Name, outcome(f)).Inc()
	a.tellPort(p, f)
	if err != nil {
		caller.Reset(0)
		return
	}
	a.splicer.Both(ctx, caller, splice.Net(stream), splice.Options{Idle: a.settings.Load().IdleTimeout})
}

// openBack asks one hub after the other for a stream to a port. Each has an equal part of the time that is left.
func (a *Agent) openBack(ctx context.Context, port, source string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Dial)
	defer cancel()
	me := a.identity()
	said := reqmeta.Metadata{Pairs: []reqmeta.Pair{{Key: "source", Value: source}}}
	var last error
	hubs := hubsInOrder(a.sessions.hub(), a.hubAddresses(me))
	for i, hub := range hubs {
		end, _ := ctx.Deadline()
		part, done := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(hubs)-i))
		conn, err := a.hubClient(hub, me).ConnectWith(part, "tcp", wire.PortAddress(port), said)
		silent := run.Ended(part) != nil
		done()
		if err == nil {
			return conn, nil
		}
		if last = err; fault.Has(err, fault.CodeHubAway) { // whose text is for an operator
			last = fault.Newf(fault.CodeHubAway, "the hub %s cannot be reached", hub).Whyf("%s", fault.From(err).Why).
				Hint("check the address, the firewalls (TCP), and that the hub runs")
		}
		if run.Ended(ctx) != nil || !silent && !elsewhere(fault.From(err).Code) {
			break
		}
	}
	return nil, last
}

// hubsInOrder are the hubs as they are asked: the one with a session first.
func hubsInOrder(session string, all []string) []string {
	if session == "" {
		return all
	}
	out := []string{session}
	return append(out, slices.DeleteFunc(slices.Clone(all), func(h string) bool { return h == session })...)
}

// elsewhere reports whether another hub may open what this one did not.
func elsewhere(code fault.Code) bool {
	return code == fault.CodeHubAway || code == fault.CodeDraining || code == fault.CodeClusterUnknown
}

// hubClient asks a hub with our certificate, and without the descriptors of the reserve.
func (a *Agent) hubClient(hub string, me *enrol.Identity) *admin.Client {
	cfg := trust.HubClientConfig(me.Check(a.now), me.TLS(), "http/1.1")
	cfg.ServerName, cfg.ClientSessionCache = trust.ServerName(hub), me.Tickets
	most := socket.Descriptors()
	first := most - socket.Reserve(most)
	dialer := &net.Dialer{Timeout: limit.Handshake, KeepAliveConfig: socket.KeepAlive(),
		Control: func(_, _ string, c syscall.RawConn) error {
			full := false
			err := c.Control(func(fd uintptr) { full = int(fd) >= first })
			if err == nil && full {
				err = fault.New(fault.CodeLimit, "the agent has no descriptor left for ports").
					Hint("raise the agent's limit of open files")
			}
			return err
		}}
	return admin.OverTLSBy(dialer, hub, cfg, splice.Below)
}

// tellPort logs that a port does not work, once for each reason, and that it works again.
func (a *Agent) tellPort(p Port, f *fault.Fault) {
	var code fault.Code
	if f != nil {
		code = f.Code
	}
	if code == fault.CodeDialCanceled { // that says nothing of the port
		return
	}
	a.back.mu.Lock()
	before := a.back.said[p.Name]
	if a.back.said == nil {
		a.back.said = map[string]fault.Code{}
	}
	a.back.said[p.Name] = code
	a.back.mu.Unlock()
	switch {
	case before == code:
	case f == nil:
		a.log.Info("a port of the hub works again", "port", p.Name)
	default:
		a.log.Warn("a port of the hub does not work", "port", p.Name, telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
	}
}

// bound is where a listener listens.
func bound(ln net.Listener) netip.AddrPort {
	at := addrPort(ln.Addr())
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
