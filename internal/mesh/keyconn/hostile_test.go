// SPDX-License-Identifier: Apache-2.0

package keyconn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
)

// hellos are first datagrams of connections that never continue, each of another one.
func hellos(t *testing.T, count int) [][]byte {
	t.Helper()
	n := newNetwork()
	a := n.on(t, 1, "192.0.2.1:4500", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			to := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), uint16(i+1))
			if _, err := a.port.Dial(ctx, to, netip.Addr{}, a.id.Client(a.id.Pin())); err == nil {
				t.Error("nobody has answered")
			}
		})
	}
	synctest.Wait()
	cancel()
	all.Wait()
	a.stop()
	var out [][]byte
	seen := map[uint16]bool{}
	for _, d := range n.all() {
		if !seen[d.to.Port()] {
			seen[d.to.Port()] = true
			out = append(out, d.data)
		}
	}
	return out
}

// TestAFlood of handshakes that nobody continues, from many addresses and from one: what they hold is bounded, a node
// comes through all the same, nobody gets more than three times what was sent in their name, and after the bound all is
// as before.
func TestAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flood := hellos(t, 500)
		n := newNetwork()
		a := n.on(t, 1, "192.0.2.1:4500", nil)
		b := n.on(t, 2, "192.0.2.2:4500", respond(newStates(0x2002), nil))
		meet(a, b)
		before := runtime.NumGoroutine()
		for i, hello := range flood {
			from := netip.MustParseAddrPort(fmt.Sprintf("198.51.%d.%d:4500", i/2%250, 1+i%2*100))
			if i%2 == 0 {
				from = netip.MustParseAddrPort("203.0.113.1:4500")
			}
			n.deliver(datagram{from, b.at, hello})
			synctest.Wait()
			if held := b.port.Held(); held > keyconn.ConnsTrusted {
				t.Fatalf("%d connections are held after %d datagrams", held, i+1)
			}
		}
		if more := runtime.NumGoroutine() - before; more > 8*keyconn.ConnsTrusted {
			t.Errorf("%d goroutines more", more)
		}
		if b.port.Held() != keyconn.ConnsTrusted {
			t.Errorf("%d connections are held: the flood was none", b.port.Held())
		}
		if err := a.exchange(t.Context(), b, 1, newStates(0x1001)); err != nil {
			t.Errorf("during the flood: %v", err)
		}
		time.Sleep(keyconn.HandshakeWithin + time.Second)
		if held := b.port.Held(); held != 0 {
			t.Errorf("%d connections are held after the bound", held)
		}
		got, sent := map[netip.AddrPort]int{}, map[netip.AddrPort]int{}
		for _, d := range n.all() {
			got[d.to] += len(d.data)
			sent[d.from] += len(d.data)
		}
		for at, bytes := range got {
			if at != a.at && at != b.at && bytes > 3*sent[at] {
				t.Errorf("%v gets %d bytes for %d", at, bytes, sent[at])
			}
		}
		a.stop()
		b.stop()
	})
}

// TestConnectionsOfOneAddress: one that proves itself has a number of them, and whoever is refused is told.
func TestConnectionsOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, let := newNetwork(), make(chan struct{})
		a := n.on(t, 1, "192.0.2.1:4500", nil)
		other := n.on(t, 1, "198.51.100.1:4500", nil)
		b := n.on(t, 2, "192.0.2.2:4500", func(*node, *keyconn.Conn) { <-let })
		meet(a, b)
		var conns []*keyconn.Conn
		dial := func(by *node) error {
			c, err := by.port.Dial(t.Context(), b.at, netip.Addr{}, by.id.Client(b.id.Pin()))
			if err != nil {
				return err
			}
			conns = append(conns, c)
			_, err = c.Write([]byte{1})
			return err
		}
		for range keyconn.ConnsOfOne {
			if err := dial(a); err != nil {
				t.Fatal(err)
			}
		}
		if f := fault.From(dial(a)); f == nil || f.Code != fault.CodeLimit || f.Next == "" {
			t.Errorf("one more: %v", f)
		}
		if err := dial(other); err != nil {
			t.Errorf("from another address: %v", err)
		}
		close(let)
		for _, c := range conns {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if held := b.port.Held(); held != 0 {
			t.Errorf("%d connections are held", held)
		}
		a.stop()
		other.stop()
		b.stop()
	})
}

// TestManyAddresses: whoever has so many that each may hold some keeps no peer out.
func TestManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, let := newNetwork(), make(chan struct{})
		b := n.on(t, 2, "192.0.2.2:4500", func(*node, *keyconn.Conn) { <-let })
		open := func(from string) (*node, *keyconn.Conn, error) {
			a := n.on(t, 1, from, nil)
			b.mu.Lock()
			b.know = append(b.know, a.id.Pin())
			b.mu.Unlock()
			c, err := a.port.Dial(t.Context(), b.at, netip.Addr{}, a.id.Client(b.id.Pin()))
			return a, c, err
		}
		var nodes []*node
		for i := range keyconn.ConnsUnknown {
			a, _, err := open(fmt.Sprintf("198.51.100.%d:4500", i))
			if nodes = append(nodes, a); err != nil {
				t.Fatal(err)
			}
		}
		a, _, err := open("198.51.100.250:4500")
		if nodes = append(nodes, a); err == nil || fault.From(err).Code != fault.CodeLimit {
			t.Errorf("one address more: %v", err)
		}
		b.mu.Lock()
		b.from = append(b.from, netip.MustParseAddr("203.0.113.7"))
		b.mu.Unlock()
		a, _, err = open("203.0.113.7:4500")
		if nodes = append(nodes, a); err != nil {
			t.Errorf("a peer: %v", err)
		}
		time.Sleep(keyconn.ConnWithin + time.Second)
		if held := b.port.Held(); held != 0 {
			t.Errorf("%d connections are held", held)
		}
		a, _, err = open("198.51.100.251:4500")
		if nodes = append(nodes, a); err != nil {
			t.Errorf("after that: %v", err)
		}
		close(let)
		for _, a := range append(nodes, b) {
			a.stop()
		}
	})
}

// TestJunk that looks like QUIC, and packets of an exchange that were changed, do no harm.
func TestJunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.on(t, 1, "192.0.2.1:4500", nil)
		b := n.on(t, 2, "192.0.2.2:4500", respond(newStates(0x2002), nil))
		meet(a, b)
		if err := a.exchange(t.Context(), b, 1, newStates(0x1001)); err != nil {
			t.Fatal(err)
		}
		chance, real := rand.New(rand.NewPCG(3, 4)), n.all()
		for i := range 3000 {
			d := real[i%len(real)]
			d.data = slices.Clone(d.data)
			switch i % 3 {
			case 0: // of its own
				d.data = make([]byte, chance.IntN(1300))
				for k := range d.data {
					d.data[k] = byte(chance.Uint32())
				}
			case 1:
				for range 1 + chance.IntN(8) {
					d.data[chance.IntN(len(d.data))] ^= byte(1 + chance.IntN(255))
				}
			case 2:
				d.data = d.data[:chance.IntN(len(d.data))]
			}
			n.deliver(d)
		}
		synctest.Wait()
		if err := a.exchange(t.Context(), b, 2, newStates(0x1001)); err != nil {
			t.Errorf("after the junk: %v", err)
		}
		time.Sleep(keyconn.ConnWithin)
		if held := b.port.Held(); held != 0 {
			t.Errorf("%d connections are held", held)
		}
		a.stop()
		b.stop()
	})
}
