// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// port is that of ESP in UDP in these tests.
const port = 4500

// kernel is a twin of the kernel: what it has, and what it would do with a packet.
type kernel struct {
	mu      sync.Mutex
	peers   []ipsec.Peer
	applied int
	states  []kept // in the order in which they came
	refuse  error  // of an Add, once
	first   int    // of how many more it is not
	away    bool   // there is no link
}

type kept struct {
	ipsec.State
	seen ipsec.Seen
}

func (k *kernel) Apply(all []ipsec.Peer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.peers = slices.Clone(all)
	k.applied++
	return nil
}

func (k *kernel) Differs(all []ipsec.Peer) (n int, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range all {
		if !slices.ContainsFunc(k.peers, func(o ipsec.Peer) bool { return reflect.DeepEqual(o, p) }) {
			n++
		}
	}
	return n + max(0, len(k.peers)-len(all)), nil
}

func (k *kernel) Add(s ipsec.State) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first > 0 {
		k.first--
	} else if err := k.refuse; err != nil {
		k.refuse = nil
		return err
	}
	for _, o := range k.states {
		if o.Name == s.Name {
			return errors.New("there is a state of this name")
		}
	}
	k.states = append(k.states, kept{s, ipsec.Seen{Name: s.Name, Peer: s.Peer, From: s.From, UDP: s.ToPort != 0,
		Sends: s.Sends, Made: time.Now()}})
	return nil
}

func (k *kernel) Remove(n ipsec.Name) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.states = slices.DeleteFunc(k.states, func(s kept) bool { return s.Name == n })
	return nil
}

func (k *kernel) States() (out []ipsec.Seen, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.states {
		out = append(out, s.seen)
	}
	return out, nil
}

func (k *kernel) There() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.away
}

func (k *kernel) Close(keep bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !keep {
		k.states, k.peers = nil, nil
	}
	return nil
}

func (k *kernel) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.states)
}

// out is by which state a packet to a range leaves: any of those that the policy's addresses and number allow.
func (k *kernel) out(to netip.Prefix) (found []*kept) {
	for _, p := range k.peers {
		if !slices.Contains(p.Ranges, to) || !p.Remote.IsValid() {
			continue
		}
		for i := range k.states {
			if s := &k.states[i]; s.Peer == p.ID && s.To == p.Remote && s.From == p.Local {
				found = append(found, s)
			}
		}
	}
	return found
}

// node is an engine with its kernel.
type node struct {
	*world
	key    tunnel.Secret
	public member.Key
	signer ed25519.PrivateKey
	chacha bool
	addrs  []netip.Addr
	inner  netip.Prefix
	liars  []tunnel.Peer // who state the other node's pin
	kernel *kernel
	limits Limits

	engine *Engine
	stop   func()
	came   chan accepted
	tries  bool // whether packets pass without UDP
	heard  chan trialPacket
	log    bytes.Buffer
}

// world is two nodes, and the network between them.
type world struct {
	t     *testing.T
	nodes [2]*node

	mu    sync.Mutex
	cut   func(from, to netip.Addr) bool
	seeAs map[netip.Addr]netip.AddrPort // a NAT's
	dials int
	// forwarded are ports at which nodes are called, though they call from port.
	forwarded map[netip.Addr]uint16
	// cut50 drops packets of protocol 50: those of ESP, or those that try whether it passes.
	cut50 func(from, to netip.Addr, esp bool) bool
}

// at is where what is sent to an address and port arrives.
func (w *world) at(to netip.AddrPort) netip.AddrPort {
	for inside, as := range w.seeAs {
		if as == to {
			return netip.AddrPortFrom(inside, port)
		}
	}
	if p := w.forwarded[to.Addr()]; p != 0 && to.Port() == p {
		return netip.AddrPortFrom(to.Addr(), port)
	}
	return to
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, seeAs: map[netip.Addr]netip.AddrPort{}}
	for i := range w.nodes {
		seed := [32]byte{1: byte(i + 1)}
		n := &node{world: w, key: tunnel.NewSecret(seed), signer: ed25519.NewKeyFromSeed(seed[:]), kernel: &kernel{},
			limits: Default}
		var err error
		if n.public, err = n.key.Public(); err != nil {
			t.Fatal(err)
		}
		for k := range 2 {
			n.addrs = append(n.addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(10*i + k + 1)}))
		}
		n.inner = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 1), 0, 0}), 24)
		w.nodes[i] = n
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.end(false)
		}
	})
	return w
}

