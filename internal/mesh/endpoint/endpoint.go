// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

// Socket is the socket of the mesh: *tunnel.Socket.
type Socket interface {
	Send(to netip.AddrPort, local netip.Addr, packet []byte) error
	Has(a netip.Addr) bool // it has the family
	Port() uint16
}

// Resolver turns names into addresses: *net.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Machine is what the kernel reports about this machine: package kernel/machine.
type Machine interface {
	Addresses() ([]nat.Address, error)
	Defaults() ([]machine.Default, error)
	Gateway() (gateway, own netip.Addr, err error)
	Watch(ctx context.Context, tell func()) error
	Sleeps(ctx context.Context, tell func(time.Duration)) error
}

// Parts are what Endpoints is made of. Socket, Log and Metrics are needed. None of the
// functions may wait, and all may be called from several goroutines; Moved and Changed
// may call List and Addresses.
type Parts struct {
	Socket  Socket
	Servers func() []Server // STUN: of hubs, discovery services and settings, the better ones first
	Static  []netip.AddrPort
	// Without gives patterns of interfaces; none, or nil: nat.DefaultWithout. Refresh says
	// that they are others.
	Without     func() []string
	Overlay     func() []netip.Prefix // ranges of the mesh: never announced nor asked
	PortMapping bool                  // the router is asked for a port
	Needed      func() bool           // the mapping of a NAT is needed; nil: yes
	Relays      func() []netcheck.Relay
	Moved       func() // addresses or default routes changed, or the machine slept
	Changed     func() // List is another one
	Log         *slog.Logger
	Metrics     *telemetry.Endpoint

	Resolver Resolver         // nil: the system's
	Machine  Machine          // nil: the kernel
	Ways     []portmap.Mapper // nil: gateway.Mappers
	// Beside opens a socket beside the mesh's for checks; nil: netcheck.OpenBeside.
	Beside func(ctx context.Context, handle func(netip.AddrPort, []byte)) (netcheck.Beside, error)
}

// Endpoints knows where this node can be reached, as long as it runs.
type Endpoints struct {
	p       Parts
	in      chan packet
	wake    chan struct{} // its owner is to look
	router  chan struct{} // the router is to be asked
	names   chan struct{} // names are to be resolved
	checks  *run.Limiter
	keeping bool // the router's mapping is being kept

	mu       sync.Mutex
	watch    *nat.Watch
	checking *netcheck.Check
	texts    []Server
	found    map[string]found // by name
	servers  []nat.Server     // that the watch has
	overlay  []netip.Prefix
	without  []string
	needed   bool
	failing  map[netip.AddrPort]time.Time
	problems map[string]Problem

	suspect     bool // a direct path was lost since the servers were asked for that
	suspectedAt time.Time

	addrs, addrsBefore   []nat.Address // as the kernel says, and as it said when that was last compared
	routes, routesBefore []machine.Default
	slept                bool
	own                  []netip.Addr
	refused              []Refusal

	mapping   nat.PortMapping
	mappedAt  time.Time     // when the router was asked last
	round     chan struct{} // closed when the router has been asked
	rungAt    time.Time
	routerDue time.Time // when the router is to be asked again; zero: at its own time

	gathering
}

type packet struct {
	from netip.AddrPort
	data []byte
}

// New reads the addresses of the machine, so that List has them already.
func New(p Parts) (*Endpoints, error) {
	p.fill()
	e := &Endpoints{
		p: p, in: make(chan packet, limit.TunnelSTUN), wake: make(chan struct{}, 1), router: make(chan struct{}, 1),
		names:  make(chan struct{}, 1),
		checks: run.NewLimiter(1), keeping: p.PortMapping, needed: true,
		found: map[string]found{}, failing: map[netip.AddrPort]time.Time{}, problems: map[string]Problem{},
		round: make(chan struct{}),
	}
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	e.watch = nat.NewWatch(seed)
	e.overlay, e.without = p.Overlay(), p.Without()
	if err := e.look(); err != nil {
		e.problem(whatAddresses, err, time.Now())
	}
	e.addrsBefore, e.routesBefore = e.addrs, e.routes
	e.told = e.list()
	return e, nil
}

