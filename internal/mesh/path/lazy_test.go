// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

func TestALazyPeerSaysNothingUnasked(t *testing.T) {
	w := newWorld(t)
	restricted := natures()[3]
	one, two := w.site("one", restricted, 1), w.site("two", restricted, 2)
	lazy := func(n *node) path.Facts {
		f := n.facts(n.other)
		f.Lazy = true
		return f
	}
	one.other, two.other = two, one
	for _, n := range []*node{one, two} {
		n.peer.Learn(w.now, lazy(n))
		n.run()
	}
	w.pass(time.Hour)
	if w.sent != 0 || one.peer.Report(w.now).State != path.Idle {
		t.Fatalf("%d packets of peers that nobody wants; %+v", w.sent, one.peer.Report(w.now))
	}
	if one.peer.Path() != (path.Path{Relay: "hub"}) {
		t.Fatalf("the first packet has no path: %v", one.peer.Path())
	}
	one.talk(time.Second, time.Minute) // one end only: the other is woken by its pings
	w.until(10*time.Second, "a direct path", func() bool { return one.direct() && two.direct() })
	w.pass(20 * time.Minute)
	before := w.sent
	w.pass(time.Hour)
	if got := one.peer.Report(w.now).State; got != path.Idle || w.sent != before {
		t.Errorf("the state is %v, and %d packets were sent in an hour without traffic", got, w.sent-before)
	}
}

// Where no direct path comes about, a lazy peer is let go as well: the calls of both do not keep
// each other awake.
func TestALazyPeerThatStaysRelayedIsLetGo(t *testing.T) {
	w := newWorld(t)
	symmetric := natures()[4]
	one, two := w.site("one", symmetric, 1), w.site("two", symmetric, 2)
	one.other, two.other = two, one
	for _, n := range []*node{one, two} {
		f := n.facts(n.other)
		f.Lazy = true
		n.peer.Learn(w.now, f)
		n.run()
	}
	one.talk(time.Second, time.Minute)
	w.pass(time.Minute)
	for _, n := range []*node{one, two} {
		if s := n.peer.Report(w.now).State; s != path.Relayed {
			t.Fatalf("%s is %v while there is traffic", n.name, s)
		}
	}
	w.pass(11 * time.Minute)
	before := w.sent
	w.pass(time.Hour)
	for _, n := range []*node{one, two} {
		if s := n.peer.Report(w.now).State; s != path.Idle || w.sent != before {
			t.Errorf("%s is %v 11 minutes after the last packet, and %d packets were sent in an hour", n.name, s, w.sent-before)
		}
	}
}

// Each of what wakes a lazy peer does so alone.
func TestWhatWakesALazyPeer(t *testing.T) {
	for name, c := range map[string]struct {
		wake func(n *node)
		does bool
	}{
		"a packet":               {func(n *node) { n.peer.Traffic(n.w.now) }, true},
		"a call":                 {func(n *node) { n.peer.Called(n.w.now, nil) }, true},
		"a ping with traffic":    {func(n *node) { n.peer.Heard(n.w.now, path.Path{Addr: n.other.mapped()}, true) }, true},
		"the same, by the relay": {func(n *node) { n.peer.Heard(n.w.now, path.Path{Relay: "hub"}, true) }, true},
		"a ping without":         {func(n *node) { n.peer.Heard(n.w.now, path.Path{Addr: n.other.mapped()}, false) }, false},
		"nothing":                {func(*node) {}, false},
	} {
		w := newWorld(t)
		one, two := w.site("one", natures()[3], 1), w.site("two", natures()[3], 2)
		one.other, two.other = two, one
		f := one.facts(two)
		f.Lazy = true
		one.peer.Learn(w.now, f)
		one.run()
		w.pass(time.Hour)
		c.wake(one)
		one.run()
		w.pass(time.Minute)
		if woken := w.sent > 0 && one.peer.Report(w.now).State != path.Idle; woken != c.does {
			t.Errorf("%s wakes it: %v, %d packets were sent", name, woken, w.sent)
		}
	}
}
