// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// TestLazy: of 200 peers none costs a packet until there is one to it or from it; that one
// arrives at once, and minutes after the last one all is quiet again.
func TestLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.add("a", nil)
		a.lazy = true
		var others []*node
		for i := range 200 {
			n := w.add(fmt.Sprint("n", i), nil)
			n.lazy = true
			n.knows(a)
			others = append(others, n)
		}
		a.knows(others...)
		time.Sleep(time.Minute)
		if n := w.count(); n != 0 || a.metric("tombolo_mesh_peers", "idle") != 200 {
			t.Errorf("%d packets were sent, and %v peers are idle", n, a.metric("tombolo_mesh_peers", "idle"))
		}
		quiet := func(what string) {
			t.Helper()
			time.Sleep(11 * time.Minute) // 5 after the last packet, and 5 after the last ping that tells of it
			was := w.count()
			time.Sleep(10 * time.Minute)
			if n := w.count() - was; n != 0 || a.metric("tombolo_mesh_peers", "idle") != 200 {
				t.Errorf("%s: %d packets were sent, and %v peers are idle", what, n, a.metric("tombolo_mesh_peers", "idle"))
			}
		}
		for i, c := range []struct{ from, to *node }{{a, others[7]}, {others[8], a}, {a, others[7]}} {
			c.from.engine.say(c.to.inside, uint64(1e9)+uint64(i))
			w.until(300*time.Millisecond, "the first packet", func() bool { return c.to.engine.has(uint64(1e9) + uint64(i)) })
			w.until(3*time.Second, "direct", both(c.from, c.to, path.Direct))
			if _, lost := talk(c.from, c.to, 100*time.Millisecond, 2*time.Second); lost > 0 {
				t.Errorf("%d packets were lost", lost)
			}
			if n := a.metric("tombolo_mesh_peers", "idle"); n != 199 {
				t.Errorf("%v peers are idle", n)
			}
			quiet("after traffic")
		}
		// A packet within a session that is still fresh wakes both ends too.
		if _, lost := talk(a, others[9], time.Second, 400*time.Second); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
		if !both(a, others[9], path.Direct)() {
			t.Error("it is not direct after minutes of traffic")
		}
		quiet("after long traffic")
		if !a.p.Want("id-n5") || a.p.Want("id-nobody") {
			t.Error("Want")
		}
		w.until(3*time.Second, "direct without a packet", func() bool { return a.state(others[5]) == path.Direct })
		quiet("after it was wanted")
	})
}

// TestALazyPeerThatIsAway is let go, though its secrets are tried in turn.
func TestALazyPeerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		a.lazy, b.lazy, b.secrets, b.hubbed = true, true, []byte{2, 1}, false
		a.knows(b)
		b.stop()
		w.mu.Lock()
		w.cut = func(_, _ netip.Addr) bool { return true }
		w.mu.Unlock()
		a.engine.say(b.inside, 1)
		time.Sleep(20 * time.Minute)
		was := w.count()
		time.Sleep(20 * time.Minute)
		if n := w.count() - was; n != 0 || a.state(b) != path.Idle {
			t.Errorf("%d packets were sent to a peer that is %s", n, a.state(b))
		}
		if a.engine.called("TryPSK")+a.engine.called("Apply") < 2 { // the end with the lesser key begins no handshake for it
			t.Error("the other secret was not tried")
		}
	})
}

// TestWithoutProbes: candidates are tried by handshakes, one after the other, again when the peer
// is gone, and a lazy one is left alone.
func TestWithoutProbes(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.add("a", nil), w.add("b", nil)
			a.lazy, b.lazy, a.probes, b.probes = lazy, lazy, false, false
			b.site.noUDP = true // it is the first candidate, and does not answer yet
			meet(a, b)
			if lazy {
				time.Sleep(time.Minute)
				if w.count() != 0 {
					t.Errorf("%d packets to a lazy peer", w.count())
				}
				a.engine.say(b.inside, 1)
			}
			time.Sleep(30 * time.Second)
			if a.state(b) != path.Down {
				t.Errorf("%+v", a.report(b))
			}
			w.mu.Lock()
			b.site.noUDP = false
			w.mu.Unlock()
			w.until(20*time.Second, "a handshake", func() bool { return a.state(b) == path.Direct })
			if _, lost := talk(a, b, 100*time.Millisecond, 200*time.Second); lost > 0 {
				t.Errorf("%d packets were lost", lost)
			}
			if n := a.metric("tombolo_mesh_probes_sent_total", ""); n != 0 {
				t.Errorf("%v probes were sent", n)
			}
			time.Sleep(10 * time.Minute)
			if s := a.state(b); lazy && s != path.Idle || !lazy && s != path.Direct {
				t.Errorf("lazy %v: %s", lazy, s)
			}
		})
	}
}

// TestProbesAppear: a peer that was replaced by a version that speaks probes is used as such.
func TestProbesAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		a.probes, b.probes = false, false
		meet(a, b)
		w.until(20*time.Second, "a handshake", func() bool { return a.state(b) == path.Direct })
		a.probes, b.probes = true, true
		a.knows(b)
		time.Sleep(time.Second)
		b.knows(a)
		w.until(10*time.Second, "direct by probes", func() bool { return both(a, b, path.Direct)() && a.report(b).Trip > 0 })
		if _, lost := talk(a, b, 100*time.Millisecond, 5*time.Second); lost > 1 {
			t.Errorf("%d packets were lost", lost)
		}
	})
}

// TestTheEngineRefuses: what it did not take is tried again.
func TestTheEngineRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		a.engine.mu.Lock()
		a.engine.fail = errors.New("not now")
		a.engine.mu.Unlock()
		if err := a.p.Set([]peering.Peer{b.peer()}); err == nil {
			t.Error("it took what it refused")
		}
		b.knows(a)
		w.until(10*time.Second, "direct", both(a, b, path.Direct))
		if _, lost := talk(a, b, 100*time.Millisecond, 2*time.Second); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
	})
}

// TestPeersComeAndGo: one that is gone is forgotten, and its packets count no more; nothing of
// those that stay changes.
func TestPeersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		c := w.add("c", nil)
		sent := a.report(b).Candidates[0].Sent
		meet(a, b, c)
		w.until(5*time.Second, "direct", both(a, c, path.Direct))
		if got := a.report(b).Candidates[0].Sent; got < sent || a.state(b) != path.Direct {
			t.Errorf("%d pings, %d before", got, sent)
		}
		a.knows(b)
		was := a.dropped("no_peer")
		time.Sleep(time.Minute)
		if a.dropped("no_peer") == was || len(a.p.Reports()) != 1 {
			t.Errorf("%d of no peer, %d peers", a.dropped("no_peer")-was, len(a.p.Reports()))
		}
		// The same peer with another key, without a change of keys between.
		_, key := newPrivate(t)
		d := b.peer()
		d.Key = key
		if err := a.p.Set([]peering.Peer{d}); err != nil {
			t.Fatal(err)
		}
		if got := a.report(b); got.Key != key || !got.Handshake.IsZero() {
			t.Errorf("%+v", got)
		}
		a.knows()
		time.Sleep(time.Minute)
		if a.p.Reports() != nil {
			t.Error("a peer is left")
		}
		a.stop()
		time.Sleep(time.Minute)

	})
}