// Run finds out and keeps what it found fresh, until ctx ends. Then it takes the port
// mapping away.
func (e *Endpoints) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	g.Go("endpoints", e.turn)
	g.Go("names of STUN servers", e.resolve)
	g.Go("addresses", e.follow)
	g.Go("sleep", e.sleeps)
	if e.keeping {
		g.Go("port mapping", e.keep)
	}
	return g.Wait()
}

// Refresh says that servers, ranges of the mesh or the need have changed. Without, that is
// noticed after endpointLook.
func (e *Endpoints) Refresh() { ring(e.wake) }

// Suspect says that a direct path was lost: the world may see this node at another
// endpoint. The servers are asked at once, not again within endpointSuspect.
func (e *Endpoints) Suspect() {
	e.mu.Lock()
	e.suspect = true
	e.mu.Unlock()
	ring(e.wake)
}

// suspects reports whether the servers are to be asked now, out of turn.
func (e *Endpoints) suspects(now time.Time) bool {
	if !e.suspect || !e.suspectedAt.IsZero() && now.Sub(e.suspectedAt) < endpointSuspect {
		return false // it is kept, and looked at again soon
	}
	e.suspect, e.suspectedAt = false, now
	return true
}

// STUN takes a packet that came to the socket. It never waits: what comes too fast is
// dropped and counted.
func (e *Endpoints) STUN(from netip.AddrPort, b []byte) {
	if len(b) > limit.STUNMessage {
		e.p.Metrics.Failures.WithLabelValues("refused").Inc()
		return
	}
	select {
	case e.in <- packet{from, slices.Clone(b)}:
	default:
		e.p.Metrics.Failures.WithLabelValues("dropped").Inc()
	}
}

// List is where others may try to reach this node.
func (e *Endpoints) List() []member.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]member.Endpoint, 0, len(e.told))
	for _, k := range e.told {
		out = append(out, member.Endpoint{Addr: k.At, Kind: k.Kind.announced()})
	}
	return out
}

// Addresses are the machine's own that others may try.
func (e *Endpoints) Addresses() []netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.own)
}

// ring wakes the waiting loop; once is enough.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// turn is the owner of what is known: one packet or look after another.
func (e *Endpoints) turn(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var ev nat.Event
		select {
		case <-ctx.Done():
			return nil
		case p := <-e.in:
			if !e.awaits(p) {
				continue // whoever can send here makes no work
			}
			ev.From, ev.Packet = p.from, p.data
		case <-e.wake:
		case <-timer.C:
		}
		if ev.Packet == nil {
			e.ask()
		}
		timer.Reset(time.Until(e.step(ev, time.Now())))
	}
}

// awaits reports whether a packet can be an answer to us. A check of the network gets those that
// are none, too: what it has asked for it knows itself.
func (e *Endpoints) awaits(p packet) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.watch.Awaits(p.data):
		return true
	case e.checking != nil:
		e.checking.Handle(p.from, p.data)
	default:
		e.p.Metrics.Failures.WithLabelValues("refused").Inc()
	}
	return false
}

// ask asks for what others know, outside of the lock.
func (e *Endpoints) ask() {
	texts, overlay, without, needed := e.p.Servers(), e.p.Overlay(), e.p.Without(), e.p.Needed()
	texts = slices.Clone(texts[:min(len(texts), limit.STUNServers)])
	e.mu.Lock()
	defer e.mu.Unlock()
	e.overlay, e.without, e.needed = overlay, without, needed
	if !slices.Equal(texts, e.texts) {
		e.texts = texts
		ring(e.names)
	}
}

