// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"context"
	"crypto/ecdh"
	"encoding/binary"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// wireGuard is one that Peering can drive.
type wireGuard interface {
	peering.Engine
	peering.Traffic
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// world is a network in the time of a bubble: nodes behind NATs, and one hub.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	at    map[netip.Addr]*site
	cut   func(from, to netip.Addr) bool
	most  int // bytes of a whole IP packet that pass; 0: any
	sites int
	hub   map[string]*node
	sent  int
}

// site is a public address: a node itself, or its NAT.
type site struct {
	node    *node
	nat     bool
	strict  bool // it lets in only from where something was sent to
	symm    bool // another port for each destination
	keeps   bool // the port of the machine behind it
	noUDP   bool
	public  netip.Addr
	port    uint16
	out     map[[2]netip.AddrPort]uint16
	in      map[uint16]bool
	allowed map[[2]netip.AddrPort]time.Time // our outer address, and the other one
}

func newWorld(t *testing.T) *world {
	return &world{t: t, at: map[netip.Addr]*site{}, hub: map[string]*node{}, cut: func(_, _ netip.Addr) bool { return false }}
}

// translate is what a packet that leaves bears as its source.
func (s *site) translate(from, to netip.AddrPort) netip.AddrPort {
	if !s.nat {
		return from
	}
	key := [2]netip.AddrPort{from}
	if s.symm {
		key[1] = to
	}
	port, ok := s.out[key]
	if !ok {
		s.port += 3
		port = s.port
		if s.keeps {
			port = from.Port()
		}
		s.out[key], s.in[port] = port, true
	}
	outer := netip.AddrPortFrom(s.public, port)
	s.allowed[[2]netip.AddrPort{outer, to}] = time.Now()
	return outer
}

// admits reports whether a packet from outside comes in.
func (s *site) admits(from, to netip.AddrPort) bool {
	if !s.nat {
		return true
	}
	at, ok := s.allowed[[2]netip.AddrPort{to, from}]
	return s.in[to.Port()] && (!s.strict || ok && time.Since(at) < 30*time.Second)
}

// carry brings a packet of a node over the network.
func (w *world) carry(n *node, to netip.AddrPort, b []byte, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	if n.site.noUDP || whole && w.most > 0 && len(b)+28 > w.most {
		return
	}
	b = append([]byte(nil), b...)
	from := n.site.translate(n.addr, to)
	time.AfterFunc(10*time.Millisecond, func() { w.arrive(from, to, b) })
}

func (w *world) arrive(from, to netip.AddrPort, b []byte) {
	w.mu.Lock()
	s := w.at[to.Addr()]
	ok := s != nil && !s.noUDP && !w.cut(from.Addr(), to.Addr()) && s.admits(from, to)
	var at netip.Addr
	if ok {
		at = s.node.addr.Addr() // which a test may change
	}
	w.mu.Unlock()
	if ok {
		s.node.receive(from, at, b)
	}
}

// node is a Peering with a socket and an engine of the world.
type node struct {
	w       *world
	name    string
	addr    netip.AddrPort
	inside  netip.Addr
	site    *site
	private *ecdh.PrivateKey
	key     member.Key
	p       *peering.Peering
	engine  *engine
	kernel  *wireguardtest.Kernel // instead of engine
	reg     *prometheus.Registry
	changed int
	stop    func()
	lazy    bool
	probes  bool
	secrets []byte
	hubbed  bool
	left    netip.Addr // where the newest packet left from
}

