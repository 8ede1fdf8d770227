// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ownListeners lists what a dial must not reach by a wide rule: the agent's health
// port and its ports, and its hubs where the agent itself reaches them. Whatever the hub says of
// its addresses, these lead to it from here.
func (a *Agent) ownListeners() []policy.Listener {
	a.mu.Lock()
	bound := a.bound
	a.mu.Unlock()
	var hubs []netip.AddrPort
	for _, s := range a.sessions.list() {
		if at := addrPort(s.link.RemoteAddr()); at.IsValid() {
			hubs = append(hubs, at)
		}
	}
	slices.SortFunc(hubs, netip.AddrPort.Compare) // sessions come in any order
	return a.own.list(bound, hubs, a.machine.list())
}

// addrPort is a connection's address; the one of TCP is not written and read for that.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	at, _ := netip.ParseAddrPort(a.String())
	return at
}

// ownList remembers the last answer: a dial needs it, and it changes with a session
// or with the machine's addresses.
type ownList struct {
	mu      sync.Mutex
	bound   []netip.AddrPort
	hubs    []netip.AddrPort
	machine []netip.Addr
	known   []policy.Listener
	made    int // how often it was made, for tests
}

func (o *ownList) list(bound, hubs []netip.AddrPort, machine []netip.Addr) []policy.Listener {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == 0 || !slices.Equal(o.bound, bound) || !slices.Equal(o.hubs, hubs) || !slices.Equal(o.machine, machine) {
		o.bound, o.hubs, o.machine = bound, hubs, machine
		o.known = slices.Clip(listeners(bound, hubs, machine))
		o.made++
	}
	return o.known
}

// machine knows the addresses of the interfaces; they are asked for once in
// limit.OwnAddresses.
type machine struct {
	mu    sync.Mutex
	until time.Time
	addrs []netip.Addr
}

func (m *machine) list() []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.until) {
		return m.addrs
	}
	found, err := net.InterfaceAddrs()
	if err != nil { // what was known is better than nothing
		return m.addrs
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, x := range found {
		if p, err := netip.ParsePrefix(x.String()); err == nil {
			addrs = append(addrs, p.Addr().Unmap().WithZone(""))
		}
	}
	m.addrs, m.until = addrs, time.Now().Add(limit.OwnAddresses)
	return addrs
}

// listeners spreads what listens on all addresses over those of the machine. A hub
// on this machine may do so too: it is taken to.
func listeners(bound, hubs []netip.AddrPort, machine []netip.Addr) (out []policy.Listener) {
	seen := map[policy.Listener]struct{}{} // a machine may have thousands of addresses
	add := func(at netip.AddrPort, of string) {
		l := policy.Listener{At: at, Of: of}
		if _, known := seen[l]; !known {
			seen[l] = struct{}{}
			out = append(out, l)
		}
	}
	spread := func(port uint16, of string) {
		add(netip.AddrPortFrom(netip.IPv4Unspecified(), port), of) // all of loopback
		for _, a := range machine {
			add(netip.AddrPortFrom(a, port), of)
		}
	}
	for _, at := range bound {
		add(at, policy.ListenerOfAgent)
		if at.Addr().IsUnspecified() {
			spread(at.Port(), policy.ListenerOfAgent)
		}
	}
	for _, at := range hubs {
		addr := at.Addr().Unmap().WithZone("")
		add(netip.AddrPortFrom(addr, at.Port()), policy.ListenerOfHub)
		if addr.IsLoopback() || slices.Contains(machine, addr) {
			spread(at.Port(), policy.ListenerOfHub)
		}
	}
	return out
}
