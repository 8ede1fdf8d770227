// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an engine with all around it.
type node struct {
	tun     *tunneltest.Pipe
	socket  *tunnel.Socket
	engine  *tunnel.Engine
	secret  tunnel.Secret
	key     member.Key
	addr    netip.Addr // inside
	at      netip.AddrPort
	psk     tunnel.Secret
	packets chan came // probes and STUN
	woken   chan member.Key
	relay   *relay
	stop    func()
}

// came is a packet that was handed over.
type came struct {
	kind  string
	from  netip.AddrPort
	local netip.Addr
	data  string
}

// relay is one in memory: what is sent by it arrives at the node of that key.
type relay struct {
	mu    sync.Mutex
	nodes map[member.Key]*node
	taken map[string]int // packets by hub
}

func newRelay() *relay { return &relay{nodes: map[member.Key]*node{}, taken: map[string]int{}} }

// by is the relay as one node sees it.
type by struct {
	*relay
	self member.Key
}

func (r by) Relay(hub string, peer member.Key, packets [][]byte) {
	r.mu.Lock()
	to := r.nodes[peer]
	r.taken[hub] += len(packets)
	r.mu.Unlock()
	for _, p := range packets {
		if to != nil {
			to.engine.Receive(r.self, append([]byte(nil), p...))
		}
	}
}

func (r *relay) count(hub string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[hub]
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newNode(t testing.TB, inside string, r *relay, want tunnel.Offloads) *node {
	t.Helper()
	n := &node{tun: tunneltest.NewPipe(false), addr: netip.MustParseAddr(inside), packets: make(chan came, 4096), woken: make(chan member.Key, 64), relay: r}
	n.secret, n.key = tunneltest.Key(t)
	ctx, cancel := context.WithCancel(context.Background())
	take := func(kind string) tunnel.Handler {
		return func(from netip.AddrPort, local netip.Addr, p []byte) {
			select {
			case n.packets <- came{kind, from, local, string(p)}:
			default:
			}
		}
	}
	s, err := tunnel.OpenSocket(ctx, tunnel.SocketConfig{Offloads: want})
	if err != nil {
		t.Fatal(err)
	}
	n.socket = s
	n.at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())
	parts := tunnel.Parts{Socket: s, Tun: n.tun, Log: quiet(), Wake: func(k member.Key) { n.woken <- k }}
	if r != nil {
		parts.Relay = by{r, n.key}
		r.mu.Lock()
		r.nodes[n.key] = n
		r.mu.Unlock()
	}
	if n.engine, err = tunnel.Open(ctx, parts); err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx, tunnel.Handlers{Probe: take("probe"), STUN: take("STUN")}) }()
	n.stop = sync.OnceFunc(func() {
		if err := n.engine.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

// meet makes nodes each other's peers, with a range each of its own address.
func meet(t testing.TB, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.apply(t, nodes...)
	}
	for _, n := range nodes {
		for _, m := range nodes {
			if n != m && !n.engine.SetPath(m.key, path.Path{Addr: m.at}, netip.Addr{}) {
				t.Fatal("a path of an unknown peer")
			}
		}
	}
}

func (n *node) config(nodes ...*node) tunnel.Config {
	cfg := tunnel.Config{Key: n.secret}
	for _, m := range nodes {
		if m != n {
			cfg.Peers = append(cfg.Peers, tunnel.Peer{
				Key: m.key, PSK: n.psk, Probes: true, Ranges: []netip.Prefix{netip.PrefixFrom(m.addr, 32)},
			})
		}
	}
	return cfg
}

func (n *node) apply(t testing.TB, nodes ...*node) {
	t.Helper()
	if err := n.engine.Apply(n.config(nodes...)); err != nil {
		t.Fatal(err)
	}
}

// say sends a numbered packet into the tunnel and waits until it is at the other end.
func say(t testing.TB, from, to *node, what uint64) {
	t.Helper()
	ctx := runtest.Within(t)
	select {
	case from.tun.Out <- tunneltest.Packet(from.addr, to.addr, what, 100):
	case <-ctx.Done():
		t.Fatal("the tunnel takes nothing")
	}
	for {
		select {
		case b := <-to.tun.In:
			if tunneltest.Number(b) == what {
				return
			}
		case <-ctx.Done():
			t.Fatalf("packet %d did not arrive", what)
		}
	}
}

// reach says it again and again until it arrives. Where both ends begin a handshake at
// once, one of the two is dropped, and what was sealed with its keys is lost, as any
// datagram may be.
func reach(t testing.TB, from, to *node, what uint64) {
	t.Helper()
	ctx := runtest.Within(t)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for out := from.tun.Out; ; {
		select {
		case out <- tunneltest.Packet(from.addr, to.addr, what, 100):
			out = nil // until the next tick
		case <-again.C:
			out = from.tun.Out
		case b := <-to.tun.In:
			if tunneltest.Number(b) == what {
				return
			}
		case <-ctx.Done():
			t.Fatalf("packet %d did not arrive", what)
		}
	}
}

// stat is what an engine knows of a peer.
func (n *node) stat(t testing.TB, peer *node) tunnel.Stat {
	t.Helper()
	all, err := n.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Key == peer.key {
			return s
		}
	}
	t.Fatalf("no such peer in %d", len(all))
	return tunnel.Stat{}
}
