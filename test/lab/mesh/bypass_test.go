// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// What is said while the underlay loses all that the mesh sends.
const (
	whileClosed = "said while mesh.bypass is off; "
	whileOpen   = "said by the bypass, in clear on purpose; "
	afterKill   = "said after the node was killed; "
)

// TestMeshBypass: two nodes of one LAN have routes to each other's pods beside the mesh, and
// lose each other within it. Without mesh.bypass nothing leaves in clear. With it what
// begins then goes in clear, both ways by the same cable, and goes on so when the peer is
// back; what began in the mesh stays there. A node that is killed is closed.
func TestMeshBypass(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open")
	home := r.grid.All[0]
	second, err := home.Second("b")
	if err != nil {
		t.Fatal(err)
	}
	podA, podB := r.podBehind(home, bridge, 1), r.podBehind(second, bridge, 2)
	alone := map[string]any{"join": "", "hubs": []string{}} // no relay: who is not direct is down
	a := r.node(home, settings{ranges: []string{podA.share}, mesh: alone})
	b := r.node(second, settings{ranges: []string{podB.share}, mesh: alone})
	r.shell(a.host, fmt.Sprintf("ip route add %s via %s", podB.share, second.Addr4))
	r.shell(b.host, fmt.Sprintf("ip route add %s via %s", podA.share, home.Addr4))
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	w := bypassed{rig: r, a: a, b: b, podA: podA, podB: podB}
	before := w.flood(marker)
	r.awaitAfter(before, time.Now())

	w.cut()
	awaitState(a, b, down)
	closed := w.flood(whileClosed)
	w.waits(closed)
	w.waits(before)
	closed.End()
	before.End()
	w.mend()
	awaitDirect(a, b)
	for _, word := range []string{marker, whileClosed} {
		if n := w.heard(a, word) + w.heard(b, word); n > 0 {
			t.Errorf("%d packets of %q in clear, without bypass", n, word)
		}
	}

	for _, n := range []*node{a, b} {
		n.change(func(whole map[string]any) { section(whole, "mesh")["bypass"] = true })
	}
	began := w.flood(marker)
	r.awaitAfter(began, time.Now())
	w.cut()
	awaitState(a, b, down)
	w.opened(a, podB) // what began a moment before waits in the mesh
	w.opened(b, podA)
	open := w.flood(whileOpen)
	r.awaitAfter(open, time.Now())
	w.waits(began) // it is of the mesh, and waits there
	w.bothWays(open)
	back := w.floodBack(whileOpen)
	r.awaitAfter(back, time.Now())
	back.End()

	w.mend()
	awaitDirect(a, b)
	r.awaitAfter(began, time.Now())
	r.awaitAfter(open, time.Now())
	w.bothWays(open) // still as it began
	inMesh := w.flood(marker)
	r.awaitAfter(inMesh, time.Now())
	if n := w.heard(a, marker) + w.heard(b, marker); n > 0 {
		t.Errorf("%d packets in clear of connections that began in the mesh", n)
	}
	open.End()

	a.kill()
	killed := w.flood(afterKill)
	w.waits(killed)
	w.waits(began)
	if n := w.heard(a, marker) + w.heard(a, afterKill); n > 0 {
		t.Errorf("%d packets of the killed node's pods in clear", n)
	}
}

// down is the state of a peer that no path leads to.
const down = "down"

// bypassed is the rig of TestMeshBypass.
type bypassed struct {
	*rig
	a, b       *node
	podA, podB pod
}

// flood goes from a's pod to b's, and begins each packet with a word.
func (w bypassed) flood(word string) *lab.Flood { return w.between(w.podA, w.podB, word) }

func (w bypassed) floodBack(word string) *lab.Flood { return w.between(w.podB, w.podA, word) }

func (w bypassed) between(from, to pod, word string) *lab.Flood {
	w.t.Helper()
	f, err := from.host.Flood(netip.AddrPortFrom(netip.MustParseAddr(to.addr), echo), word)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(f.End)
	return f
}

// cut loses all that the programs of the mesh send themselves, by the mark of their sockets.
func (w bypassed) cut() {
	w.t.Helper()
	for _, n := range []*node{w.a, w.b} {
		w.shell(n.host, "nft add table inet cut\nnft add chain inet cut sent { type filter hook output priority -300 ; }\n"+
			"nft add rule inet cut sent meta mark & 0x60 == 0x20 drop")
	}
}

func (w bypassed) mend() {
	w.t.Helper()
	for _, n := range []*node{w.a, w.b} {
		w.shell(n.host, "nft delete table inet cut")
	}
}

// opened waits until a node's kernel sends what begins now to the other one's pods in clear.
func (w bypassed) opened(n *node, to pod) {
	w.t.Helper()
	w.eventually(n.name+" bypasses the mesh", n.role, func() error {
		out, err := n.verb("explain", to.addr)
		if err != nil || !strings.Contains(out, "mesh.bypass is on") || strings.Contains(out, "lacks") {
			return fmt.Errorf("%v, %s", err, out)
		}
		return nil
	})
}

// waits checks that packets of a flood are lost for a while.
func (w bypassed) waits(f *lab.Flood) {
	w.t.Helper()
	moment := time.Now()
	w.eventually("packets are sent for a while", nil, func() error {
		if f.Lost(moment).Sent < packetsOfAStep {
			return errNotYet
		}
		return nil
	})
	if _, came := f.FirstAfter(moment); came {
		w.t.Errorf("packets of %s pass: %s", f, f.Lost(moment))
	}
}

// heard is how many packets at a node's cable have a word.
func (w bypassed) heard(n *node, word string) int {
	w.t.Helper()
	heard, err := n.wire.With([]byte(word))
	if err != nil {
		w.t.Fatal(err)
	}
	return heard
}

// bothWays waits until a cable has heard each packet of a flood that came back from now on
// twice: on its way, and as the answer.
func (w bypassed) bothWays(f *lab.Flood) {
	w.t.Helper()
	before, moment := w.heard(w.a, whileOpen), time.Now()
	w.eventually("both directions are heard in clear", nil, func() error {
		loss := f.Lost(moment)
		if came := loss.Sent - loss.Lost; came < packetsOfAStep || w.heard(w.a, whileOpen)-before < 2*came {
			return errors.New(loss.String())
		}
		return nil
	})
}