// start runs a node; keep is whether its kernel has what an earlier run had.
func (n *node) start() {
	n.came = make(chan accepted)
	var raw Raw
	if n.tries {
		n.heard, raw = make(chan trialPacket, 10), rawTwin{n}
	}
	var err error
	n.engine, err = New(Parts{Raw: raw, NoRaw: "it does not try", Kernel: n.kernel, Link: n.kernel, Transport: transport{n}, ChaCha: n.chacha, Port: port, Limits: n.limits,
		Log: slog.New(slog.NewTextHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Local: func(to netip.Addr) (netip.Addr, error) {
			if slices.Contains(n.addrs, to) {
				return to, nil
			}
			return n.addrs[0], nil
		}})
	if err != nil {
		n.t.Fatal(err)
	}
	n.apply(true)
	n.engine.SetPath(n.other().public, path.Path{}, netip.Addr{}) // none is known yet
	g := run.NewGroup(context.Background())
	g.Go("engine", n.engine.Run)
	n.stop = func() {
		g.Stop()
		if err := g.Wait(); err != nil {
			n.t.Error(err)
		}
	}
}

func (n *node) pin() member.Pin {
	n.t.Helper()
	id, err := keyexchange.NewIdentity(n.signer)
	if err != nil {
		n.t.Fatal(err)
	}
	return id.Pin()
}

func (n *node) other() *node {
	if n == n.nodes[0] {
		return n.nodes[1]
	}
	return n.nodes[0]
}

func (n *node) apply(peer bool) {
	n.t.Helper()
	cfg := tunnel.Config{Key: n.key, Signer: tunnel.NewSigner(n.signer)}
	if o := n.other(); peer {
		cfg.Peers = []tunnel.Peer{{Key: o.public, Pin: o.pin(), Ranges: []netip.Prefix{o.inner}, Probes: true}}
	}
	cfg.Peers = append(cfg.Peers, n.liars...)
	if err := n.engine.Apply(cfg); err != nil {
		n.t.Error(err)
	}
}

// end stops a node, with or without its states.
func (n *node) end(keep bool) {
	if n.stop == nil {
		return
	}
	n.stop()
	n.stop = nil
	if err := n.engine.Close(keep); err != nil {
		n.t.Error(err)
	}
}

// path has a node send by addresses.
func (n *node) path(from, to netip.Addr) {
	n.mu.Lock()
	at := netip.AddrPortFrom(to, port)
	if as, there := n.seeAs[to]; there {
		at = as
	}
	n.mu.Unlock()
	n.engine.SetPath(n.other().public, path.Path{Addr: at}, from)
}

// sends sends a packet to the other node, and says why it does not arrive. Whichever state the kernel may choose,
// it has to.
func (n *node) sends() error {
	o := n.other()
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	found := n.kernel.out(o.inner)
	if len(found) == 0 {
		return errors.New("no state to send by")
	}
	for _, s := range found {
		s.seen.Packets++
		s.seen.Bytes += 100
		if err := o.receives(s); err != nil {
			return err
		}
	}
	return nil
}

// dialed is how many exchanges were begun.
func (w *world) dialed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// leaves reports whether packets to the other node leave, be they received or not.
func (n *node) leaves() bool {
	n.t.Helper()
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	if len(n.kernel.peers) != 1 {
		n.t.Fatalf("the kernel has %d peers", len(n.kernel.peers))
	}
	return n.kernel.peers[0].Remote.IsValid()
}

func (n *node) receives(s *kept) error {
	n.mu.Lock()
	to := n.at(netip.AddrPortFrom(s.To, s.ToPort))
	cut := n.cut != nil && n.cut(s.From, to.Addr()) || s.ToPort == 0 && n.cut50 != nil && n.cut50(s.From, to.Addr(), true)
	n.mu.Unlock()
	if cut {
		return errors.New("the network drops it")
	}
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	for i := range n.kernel.states {
		in := &n.kernel.states[i]
		if in.To == to.Addr() && in.SPI == s.SPI && to.Port() == in.ToPort {
			if *in.Key.Get() != *s.Key.Get() || in.Cipher != s.Cipher {
				return errors.New("it is decrypted by another key")
			}
			in.seen.Packets++
			in.seen.Bytes += 100
			return nil
		}
	}
	return errors.New("no state to receive by")
}

// transport connects the nodes.
type transport struct{ *node }

type conn struct {
	*tls.Conn
	line Line
	stop func()
}

func newConn(ctx context.Context, c *tls.Conn, line Line) conn {
	return conn{c, line, run.OnDone(ctx, func() { c.NetConn().Close() })}
}

func (c conn) Ends() (to netip.AddrPort, local netip.Addr) { return c.line.Remote, c.line.Local }

// Close ends it at once.
func (c conn) Close() error {
	c.stop()
	return c.NetConn().Close()
}

func (n transport) Dial(ctx context.Context, to netip.AddrPort, local netip.Addr, cfg *tls.Config) (Conn, error) {
	o, line := n.other(), Line{Local: local, Remote: to}
	n.mu.Lock()
	n.dials++
	to = n.at(to)
	from := netip.AddrPortFrom(local, port)
	if as, there := n.seeAs[local]; there {
		from = as
	}
	cut := n.cut != nil && n.cut(local, to.Addr())
	n.mu.Unlock()
	if cut || o.stop == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if !slices.Contains(o.addrs, to.Addr()) || to.Port() != port {
		return nil, errors.New("nobody is there")
	}
	one, two := net.Pipe()
	g := run.NewGroup(ctx)
	server := tls.Server(two, o.engine.Server())
	g.Do(func(ctx context.Context) {
		if err := server.HandshakeContext(ctx); err != nil {
			two.Close()
			return
		}
		select {
		case o.came <- accepted{server, Line{Local: to.Addr(), Remote: from}}:
		case <-ctx.Done():
			two.Close()
		}
	})
	client := tls.Client(one, cfg)
	err := client.HandshakeContext(ctx)
	if err != nil {
		one.Close()
		g.Stop()
	}
	return newConn(ctx, client, line), errors.Join(err, g.Wait())
}

// accepted is a connection that nobody handles yet.
type accepted struct {
	*tls.Conn
	line Line
}

func (n transport) Run(ctx context.Context, handle func(context.Context, Conn)) error {
	g := run.NewGroup(ctx)
	for {
		select {
		case a := <-n.came:
			g.Do(func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, exchangeTime)
				defer cancel()
				handle(ctx, newConn(ctx, a.Conn, a.line))
			})
		case <-ctx.Done():
			return g.Wait()
		}
	}
}
