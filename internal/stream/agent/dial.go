// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// resolver finds the addresses of a name on the agent's side.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// targetDialer resolves, decides and dials.
type targetDialer struct {
	resolver resolver
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	own      func() []policy.Listener // of the agent itself, and of its hubs
}

// sparing dials targets without using the reserve of descriptors. That includes attempts
// that fail later: they hold a descriptor while they wait.
func sparing(most int) *net.Dialer {
	first := most - socket.Reserve(most)
	return &net.Dialer{Control: func(_, address string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			if int(fd) >= first {
				failed = syscall.EMFILE
				return
			}
			failed = connect(int(fd), address)
		})
		return cmp.Or(err, failed)
	}}
}

// connect starts to connect before package net does. For a target on this machine, net
// then finds the connection established and needs no deadline and no hook on the context;
// for any other target it waits as usual.
func connect(fd int, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || to.Addr().Zone() != "" {
		return nil // left to package net
	}
	var at syscall.Sockaddr = &syscall.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		at = &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if err := syscall.Connect(fd, at); err != nil && err != syscall.EINPROGRESS {
		return os.NewSyscallError("connect", err)
	}
	return nil
}

// within is a context with a deadline but no timer: package net and a stream's deadlines
// check Deadline themselves. Code that waits only for Done must add a timer.
type within struct {
	context.Context
	end time.Time
}

func (w within) Deadline() (time.Time, bool) { return w.end, true }

// choice picks at least one of the addresses that the policy allows. Its errors are
// faults.
type choice func(ctx context.Context, allowed []netip.AddrPort) ([]netip.AddrPort, error)

// Dial connects to d.Address if the policy allows it. It dials only addresses that were
// checked: a name is resolved exactly once. choose may be nil. After an error, resolved is
// the first address that was tried or refused, if there was one.
func (t *targetDialer) Dial(ctx context.Context, p *policy.Policy, d wire.Dial,
	choose choice) (conn net.Conn, resolved string, err error) {
	deciding := otlp.Of(ctx).Child("decide", otlp.Internal)
	target, allowed, err := t.decide(ctx, p, d, choose)
	endSpan(deciding, fault.From(err))
	if len(allowed) > 0 {
		resolved = allowed[0].String()
	}
	if err != nil {
		return nil, resolved, err
	}
	connecting := otlp.Of(ctx).Child("connect", otlp.Client)
	switch d.Network {
	case wire.NetworkTCP:
		conn, err = t.race(ctx, allowed)
	case wire.NetworkUDP: // nobody answers, so there is nothing to race for
		conn, err = t.dial(ctx, "udp", allowed[0].String())
	default:
		conn, err = echo.Open(allowed[0].Addr())
	}
	if err != nil {
		err = dialFault(target, allowed, err)
	}
	endSpan(connecting, fault.From(err))
	if err != nil {
		return nil, resolved, err
	}
	if d.Network == wire.NetworkTCP {
		resolved = conn.RemoteAddr().String()
	}
	return conn, resolved, nil
}

// decide returns the addresses that may be dialled, at least one; or, with an error, those
// that were refused, in order.
func (t *targetDialer) decide(ctx context.Context, p *policy.Policy, d wire.Dial,
	choose choice) (target policy.Target, allowed []netip.AddrPort, err error) {
	switch d.Network {
	case wire.NetworkTCP, wire.NetworkUDP, wire.NetworkEcho:
	default:
		return target, nil, fault.Newf(fault.CodePolicyDenied, "network %q is not dialled", d.Network).
			Whyf("only tcp, udp and icmp are")
	}
	target, err = policy.ParseTarget(d.Address)
	if err != nil {
		return target, nil, fault.New(fault.CodeRequest, "the destination cannot be read").Because(err)
	}
	addrs := []netip.Addr{target.Addr}
	if target.Name != "" {
		if addrs, err = t.resolve(ctx, target.Name); err != nil {
			return target, nil, err
		}
	}
	allowed, denied := t.filter(p, target, addrs)
	if len(allowed) == 0 {
		return target, []netip.AddrPort{netip.AddrPortFrom(addrs[0].Unmap().WithZone(""), target.Port)}, refusedBy(denied)
	}
	if choose == nil {
		return target, allowed, nil
	}
	chosen, err := choose(ctx, allowed)
	if err != nil {
		return target, allowed, err
	}
	return target, chosen, nil
}