// step takes in an event and what has come to be known besides, and does what follows of
// it. It says when it is to be called again.
func (e *Endpoints) step(ev nat.Event, now time.Time) time.Time {
	e.mu.Lock()
	moved := e.movement()
	ev.Changed = e.suspects(now) || moved
	needed := e.needed
	ev.Needed = &needed
	if servers := arrange(e.texts, e.found, e.reaches); !slices.Equal(servers, e.servers) || e.servers == nil {
		e.servers, ev.Servers = servers, servers
	}
	checking := e.checking
	if ev.Packet != nil && checking != nil {
		checking.Handle(ev.From, ev.Packet)
	}
	d := e.watch.Next(ev, now)
	e.count(ev, d)
	e.askRouter(moved, len(d.Rebound) > 0, now)
	list := e.list()
	changed := e.take(list, now)
	wake := e.next(d.Wake, now)
	e.mu.Unlock()

	for _, p := range d.Send {
		e.p.Metrics.Requests.Inc()
		if err := e.p.Socket.Send(p.To, netip.Addr{}, p.Data); err != nil {
			e.p.Metrics.Failures.WithLabelValues("unsent").Inc()
			e.p.Log.Debug("a STUN request cannot be sent", "server", p.To, telemetry.AttrReason, err)
		}
	}
	if moved {
		ring(e.names)
		e.p.Moved()
	}
	if changed {
		e.p.Log.Info("this node can be reached at other endpoints", "endpoints", list)
		e.p.Changed()
	}
	return wake
}

// reaches reports whether a server is asked by this socket.
func (e *Endpoints) reaches(at netip.AddrPort) bool { return e.refuses(at) == "" }

// refuses returns why a server is not asked, or "".
func (e *Endpoints) refuses(at netip.AddrPort) string {
	if why := useless(at, e.overlay); why != "" {
		return why
	}
	same := func(a nat.Address) bool { return a.Prefix.Addr().Unmap() == at.Addr() }
	family := func(a nat.Address) bool {
		addr := a.Prefix.Addr().Unmap()
		return a.Up && addr.Is4() == at.Addr().Is4() && useless(netip.AddrPortFrom(addr, at.Port()), e.overlay) == ""
	}
	switch {
	case !e.p.Socket.Has(at.Addr()):
		return "this machine has no socket of its IP version"
	case slices.ContainsFunc(e.addrs, same):
		return "of this machine: it sees no NAT"
	case len(e.addrs) > 0 && !slices.ContainsFunc(e.addrs, family): // without any, the kernel failed
		return "this machine has no address of its IP version"
	}
	return ""
}

// list is where this node can be reached at present.
func (e *Endpoints) list() []Endpoint {
	choice := nat.Choice{Without: e.without, Overlay: e.overlay}
	own, refused := nat.Own(e.addrs, choice)
	s := sight{port: e.p.Socket.Port(), static: e.p.Static, own: own, mapped: e.watch.Mapped(),
		overlay: e.overlay, has: e.p.Socket.Has}
	if e.mapping.Method != "" {
		s.router = e.mapping.External
	}
	list, others := s.list()
	e.own, e.refused = own, nil
	for _, r := range refused {
		e.refused = append(e.refused, Refusal{At: r.Prefix.Addr().String(), Interface: r.Interface, Why: r.Why})
	}
	e.refused = append(e.refused, others...)
	return list
}

// next is when there is something to do, if nothing happens before.
func (e *Endpoints) next(wake, now time.Time) time.Time {
	out := now.Add(endpointLook)
	for _, t := range []time.Time{wake, e.due, e.routerDue} {
		if !t.IsZero() && t.Before(out) {
			out = t
		}
	}
	return out
}

// count counts and logs what a step brought.
func (e *Endpoints) count(ev nat.Event, d nat.Decision) {
	m := e.p.Metrics
	switch {
	case ev.Packet == nil:
	case d.Err == nil:
		m.Answers.Inc()
	case e.checking == nil: // else it may be the answer to the check
		m.Failures.WithLabelValues("refused").Inc()
		e.p.Log.Debug("a STUN packet does not count", "from", ev.From, telemetry.AttrReason, d.Err)
	}
	for _, r := range d.Rebound {
		m.Rebindings.Inc()
		e.p.Log.Info("a NAT maps this node to another endpoint", "server", r.Server.Name, "before", r.From, "now", r.To)
	}
	for _, s := range e.watch.Servers() {
		since := e.failing[s.Addr]
		switch {
		case s.Failing.IsZero():
			delete(e.failing, s.Addr)
		case since.IsZero():
			e.failing[s.Addr] = s.Failing
			m.Failures.WithLabelValues("unanswered").Inc()
			e.p.Log.Warn("a STUN server does not answer", "server", s.Name, "at", s.Addr)
		}
	}
}
