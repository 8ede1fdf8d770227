// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// own knows the hub's listeners by the addresses under which others may reach them:
// an agent in the hub's network, or on its machine, must not be a way back in
// (CVE-2022-3294). Only a rule with exactly the address and port opens one.
type own struct {
	interfaces func() ([]netip.Addr, error) // of the machine
	advertised func() []string              // host:port; a balancer's address leads back to the hub
	now        func() time.Time

	mu    sync.Mutex // of who looks at the interfaces
	bound []netip.AddrPort
	known atomic.Pointer[listening]
}

// listening is what is known at one time.
type listening struct {
	until time.Time
	// far is without loopback addresses: those of another machine are not ours.
	far, near []policy.Listener
	machine   []netip.Addr
}

func newOwn() *own { return &own{interfaces: interfaceAddrs, now: time.Now} }

func interfaceAddrs() (out []netip.Addr, err error) {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, err
}

// bind sets what is listened on.
func (o *own) bind(listeners ...net.Listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bound = nil
	for _, l := range listeners {
		if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			o.bound = append(o.bound, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	o.known.Store(nil)
}

// list is quick: the machine's interfaces are looked at once in limit.OwnAddresses.
func (o *own) list() *listening {
	if l := o.known.Load(); l != nil && o.now().Before(l.until) {
		return l
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.known.Load(); l != nil && o.now().Before(l.until) {
		return l // another one has looked
	}
	machine, err := o.interfaces()
	if l := o.known.Load(); err != nil && l != nil { // what was known is better than nothing
		machine = l.machine
	}
	var advertised []string
	if o.advertised != nil {
		advertised = o.advertised()
	}
	l := listenersOf(o.bound, machine, advertised)
	l.until = o.now().Add(limit.OwnAddresses)
	o.known.Store(l)
	return l
}

// listenersOf spreads what is bound over the machine's addresses.
func listenersOf(bound []netip.AddrPort, machine []netip.Addr, advertised []string) *listening {
	l := &listening{machine: machine}
	seen := map[netip.AddrPort]struct{}{} // a machine may have thousands of addresses
	add := func(at netip.AddrPort) {
		own := policy.Listener{At: at, Of: policy.ListenerOfHub}
		if _, known := seen[at]; known {
			return
		}
		seen[at] = struct{}{}
		l.near = append(l.near, own)
		if !at.Addr().IsLoopback() && !at.Addr().IsUnspecified() {
			l.far = append(l.far, own)
		}
	}
	for _, at := range bound {
		add(at)
		if !at.Addr().IsUnspecified() {
			continue
		}
		for _, a := range machine {
			add(netip.AddrPortFrom(a.WithZone(""), at.Port()))
		}
	}
	for _, text := range advertised {
		if at, err := netip.ParseAddrPort(text); err == nil {
			add(netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	return l
}

// seenBy is what a dialler at this address could reach: on the hub's own machine
// loopback leads to the hub, too.
func (l *listening) seenBy(peer netip.Addr) []policy.Listener {
	if peer = peer.Unmap().WithZone(""); peer.IsLoopback() || slices.Contains(l.machine, peer) {
		return l.near
	}
	return l.far
}

// seenFrom is what the agent of a session could reach.
func (h *Hub) seenFrom(s *session) []policy.Listener {
	at, err := netip.ParseAddrPort(s.peer)
	if err != nil {
		return h.own.list().near
	}
	return h.own.list().seenBy(at.Addr())
}

// rule judges a request that goes through one agent. Where no policy is configured
// the agent's own list is the policy, for the hub's own listeners as well.
func (h *Hub) rule(s *session, q policy.Request) ruling {
	r := h.access.decide(q)
	if r.judged || !q.MeetsOwn() {
		return r
	}
	p, _ := policy.CompileAllow(s.ranges)
	r.Verdict = policy.Decide(q, p)
	return r
}