func (t *targetDialer) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	addrs, err := t.resolver.LookupNetIP(ctx, "ip", name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("there is no address")
	}
	if err != nil {
		end := run.Ended(ctx)
		if errors.Is(end, context.Canceled) {
			return nil, fault.New(fault.CodeDialCanceled, "the caller gave up")
		}
		if end != nil {
			return nil, fault.Newf(fault.CodeDialTimeout, "the name %s did not resolve in time", name).Because(err)
		}
		return nil, fault.Newf(fault.CodeDialDNS, "the name %s did not resolve on the agent's side", name).Because(err)
	}
	return addrs, nil
}

// filter keeps the addresses that the policy allows, alternating between IPv6 and IPv4 (RFC
// 8305 section 4), and returns the verdict on the first one that it refuses.
func (t *targetDialer) filter(p *policy.Policy, target policy.Target,
	addrs []netip.Addr) (allowed []netip.AddrPort, denied policy.Verdict) {
	var six, four []netip.AddrPort
	own, refused := t.own(), false
	for _, a := range addrs {
		a = a.Unmap()
		v := policy.Decide(policy.Request{Name: target.Name, Addr: a, Port: target.Port, Own: own}, p)
		switch {
		case !v.Allow && !refused:
			denied, refused = v, true
		case v.Allow && a.Is6():
			six = append(six, netip.AddrPortFrom(a, target.Port))
		case v.Allow:
			four = append(four, netip.AddrPortFrom(a, target.Port))
		}
	}
	for len(six)+len(four) > 0 && len(allowed) < limit.ResolvedAddresses {
		if len(six) > 0 {
			allowed, six = append(allowed, six[0]), six[1:]
		}
		if len(four) > 0 {
			allowed, four = append(allowed, four[0]), four[1:]
		}
	}
	return allowed, denied
}

// race starts an attempt on each address, the next one when the previous has failed or
// after the stagger of RFC 8305 section 5, and returns the first connection.
func (t *targetDialer) race(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	if len(addrs) == 1 {
		return t.dial(ctx, "tcp", addrs[0].String())
	}
	type result struct {
		conn net.Conn
		err  error
	}
	g := run.NewGroup(ctx)
	results := make(chan result, len(addrs))
	start := func(addr netip.AddrPort) {
		g.Do(func(ctx context.Context) {
			conn, err := t.dial(ctx, "tcp", addr.String())
			results <- result{conn, err}
		})
	}
	stagger := time.NewTimer(0)
	defer stagger.Stop()
	var errs []error
	next, running := 0, 0
	for {
		select {
		case <-stagger.C:
			if next < len(addrs) {
				start(addrs[next])
				next, running = next+1, running+1
				stagger.Reset(limit.HappyEyeballs)
			}
		case r := <-results:
			running--
			if r.err == nil {
				g.Stop()
				g.Wait()
				for range running { // those that connected nevertheless
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
				return r.conn, nil
			}
			errs = append(errs, r.err)
			if next == len(addrs) && running == 0 {
				g.Wait()
				return nil, errors.Join(errs...)
			}
			stagger.Reset(0)
		}
	}
}

// dialFault maps the error of a failed connect to a fault.
func dialFault(target policy.Target, addrs []netip.AddrPort, err error) error {
	at := fmt.Sprint(addrs[0])
	if len(addrs) > 1 {
		at = fmt.Sprintf("%v and %d more", addrs[0], len(addrs)-1)
	}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault.New(fault.CodeLimit, "the agent has no descriptor left for targets").
			Whyf("the last are kept for its health port and its session").
			Hint("raise the agent's limit of open files, or run another agent")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET): // accepted, and reset at once
		return fault.Newf(fault.CodeDialRefused, "%s refused the connection", target).Whyf("nothing listens at %s", at).
			Hint("check that the target runs and listens there")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(),
		errors.Is(err, syscall.ETIMEDOUT):
		return fault.Newf(fault.CodeDialTimeout, "%s did not answer", target).Whyf("no answer from %s in time", at).
			Hint("check that the target is up and that no firewall drops the agent's packets")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES),
		errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EADDRNOTAVAIL):
		return fault.Newf(fault.CodeDialUnreachable, "%s cannot be reached from the agent", target).Because(err).
			Hint("check the routes of the agent's machine")
	case errors.Is(err, context.Canceled):
		return fault.New(fault.CodeDialCanceled, "the caller gave up")
	}
	return fault.Newf(fault.CodeDialUnreachable, "%s cannot be reached from the agent", target).Because(err)
}
