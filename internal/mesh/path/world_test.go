// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// world is a network in simulated time: nodes behind NATs of the kinds of RFC
// 4787, and one hub that relays.
type world struct {
	t       *testing.T
	now     time.Time
	events  events
	count   int
	at      map[netip.Addr]socket // who has a public address
	cut     func(from, to netip.AddrPort) bool
	delay   func(from, to netip.AddrPort) time.Duration
	largest int // IP packet that passes; 0: any
	rand    *rand.Rand
	sent    int
}

// socket is what takes packets from outside: a node, or a NAT.
type socket interface {
	take(from, to netip.AddrPort, m message)
}

type message struct {
	ping, pong uint64
	call       []netip.AddrPort
	size       int
	wanted     bool
}

type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), at: map[netip.Addr]socket{},
		rand:  rand.New(rand.NewPCG(1, 2)),
		cut:   func(netip.AddrPort, netip.AddrPort) bool { return false },
		delay: func(netip.AddrPort, netip.AddrPort) time.Duration { return 10 * time.Millisecond },
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{w.now.Add(d), w.count, do})
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// until lets time pass until something is true, and says how long that took.
func (w *world) until(most time.Duration, what string, done func() bool) time.Duration {
	w.t.Helper()
	began := w.now
	for !done() {
		if w.now.Sub(began) >= most {
			w.t.Fatalf("%s: not within %v", what, most)
		}
		w.pass(10 * time.Millisecond)
	}
	return w.now.Sub(began)
}

// carry brings a packet over the public network.
func (w *world) carry(from, to netip.AddrPort, m message) {
	w.sent++
	if w.largest > 0 && m.size > w.largest || w.cut(from, to) {
		return
	}
	w.after(w.delay(from, to), func() {
		if s := w.at[to.Addr()]; s != nil {
			s.take(from, to, m)
		}
	})
}

// The behaviour of a NAT, RFC 4787 sections 4.1 and 5.
type nature struct {
	name     string
	symmetic bool // mapping: of address and port, in place of independent of them
	filter   int  // 0: of nothing, 1: of the address, 2: of address and port
	none     bool // no NAT at all
	noUDP    bool
}

func natures() []nature {
	return []nature{
		{name: "public", none: true},
		{name: "full cone"},
		{name: "restricted", filter: 1},
		{name: "port restricted", filter: 2},
		{name: "symmetric", symmetic: true, filter: 2},
		{name: "blocked", none: true, noUDP: true},
	}
}

// reaches is the theory: may two of these natures find a direct path?
func reaches(a, b nature) bool {
	switch {
	case a.noUDP || b.noUDP:
		return false
	case a.none || b.none:
		return true
	case a.symmetic && b.symmetic:
		return false
	case a.symmetic:
		return b.filter < 2
	case b.symmetic:
		return a.filter < 2
	}
	return true
}

// nat is a router.
type nat struct {
	w       *world
	nature  nature
	public  netip.Addr
	life    time.Duration
	mapped  map[[2]netip.AddrPort]*mapping // inside, and outside if symmetric
	outside map[uint16]*mapping
	inside  map[netip.AddrPort]*node
	port    uint16
}

type mapping struct {
	inside netip.AddrPort
	port   uint16
	used   time.Time
	to     map[netip.AddrPort]time.Time
}

func (w *world) router(n nature, public string) *nat {
	r := &nat{
		w: w, nature: n, public: netip.MustParseAddr(public), life: 30 * time.Second, port: 40_000,
		mapped: map[[2]netip.AddrPort]*mapping{}, outside: map[uint16]*mapping{}, inside: map[netip.AddrPort]*node{},
	}
	w.at[r.public] = r
	return r
}

// out translates a packet that leaves.
func (r *nat) out(from, to netip.AddrPort) netip.AddrPort {
	key := [2]netip.AddrPort{from}
	if r.nature.symmetic {
		key[1] = to
	}
	m := r.mapped[key]
	if m == nil || r.w.now.Sub(m.used) > r.life {
		r.port += uint16(1 + r.w.rand.IntN(7))
		m = &mapping{inside: from, port: r.port, to: map[netip.AddrPort]time.Time{}}
		r.mapped[key], r.outside[m.port] = m, m
	}
	m.used, m.to[to] = r.w.now, r.w.now
	return netip.AddrPortFrom(r.public, m.port)
}

func (r *nat) take(from, to netip.AddrPort, msg message) {
	m := r.outside[to.Port()]
	if m == nil || r.w.now.Sub(m.used) > r.life {
		return
	}
	ok := r.nature.filter == 0
	for at, when := range m.to {
		fresh := r.w.now.Sub(when) <= r.life
		ok = ok || fresh && (at == from || r.nature.filter == 1 && at.Addr() == from.Addr())
	}
	if !ok {
		return
	}
	m.to[from], m.used = r.w.now, r.w.now // as conntrack does
	if n := r.inside[m.inside]; n != nil {
		n.take(from, m.inside, msg)
	}
}

