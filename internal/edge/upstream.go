// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// failing is what is known of an upstream that did not answer. One that answers is not remembered.
type failing struct {
	times int
	until time.Time // ejected: tried after all others
}

// after is what one more failure makes of it.
func (f failing) after(now time.Time) failing {
	f.times++
	pause := ejectMost
	if f.times < 10 {
		pause = min(ejectMost, ejectFirst<<(f.times-1))
	}
	return failing{f.times, now.Add(pause)}
}

// inTurn orders upstreams: those in order first, each beginning once in turn, then those that are
// ejected, the one that has been so for longest first. None is left out: if all fail, the next
// attempt may be the one that does not.
func inTurn[T any](all []T, turn uint64, ejected func(T) time.Time) []T {
	out := make([]T, 0, len(all))
	start := int(turn % uint64(max(len(all), 1)))
	for i := range all {
		if u := all[(start+i)%len(all)]; ejected(u).IsZero() {
			out = append(out, u)
		}
	}
	healthy := len(out)
	for _, u := range all {
		if !ejected(u).IsZero() {
			out = append(out, u)
		}
	}
	slices.SortStableFunc(out[healthy:], func(a, b T) int { return ejected(a).Compare(ejected(b)) })
	return out
}

// upstreams dials, and remembers what fails.
type upstreams struct {
	dialer net.Dialer
	hubs   map[string]*hubDoor
	now    func() time.Time

	mu      sync.Mutex
	turn    uint64
	failing map[tenant.Upstream]failing
}

func newUpstreams(now func() time.Time, hubs []Hub) *upstreams {
	u := &upstreams{now: now, failing: map[tenant.Upstream]failing{}, hubs: map[string]*hubDoor{}}
	for _, h := range hubs {
		u.hubs[h.Name] = &hubDoor{Hub: h}
	}
	first := socket.Descriptors() - socket.Reserve(socket.Descriptors())
	u.dialer = net.Dialer{KeepAliveConfig: socket.KeepAlive(), Control: func(_, _ string, c syscall.RawConn) error {
		full := false
		err := c.Control(func(fd uintptr) { full = int(fd) >= first })
		if err == nil && full { // the rest is for probes and files
			err = syscall.EMFILE
		}
		return err
	}}
	return u
}

// order is inTurn of now.
func (u *upstreams) order(all []tenant.Upstream) []tenant.Upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	u.turn++
	return inTurn(all, u.turn, func(a tenant.Upstream) time.Time {
		if f := u.failing[a]; f.until.After(now) {
			return f.until
		}
		return time.Time{}
	})
}

// note remembers how a dial went.
func (u *upstreams) note(address tenant.Upstream, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ok {
		delete(u.failing, address)
		return
	}
	now := u.now()
	if _, known := u.failing[address]; !known && len(u.failing) >= mostEjected {
		for a, f := range u.failing {
			if !f.until.After(now) {
				delete(u.failing, a)
			}
		}
		if len(u.failing) >= mostEjected {
			return
		}
	}
	u.failing[address] = u.failing[address].after(now)
}

// Failing lists the upstreams that are ejected now.
func (u *upstreams) Failing() (out []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for a, f := range u.failing {
		if f.until.After(u.now()) {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return out
}

// dial connects to the first that answers. Each has an equal part of the time that is left.
func (u *upstreams) dial(ctx context.Context, all []tenant.Upstream) (net.Conn, string, error) {
	var last error
	order := u.order(all)
	for i, address := range order {
		part, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok && i < len(order)-1 {
			part, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(order)-i))
		}
		conn, err := u.open(part, address)
		cancel()
		if err == nil {
			u.note(address, true)
			return conn, address.String(), nil
		}
		if last = err; errors.Is(run.Ended(ctx), context.Canceled) {
			return nil, address.String(), fault.New(fault.CodeDialCanceled, "the client gave up")
		}
		if !errors.Is(err, syscall.EMFILE) {
			u.note(address, false)
		}
	}
	return nil, order[len(order)-1].String(), dialFault(last)
}

func (u *upstreams) open(ctx context.Context, to tenant.Upstream) (net.Conn, error) {
	if to.Hub == "" {
		return u.dialer.DialContext(ctx, "tcp", to.Address)
	}
	hub := u.hubs[to.Hub]
	if hub == nil {
		return nil, fromHub{fault.Newf(fault.CodeConfig, "the edge knows no hub %q", to.Hub)}
	}
	return hub.stream(ctx, to)
}

// dialFault says why no upstream answered.
func dialFault(err error) error {
	var dns *net.DNSError
	var timeout net.Error
	var hub fromHub
	switch {
	case errors.As(err, &hub):
		return hub
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault.New(fault.CodeLimit, "the edge has no descriptors left").
			Hint("raise the limit of open files, or add an edge")
	case errors.As(err, &dns):
		return fault.New(fault.CodeDialDNS, "the name of the upstream did not resolve").Because(err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.New(fault.CodeDialRefused, "the upstream refused the connection").Because(err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.CodeDialTimeout, "the upstream did not answer in time").Because(err)
	}
	return fault.New(fault.CodeDialUnreachable, "the upstream cannot be reached").Because(err)
}
