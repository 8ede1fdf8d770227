// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

// TestANewKeyPair: a node takes a new key beside the old one, under traffic with two peers, of
// which one has moved and the other has not; when both have, the old one ends. Packets by
// a relay find their device too.
func TestANewKeyPair(t *testing.T) {
	r := newRelay()
	a, b, c := newNode(t, "10.1.0.1", r, tunnel.AllOffloads()), newNode(t, "10.1.0.2", r, tunnel.AllOffloads()), newNode(t, "10.1.0.3", r, tunnel.AllOffloads())
	meet(t, a, b, c)
	say(t, a, b, 1)
	say(t, a, c, 2)
	secret, key := tunneltest.Key(t)
	next := a.config(b, c)
	next.Key = secret
	if err := a.engine.ApplyNext(next); err == nil {
		t.Error("there is a second device already")
	}
	if err := a.engine.Begin(a.config(b, c)); err == nil {
		t.Error("the old key is a new one")
	}
	if err := a.engine.Begin(next); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Begin(next); err == nil {
		t.Error("there are three devices")
	}
	say(t, a, b, 3) // by the first device still
	say(t, c, a, 4)

	// Each of the others learns the new key, and has ranges at the old one until
	// there is a handshake with the new one.
	both := func(n *node, moved bool) {
		t.Helper()
		cfg := n.config(a)
		fresh := cfg.Peers[0]
		fresh.Key = key
		if moved {
			cfg.Peers[0].Ranges = nil
		} else {
			fresh.Ranges = nil
		}
		cfg.Peers = append(cfg.Peers, fresh)
		if err := n.engine.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	shaken := func(n *node) func() bool {
		return func() bool {
			all, err := a.engine.StatsNext()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s.Key == n.key && !s.Handshake.IsZero() {
					return true
				}
			}
			return false
		}
	}
	move := func(n *node, way path.Way) {
		t.Helper()
		both(n, false)
		n.engine.SetWay(key, way, netip.Addr{})
		if err := n.engine.Handshake(key); err != nil {
			t.Fatal(err)
		}
		runtest.Eventually(t, "a handshake with the new key", shaken(n))
		both(n, true)
		if err := a.engine.Shift(n.key); err != nil {
			t.Fatal(err)
		}
		insist(t, a, n, 50)
		insist(t, n, a, 50)
	}
	move(b, path.Way{Addr: a.at})
	insist(t, a, c, 50) // by the first device still
	insist(t, c, a, 50)
	r.mu.Lock()
	r.nodes[key] = a
	r.mu.Unlock()
	move(c, path.Way{Relay: "h1"})
	if err := a.engine.End(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{b, c} {
		insist(t, a, n, 50)
		insist(t, n, a, 50)
	}
	if all, err := a.engine.Stats(); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := a.engine.StatsNext(); err == nil {
		t.Error("there is a second device still")
	}
	if err := a.engine.End(); err == nil {
		t.Error("it ended twice")
	}
}

// TestANewKeyPairIsGivenUp: a second device that cannot be made leaves the first as it was,
// and one that is closed with it leaves nothing.
func TestANewKeyPairIsGivenUp(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	say(t, a, b, 1)
	secret, key := tunneltest.Key(t)
	if err := a.engine.Begin(tunnel.Config{Key: secret, Peers: []tunnel.Peer{{Key: key}}}); err == nil {
		t.Fatal("its own key is a peer")
	}
	say(t, a, b, 2)
	say(t, b, a, 3)
	if err := a.engine.Begin(tunnel.Config{Key: secret}); err != nil {
		t.Fatal(err)
	}
	say(t, a, b, 4)
}
