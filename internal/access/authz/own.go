// SPDX-License-Identifier: Apache-2.0

package authz

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

// OwnListeners knows the hub's listeners by every address under which they may be reached:
// an agent in the hub's network, or on its machine, must not be a way back in
// (CVE-2022-3294). Only a rule with exactly that address and port allows one.
type OwnListeners struct {
	interfaces func() ([]netip.Addr, error) // of the machine
	now        func() time.Time

	mu         sync.Mutex // held while the interfaces are looked at
	bound      []netip.AddrPort
	advertised []string // host:port; a balancer's address leads back to the hub
	known      atomic.Pointer[listening]
}

// listening is what was found at one time.
type listening struct {
	until time.Time
	// far is without loopback addresses: those of another machine are not ours.
	far, near []policy.Listener
	machine   []netip.Addr
}

func NewOwnListeners() *OwnListeners { return &OwnListeners{interfaces: interfaceAddrs, now: time.Now} }

func interfaceAddrs() (out []netip.Addr, err error) {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, err
}

// Bind sets what is listened on, and under which addresses it is advertised.
func (o *OwnListeners) Bind(advertised []string, listeners ...net.Listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.advertised = advertised
	o.bound = nil
	for _, l := range listeners {
		if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			o.bound = append(o.bound, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	o.known.Store(nil)
}

// list is cheap: the machine's interfaces are listed once in limit.OwnAddresses.
func (o *OwnListeners) list() *listening {
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
	l := listenersOf(o.bound, machine, o.advertised)
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

// seenBy is what a dialler at this address could reach. On the hub's own machine loopback
// leads to the hub, too.
func (l *listening) seenBy(peer netip.Addr) []policy.Listener {
	if peer = peer.Unmap().WithZone(""); peer.IsLoopback() || slices.Contains(l.machine, peer) {
		return l.near
	}
	return l.far
}

// From is what a dialler at this transport address could reach.
func (o *OwnListeners) From(peer string) []policy.Listener {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return o.list().near
	}
	return o.list().seenBy(at.Addr())
}

// FromHere is what the hub itself could reach.
func (o *OwnListeners) FromHere() []policy.Listener { return o.list().near }

// FromAfar is what a dialler on another machine could reach.
func (o *OwnListeners) FromAfar() []policy.Listener { return o.list().far }