// node is one that speaks the protocol of docs/reference/mesh.md.
type node struct {
	w      *world
	name   string
	addr   netip.AddrPort
	behind *nat
	nature nature
	peer   *path.Peer
	other  *node
	hub    bool // it is attached to the hub
	asleep bool
	armed  time.Time
	paths  []path.Path // taken, in order
}

func (w *world) node(name, addr string, n nature, behind *nat) *node {
	a := &node{w: w, name: name, addr: netip.MustParseAddrPort(addr), nature: n, behind: behind, hub: true}
	a.peer = path.New(w.rand.Uint64)
	if behind != nil {
		behind.inside[a.addr] = a
	} else {
		w.at[a.addr.Addr()] = a
	}
	return a
}

// site makes a node of a nature in a network of its own.
func (w *world) site(name string, n nature, net int) *node {
	public := netip.AddrFrom4([4]byte{198, 51, byte(net), 1})
	if n.none {
		return w.node(name, netip.AddrPortFrom(public, 51820).String(), n, nil)
	}
	return w.node(name, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(net), 0, 2}), 51820).String(), n, w.router(n, public.String()))
}

// mapped is what a STUN server would say.
func (n *node) mapped() netip.AddrPort {
	if n.behind == nil {
		return n.addr
	}
	return n.behind.out(n.addr, netip.MustParseAddrPort("203.0.113.3:3478"))
}

func (n *node) endpoints() []netip.AddrPort {
	if n.nature.noUDP {
		return []netip.AddrPort{n.addr}
	}
	return []netip.AddrPort{n.addr, n.mapped()}
}

func (n *node) facts(of *node) path.Facts {
	f := path.Facts{Probes: true}
	for i, at := range of.endpoints() {
		f.Candidates = append(f.Candidates, path.Candidate{Addr: at, Kind: []path.Kind{path.Own, path.Mapped}[i]})
	}
	if n.hub && of.hub {
		f.Relays = []string{"hub"}
	}
	return f
}

func meet(a, b *node) {
	a.other, b.other = b, a
	a.peer.Learn(a.w.now, a.facts(b))
	b.peer.Learn(b.w.now, b.facts(a))
	a.run()
	b.run()
}

// run does what is due.
func (n *node) run() {
	if n.asleep {
		return
	}
	sends, due := n.peer.Next(n.w.now)
	for _, s := range sends {
		m := message{ping: s.Ping, size: s.Size, wanted: s.Wanted}
		if s.Call() {
			m.call = n.endpoints()
		}
		n.send(n.addr, s.To, m)
	}
	if via := n.peer.Path(); len(n.paths) == 0 || n.paths[len(n.paths)-1] != via {
		n.paths = append(n.paths, via)
	}
	if due.IsZero() {
		n.armed = time.Time{}
		return
	}
	if !due.After(n.w.now) {
		n.w.t.Fatalf("%s: due at once again", n.name)
	}
	n.armed = due
	n.w.after(due.Sub(n.w.now), func() {
		if n.armed.Equal(due) {
			n.run()
		}
	})
}

func (n *node) send(from netip.AddrPort, via path.Path, m message) {
	if via.Relay != "" {
		if n.hub && n.other.hub {
			n.w.after(30*time.Millisecond, func() { n.other.heard(n.other.addr, via, m) })
		}
		return
	}
	if n.nature.noUDP {
		return
	}
	if n.behind != nil {
		if via.Addr.Addr() == n.behind.public {
			return // no hairpin
		}
		from = n.behind.out(n.addr, via.Addr)
	}
	n.w.carry(from, via.Addr, m)
}

func (n *node) take(from, to netip.AddrPort, m message) {
	if !n.nature.noUDP {
		n.heard(to, path.Path{Addr: from}, m)
	}
}

// heard answers from the address at which it was asked, as our socket does.
func (n *node) heard(at netip.AddrPort, via path.Path, m message) {
	if n.asleep {
		return
	}
	switch {
	case m.ping != 0:
		n.peer.Heard(n.w.now, via, m.wanted)
		n.send(at, via, message{pong: m.ping})
	case m.pong != 0:
		n.peer.Pong(n.w.now, via, m.pong)
	case m.call != nil:
		n.peer.Called(n.w.now, m.call)
	}
	n.run()
}

// talk keeps packets going.
func (n *node) talk(every, long time.Duration) {
	for d := time.Duration(0); d < long; d += every {
		n.w.after(d, func() {
			if !n.asleep {
				n.peer.Traffic(n.w.now)
				n.run()
			}
		})
	}
}

func (n *node) direct() bool { return n.peer.Path().Direct() }
