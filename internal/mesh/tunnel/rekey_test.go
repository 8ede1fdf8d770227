// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

// TestAnotherKey: a node takes another key. Peers that know it make new sessions, directly and by a
// relay; one that does not reaches nobody.
func TestAnotherKey(t *testing.T) {
	r := newRelay()
	a, b, c := newNode(t, "10.1.0.1", r, tunnel.AllOffloads()), newNode(t, "10.1.0.2", r, tunnel.AllOffloads()), newNode(t, "10.1.0.3", r, tunnel.AllOffloads())
	meet(t, a, b, c)
	say(t, a, b, 1)
	say(t, a, c, 2)
	a.secret, a.key = tunneltest.Key(t)
	r.mu.Lock()
	r.nodes[a.key] = a
	r.mu.Unlock()
	a.apply(t, b, c)
	a.tun.Out <- tunneltest.Packet(a.addr, b.addr, 3, 100) // b drops the handshake
	for n, via := range map[*node]path.Path{b: {Addr: a.at}, c: {Relay: "h1"}} {
		n.apply(t, a)
		n.engine.SetPath(a.key, via, netip.Addr{})
		if err := n.engine.Handshake(a.key); err != nil {
			t.Fatal(err)
		}
		insist(t, a, n, 50)
		insist(t, n, a, 50)
	}
	if all, err := a.engine.Stats(); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
}
