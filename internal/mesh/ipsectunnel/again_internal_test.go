// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

func TestANodeBeginsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, n := range w.nodes {
			if n.stop == nil {
				w.up()
			}
			n.end(false)
			time.Sleep(time.Minute)
			n.start()
			n.path(n.addrs[0], n.other().addrs[0])
			w.soon(yield + time.Second)
			if err := w.within(time.Minute, time.Second); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
	})
}

func TestANodeBeginsAgainOnAnotherPathThanThePeers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		b.end(false)
		time.Sleep(time.Minute)
		b.start()
		b.path(b.addrs[1], a.addrs[1])
		w.soon(yield + time.Second)
		if err := w.within(time.Minute, time.Second); err != nil {
			t.Error(err)
		}
	})
}

// TestAPeerIsTakenAgainOnAnotherPathThanThePeers: both nodes have begun tunnels, and one of them forgets them.
func TestAPeerIsTakenAgainOnAnotherPathThanThePeers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		b.path(b.addrs[1], a.addrs[1])
		w.soon(yield + time.Second)
		if err := w.within(time.Hour, time.Minute); err != nil {
			t.Fatal(err)
		}
		b.apply(false)
		b.apply(true)
		b.path(b.addrs[1], a.addrs[1])
		w.soon(yield + time.Second)
		if err := w.within(time.Hour, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// TestANodeBeginsAgainAndIsCalledFirst: what it has begun before, on another path, is not sent by any more.
func TestANodeBeginsAgainAndIsCalledFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, n := range w.nodes {
			o := n.other()
			if n.stop == nil {
				w.up()
			}
			n.path(n.addrs[1], o.addrs[1])
			w.soon(yield + time.Second)
			n.end(false)
			time.Sleep(time.Minute)
			n.start()
			o.path(o.addrs[0], n.addrs[1])
			time.Sleep(longestPause)
			synctest.Wait() // until the exchange is over
			n.path(n.addrs[1], o.addrs[0])
			w.soon(yield + time.Second)
			o.path(o.addrs[1], n.addrs[1])
			time.Sleep(time.Second)
			if err := w.within(time.Minute, time.Second/10); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			o.path(o.addrs[0], n.addrs[0])
			w.soon(time.Minute)
		}
	})
}

// TestStatesOfAnEarlierRunGo: also if the peer is the one who calls.
func TestStatesOfAnEarlierRunGo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		for range 3 {
			b.end(true)
			b.start()
			if err := a.engine.Handshake(b.public); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			b.path(b.addrs[0], a.addrs[0])
			if err := w.within(time.Minute, time.Second); err != nil {
				t.Error(err)
			}
			b.engine.mu.Lock()
			if n := len(b.engine.spis); n != 1 || b.kernel.count() != 2 {
				t.Errorf("%d states, %d SPIs are taken", b.kernel.count(), n)
			}
			b.engine.mu.Unlock()
		}
	})
}

func TestANodeIsKilledAndTakesItsStatesOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, n := range w.nodes {
			if n.stop == nil {
				w.up()
			}
			n.end(true)
			if err := w.within(time.Minute, time.Second); err != nil {
				t.Errorf("node %d, killed: %v", i, err)
			}
			n.start()
			if err := w.within(time.Minute, time.Second); err != nil {
				t.Errorf("node %d, back without a path: %v", i, err)
			}
			n.path(n.addrs[0], n.other().addrs[0])
			if err := w.within(time.Minute, 100*time.Millisecond); err != nil {
				t.Errorf("node %d, back: %v", i, err)
			}
			if n.kernel.count() > 4 {
				t.Errorf("node %d: %d states", i, n.kernel.count())
			}
		}
	})
}

// TestANodeHasAnotherKeyWhenItStarts: it finds what an earlier run with another key has left.
func TestANodeHasAnotherKeyWhenItStarts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, b := w.up()
		b.end(true)
		before := b.kernel.count()
		b.key = tunnel.NewSecret([32]byte{1: 99})
		b.start()
		if err := w.within(time.Minute, time.Second); err != nil || b.kernel.count() != before {
			t.Errorf("%d states of %d are left: %v", b.kernel.count(), before, err)
		}
	})
}

func TestAKeyThatIsNotAnswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		time.Sleep(time.Minute)
		b.kernel.mu.Lock()
		b.kernel.states, b.kernel.peers = nil, nil // somebody has flushed them
		b.kernel.mu.Unlock()
		if err := a.engine.Handshake(b.public); err != nil {
			t.Error(err)
		}
		w.soon(2 * limit.WireGuardLook)
	})
}

// TestStatesThatAreGone: somebody has flushed those of a node, or some of them. It notices by itself.
func TestStatesThatAreGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.up()
		for i, n := range w.nodes {
			for name, gone := range map[string]func(kept) bool{
				"all": func(kept) bool { return true }, "to receive by": func(s kept) bool { return !s.Sends },
				"to send by": func(s kept) bool { return s.Sends },
			} {
				if err := w.within(time.Minute, time.Second); err != nil {
					t.Fatalf("before node %d loses states %s: %v", i, name, err)
				}
				n.kernel.mu.Lock()
				n.kernel.states = slices.DeleteFunc(n.kernel.states, gone)
				n.kernel.peers = nil
				n.kernel.mu.Unlock()
				if w.flows() == nil {
					t.Errorf("node %d needs no states %s", i, name)
				}
				w.soon(2 * limit.WireGuardLook)
				if k := n.kernel.count(); k > 6 {
					t.Errorf("node %d has %d states", i, k)
				}
			}
		}
	})
}