// add makes a node; change says what is special of its site.
func (w *world) add(name string, change func(*node, *site)) *node {
	w.t.Helper()
	w.sites++
	i := byte(w.sites)
	n := &node{w: w, name: name, inside: netip.AddrFrom4([4]byte{100, 112, byte(w.sites >> 8), i}), probes: true, secrets: []byte{1}, hubbed: true}
	s := &site{node: n, public: netip.AddrFrom4([4]byte{198, 18, byte(w.sites >> 8), i}), port: 40_000,
		out: map[[2]netip.AddrPort]uint16{}, in: map[uint16]bool{}, allowed: map[[2]netip.AddrPort]time.Time{}}
	n.site = s
	if change != nil {
		change(n, s)
	}
	n.addr = netip.AddrPortFrom(s.public, 51820)
	if s.nat {
		n.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, i, 0, 2}), 51820)
	}
	n.private, n.key = newPrivate(w.t)
	n.reg = prometheus.NewRegistry()
	n.engine = newEngine(n)
	var err error
	var carries wireGuard = n.engine
	data := peering.NewDatapath(hub{n})
	if n.kernel != nil {
		carries = n.inKernel(data)
	}
	n.p, err = peering.New(peering.Parts{
		Private: n.private, Socket: n, Engine: carries, Traffic: carries, Datapath: data, Endpoints: n.endpoints, Metrics: n.reg, Log: quiet(),
		Changed: func() { w.mu.Lock(); n.changed++; w.mu.Unlock() },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.at[s.public] = s
	w.hub[name] = n
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.p.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	n.stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(n.stop)
	return n
}

// The sockets and the relay, as Peering uses them.

func (n *node) Send(to netip.AddrPort, from netip.Addr, b []byte) error {
	n.w.mu.Lock()
	n.left = from
	n.w.mu.Unlock()
	n.w.carry(n, to, b, false)
	return nil
}

func (n *node) SendWhole(to netip.AddrPort, _ netip.Addr, b []byte) error {
	n.w.carry(n, to, b, true)
	return nil
}

func (n *node) receive(from netip.AddrPort, at netip.Addr, b []byte) {
	if disco.KindOf(b) == disco.Probe {
		n.p.Probe(from, at, b)
		return
	}
	if n.kernel != nil {
		n.kernel.Come(from, b)
		return
	}
	n.engine.come(from, b)
}

// hub is the relay as one node sees it.
type hub struct{ *node }

func (h hub) Send(name, peer string, datagrams ...[]byte) (taken int) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	to := h.w.hub[peer]
	if !h.hubbed {
		return 0
	}
	for _, d := range datagrams {
		taken++
		d = append([]byte(nil), d...)
		time.AfterFunc(30*time.Millisecond, func() {
			h.w.mu.Lock()
			there := to != nil && to.hubbed
			h.w.mu.Unlock()
			if !there {
				h.p.Absent(name, peer)
				return
			}
			to.p.Relayed(name, h.name, d)
		})
	}
	return taken
}

// endpoints are what the node says of itself: its own, and what STUN would say.
func (n *node) endpoints() []netip.AddrPort {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	out := []netip.AddrPort{n.addr}
	if n.site.nat {
		out = append(out, n.site.translate(n.addr, netip.MustParseAddrPort("203.0.113.3:3478")))
	}
	return out
}

// peer is this node as others are told of it.
func (n *node) peer() peering.Peer {
	f := path.Facts{Probes: n.probes, Lazy: n.lazy}
	for i, at := range n.endpoints() {
		f.Candidates = append(f.Candidates, path.Candidate{Addr: at, Kind: []path.Kind{path.Own, path.Mapped}[i]})
	}
	n.w.mu.Lock()
	hubbed := n.hubbed
	n.w.mu.Unlock()
	if hubbed {
		f.Relays = []string{"h1"}
	}
	return peering.Peer{
		ID: "id-" + n.name, Name: n.name, Key: n.key, Proven: true, Secrets: under(n.secrets...), Facts: f,
		Ranges: []netip.Prefix{netip.PrefixFrom(n.inside, 32)}, Sources: []netip.Prefix{netip.PrefixFrom(n.addr.Addr(), 32)},
	}
}

// knows makes others a node's peers.
func (n *node) knows(others ...*node) {
	n.w.t.Helper()
	var all []peering.Peer
	for _, o := range others {
		if o != n {
			f := o.peer()
			f.Facts.Relays = f.Facts.Relays[:min(len(f.Facts.Relays), len(n.peer().Facts.Relays))]
			f.Facts.Lazy = n.lazy
			all = append(all, f)
		}
	}
	if err := n.p.Set(all); err != nil {
		n.w.t.Fatal(err)
	}
}

func meet(all ...*node) {
	for _, n := range all {
		n.knows(all...)
	}
}

// report is what a node knows of another.
func (n *node) report(of *node) peering.Report {
	n.w.t.Helper()
	for _, r := range n.p.Reports() {
		if r.Name == of.name {
			return r
		}
	}
	n.w.t.Fatalf("%s knows no %s", n.name, of.name)
	return peering.Report{}
}

// until lets time pass until something is true, and says how long that took.
func (w *world) until(most time.Duration, what string, done func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) >= most {
			w.t.Fatalf("%s: not within %v", what, most)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(began)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// metric is the sum of a metric's series, or of those with a value of a label.
func (n *node) metric(name, value string) (sum float64) {
	n.w.t.Helper()
	all, err := n.reg.Gather()
	if err != nil {
		n.w.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			ok := value == ""
			for _, l := range m.GetLabel() {
				ok = ok || l.GetValue() == value
			}
			if ok {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// message is one of the world's WireGuard.
func message(kind byte, from, to member.Key, rest []byte) []byte {
	b := append([]byte{kind, 0, 0, 0}, from[:]...)
	return append(append(b, to[:]...), rest...)
}

func numbered(n uint64, from netip.Addr) []byte {
	return append(binary.BigEndian.AppendUint64(nil, n), from.AsSlice()...)
}
