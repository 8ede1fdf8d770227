// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/policy"
)

// ownListeners lists what a dial must not reach by a wide rule: the agent's health
// port, and its hubs where the agent itself reaches them. Whatever the hub says of
// its addresses, these lead to it from here.
func (a *Agent) ownListeners() []policy.Listener {
	a.mu.Lock()
	health := a.listener
	a.mu.Unlock()
	var hubs []netip.AddrPort
	for _, s := range a.sessions.list() {
		if at, err := netip.ParseAddrPort(s.link.RemoteAddr().String()); err == nil {
			hubs = append(hubs, at)
		}
	}
	return listeners(health, hubs, a.machine.list())
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
func listeners(health netip.AddrPort, hubs []netip.AddrPort, machine []netip.Addr) (out []policy.Listener) {
	add := func(at netip.AddrPort, of string) {
		if l := (policy.Listener{At: at, Of: of}); !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	spread := func(port uint16, of string) {
		add(netip.AddrPortFrom(netip.IPv4Unspecified(), port), of) // all of loopback
		for _, a := range machine {
			add(netip.AddrPortFrom(a, port), of)
		}
	}
	if health.IsValid() {
		add(health, policy.ListenerOfAgent)
		if health.Addr().IsUnspecified() {
			spread(health.Port(), policy.ListenerOfAgent)
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
