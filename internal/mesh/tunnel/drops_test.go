// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

// keeper is a relay that keeps what it is given.
type keeper chan []byte

func (k keeper) Relay(_ string, _ member.Key, packets [][]byte) {
	for _, p := range packets {
		select {
		case k <- bytes.Clone(p):
		default:
		}
	}
}

// initiation is the next handshake that the relay is given.
func (k keeper) initiation(t *testing.T) []byte {
	t.Helper()
	for {
		select {
		case p := <-k:
			if p[0] == 1 {
				return p
			}
		case <-runtest.Within(t).Done():
			t.Fatal("no handshake was begun")
		}
	}
}

// kept is a node whose packets to others are kept.
func kept(t *testing.T, secret tunnel.Secret, other member.Key, inside netip.Addr, via path.Path) (*node, keeper) {
	t.Helper()
	n, k := &node{tun: tunneltest.NewPipe(true), secret: secret}, make(keeper, 64)
	var err error
	if n.socket, err = tunnel.OpenSocket(t.Context(), tunnel.SocketConfig{}); err != nil {
		t.Fatal(err)
	}
	n.at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), n.socket.Port())
	if n.engine, err = tunnel.Open(context.Background(), tunnel.Parts{Socket: n.socket, Tun: n.tun, Relay: k, Log: quiet()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.engine.Close(); err != nil {
			t.Error(err)
		}
		if err := n.socket.Close(); err != nil {
			t.Error(err)
		}
	})
	err = n.engine.Apply(tunnel.Config{Key: secret, Peers: []tunnel.Peer{{Key: other, Probes: true, Ranges: []netip.Prefix{netip.PrefixFrom(inside, 32)}}}})
	if err != nil {
		t.Fatal(err)
	}
	n.engine.SetPath(other, via, netip.Addr{})
	return n, k
}

// TestEveryDropIsCounted: whatever the socket and its engine throw away is counted for its own
// reason, and for no other.
func TestEveryDropIsCounted(t *testing.T) {
	secret, _ := tunneltest.Key(t)
	_, peer := tunneltest.Key(t)
	inA, inB := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	a, toB := kept(t, secret, peer, inB, path.Path{Relay: "h"})
	c := stranger(t, a.at)
	write := func(p []byte) {
		if _, err := c.Write(p); err != nil {
			t.Error(err)
		}
	}
	shake := append([]byte{1, 0, 0, 0, 9, 9, 9, 9}, make([]byte, 140)...) // for another key
	a.tun.Out <- tunneltest.Packet(inA, inB, 1, 100)
	own := toB.initiation(t)
	_, nobody := tunneltest.Key(t)
	long := make([]byte, tunnel.TunnelPacket+1)
	long[0] = 4
	binary.LittleEndian.PutUint32(long[4:], binary.LittleEndian.Uint32(own[4:]))

	want := slices.Clone(a.socket.Drops(nil))
	counted := func(n *node, reason string) {
		t.Helper()
		i := slices.Index(tunnel.DropReasons(), reason)
		want[i].Packets++
		runtest.Eventually(t, reason, func() bool { return n.socket.Drops(nil)[i].Packets == want[i].Packets })
		if got := n.socket.Drops(nil); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", reason, got, want)
		}
	}
	for _, step := range []struct {
		reason string
		drop   func()
	}{
		{"unknown", func() { write([]byte("junk")) }},
		{"stray", func() { write(shake) }},
		{"stray", func() { a.engine.Receive(peer, shake) }},
		{"no_peer", func() { a.engine.Receive(nobody, shake) }},
		{"queue", func() { a.engine.Receive(peer, long) }},
		{"probes", func() { write(append(bytes.Clone(probeHead), make([]byte, tunnel.TunnelProbe)...)) }},
		{"stun", func() { write(append(bytes.Clone(stunHead), make([]byte, tunnel.TunnelProbe)...)) }},
	} {
		step.drop()
		counted(a, step.reason)
	}
	for reason, via := range map[string]path.Path{
		"no_path": {},
		"unsent":  {Addr: netip.MustParseAddrPort("127.0.0.1:0")}, // no port
	} {
		n, _ := kept(t, secret, peer, inB, via)
		n.tun.Out <- tunneltest.Packet(inA, inB, 1, 100)
		for i := range want {
			want[i].Packets = 0
		}
		counted(n, reason) // the handshake, which waits for 5 s before it is tried again
	}
}
