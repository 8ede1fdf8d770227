// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// replaced is the promise: a dead path is noticed and replaced within it, on a machine as it is.
const replaced = 10 * time.Second * slowness

// restarted is the other one: so soon after a killed program is up again all is as before. How long its start takes
// depends on the machine.
const restarted = 3 * time.Second

// requireSoon checks when packets of a flood pass whose node was started, and was up a while later.
func (r *rig) requireSoon(t *testing.T, f *lab.Flood, started, up time.Time) {
	t.Helper()
	took := r.awaitAfter(f, started)
	t.Logf("packets of %s pass %v after the start", f, took.Round(time.Millisecond))
	if late := started.Add(took).Sub(up); late > restarted {
		t.Errorf("packets of %s pass %v after it is up, want at most %v", f, late, restarted)
	}
}

// together starts nodes, and waits until each has said that it is up.
func together(nodes ...*node) {
	for _, n := range nodes {
		n.begin()
	}
	for _, n := range nodes {
		n.awaitUp()
	}
}

// TestMeshPathCut: the direct way between two nodes is cut, in both directions or in
// one, while packets flow. They flow on by the relay, and come back to the direct way
// when it is there again.
func TestMeshPathCut(t *testing.T) {
	t.Parallel()
	r := ofPair(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "full-cone")})
	a, b := r.node(r.grid.A, settings{}), r.node(r.grid.B, settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	for _, c := range []struct {
		name string
		cut  *lab.Filter
	}{{"both directions", r.grid.Between}, {"from a to b", r.grid.AToB}, {"from b to a", r.grid.BToA}} {
		if !r.step(c.name, func(t *testing.T) { playCut(t, a, b, c.cut) }) {
			break // the next would tell of this one again
		}
	}
	r.requireNoClearText(a, b)
}

func playCut(t *testing.T, a, b *node, cut *lab.Filter) {
	r := a.rig
	to, back := a.flood(b.overlay4), b.flood(a.overlay6)
	begin := time.Now()
	r.awaitAfter(to, begin)
	r.awaitAfter(back, begin)
	if err := cut.On(); err != nil {
		t.Fatal(err)
	}
	moment := time.Now()
	for _, f := range []*lab.Flood{to, back} {
		if took := r.awaitAfter(f, moment); took > replaced {
			t.Errorf("packets of %s flow again after %v, want at most %v", f, took, replaced)
		} else {
			t.Logf("packets of %s flow again %v after the cut", f, took.Round(time.Millisecond))
		}
	}
	awaitState(a, b, relayed)
	if n, err := cut.Packets(); err != nil || n == 0 {
		t.Errorf("the cut met %d packets (%v)", n, err)
	}
	byRelay := time.Now()
	r.awaitAfter(to, byRelay)
	r.awaitAfter(back, byRelay)

	if err := cut.Off(); err != nil {
		t.Fatal(err)
	}
	restored := time.Now()
	t.Logf("direct again %v after the cut ended", awaitDirect(a, b).Sub(restored).Round(time.Millisecond))
	now := time.Now()
	r.awaitAfter(to, now)
	r.awaitAfter(back, now)
	to.End()
	back.End()
	for _, f := range []*lab.Flood{to, back} {
		t.Logf("of %s: %s since the cut; %s by the relay and on the way back", f, f.Lost(moment), f.Lost(byRelay))
	}
}

// known waits until each of the nodes knows each other.
func known(nodes ...*node) {
	for _, n := range nodes {
		for _, other := range nodes {
			if n != other {
				n.rig.t.Helper()
				n.rig.eventually(n.name+" knows "+other.name, n.role, func() error {
					_, err := n.peer(other)
					return err
				})
			}
		}
	}
}

// TestMeshHomeNAT is issue 12897 of KubeSpan in miniature: two nodes of one home, which
// have the same public address and want the same port, and one outside. Everybody
// reaches everybody: the two by their LAN, each of them at the port that is really its own.
func TestMeshHomeNAT(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "firewalled")
	home, outside := r.grid.All[0], r.grid.All[1]
	second, err := home.Second("c")
	if err != nil {
		t.Fatal(err)
	}
	a, c, b := r.node(home, settings{}), r.node(second, settings{}), r.node(outside, settings{})
	together(a, c, b)
	known(a, b, c)
	begin := time.Now()
	for _, pair := range [][2]*node{{a, c}, {a, b}, {c, b}} {
		awaitDirect(pair[0], pair[1])
		requireWay(pair[0], pair[1], []int{4})
		requireWay(pair[1], pair[0], []int{4})
		f := pair[0].flood(pair[1].overlay4)
		r.awaitAfter(f, begin)
		f.End()
	}
	t.Logf("all direct after %v", time.Since(begin).Round(time.Millisecond))
	if p := awaitState(a, c, direct); !withinLAN(p.Path) {
		t.Errorf("a reaches its neighbour by %s, want by the LAN", p.Path)
	}
	toA, toC := awaitState(b, a, direct).Path, awaitState(b, c, direct).Path
	if toA == toC {
		t.Errorf("b reaches both at %s", toA)
	}
	r.requireNoClearText(a, b, c)
}

func withinLAN(way string) bool {
	const lan = "192.168.1."
	return len(way) > len(lan) && way[:len(lan)] == lan
}

// rotationMost is how long a new key that the peer knows may still keep two nodes apart: the peer has to begin a
// session. How long a verb takes, and discovery to tell, depends on the machine.
const rotationMost = 3 * time.Second

// TestMeshKeysRotate: a node changes its key pair while packets flow in both directions. They are
// back within moments, and none is lost later; nothing leaves in clear meanwhile.
func TestMeshKeysRotate(t *testing.T) {
	t.Parallel()
	r := ofPair(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "port-restricted")})
	a, b := r.node(r.grid.A, settings{}), r.node(r.grid.B, settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	before, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	to, back := a.flood(b.overlay4), b.flood(a.overlay4)
	begin := time.Now()
	r.awaitAfter(to, begin)
	r.awaitAfter(back, begin)
	begin = time.Now()
	a.rotate()
	var after meshStatus
	r.eventually("a has another key", a.role, func() error {
		var err error
		if after, err = a.status(); err == nil && after.PublicKey == before.PublicKey {
			err = errNotYet
		}
		return err
	})
	if after.Overlay4 != before.Overlay4 || after.Overlay6 != before.Overlay6 || after.ID != before.ID {
		t.Errorf("with the key the identity has changed: %+v, before %+v", after, before)
	}
	awaitKey(b, a, after.PublicKey)
	awaitState(a, b, direct)
	known := time.Now()
	r.eventually("packets go on for a while", a.role, func() error {
		if time.Since(known) < 2*rotationMost {
			return errNotYet
		}
		return nil
	})
	r.noneLost("both know the new key", known.Add(rotationMost), time.Now(), to, back)
	to.End()
	back.End()
	for _, f := range []*lab.Flood{to, back} {
		t.Attr("figure", fmt.Sprintf("key rotation, known to the peer after %v, %s: %s",
			known.Sub(begin).Round(time.Millisecond), f, f.Lost(begin)))
	}
	r.requireNoClearText(a, b)

	// The new key is that of the next start.
	a.stop()
	together(a)
	again, err := a.status()
	if err != nil || again.PublicKey != after.PublicKey {
		t.Errorf("after a restart a has the key %s, want %s (%v)", again.PublicKey, after.PublicKey, err)
	}
	f := b.flood(a.overlay4)
	r.awaitAfter(f, time.Now())
}

// TestMeshKeysRotateOverAKill: a node that is killed right after it has changed its key pair has the
// new one when it starts again, and packets pass.
func TestMeshKeysRotateOverAKill(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	before, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	a.rotate()
	a.kill()
	a.begin()
	a.awaitUp()
	s, err := a.status()
	if err != nil || s.PublicKey == before.PublicKey {
		t.Fatalf("after the restart it has the old key: %+v (%v)", s, err)
	}
	f := b.flood(a.overlay4)
	r.awaitAfter(f, time.Now())
	awaitKey(b, a, s.PublicKey)
}

// TestMeshLazy: above the size that is set, here none, peers are idle until something goes to
// them, and the first packet brings them about. With a size of one a node would want the first
// member that it hears of, and could reach it before it hears of the second.
func TestMeshLazy(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "port-restricted", "open", "port-restricted")
	set := settings{mesh: map[string]any{"lazyAbove": 0}}
	var nodes []*node
	for _, place := range r.grid.All {
		nodes = append(nodes, r.node(place, set))
	}
	together(nodes...)
	known(nodes...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		for _, other := range nodes {
			if n != other {
				if p, err := n.peer(other); err != nil || p.State != idle || p.Handshake != "" || p.Sent+p.Received > 0 {
					t.Errorf("%s has %s %s, with a handshake %q and %d bytes, before any traffic (%v)",
						n.name, other.name, p.State, p.Handshake, p.Sent+p.Received, err)
				}
			}
		}
	}
	begin := time.Now()
	f := a.flood(b.overlay4)
	t.Logf("the first answer of an idle peer after %v", r.awaitAfter(f, begin).Round(time.Millisecond))
	awaitState(a, b, direct)
	f.End()
	for _, of := range [][2]*node{{c, a}, {c, b}, {a, c}, {b, c}} {
		if p, err := of[0].peer(of[1]); err != nil || p.State != idle {
			t.Errorf("%s has %s %s, which nobody asked for (%v)", of[0].name, of[1].name, p.State, err)
		}
	}
	awaitDirect(c, a) // the verb wakes a peer, too
}

// TestMeshRestartUnderThePeersTraffic: a node is killed and started again while another
// one sends to it, and it sends nothing itself. The other one's session is with the life
// before: it would notice after 15 s.
func TestMeshRestartUnderThePeersTraffic(t *testing.T) {
	t.Parallel()
	r := ofPair(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "full-cone")})
	a, b := r.node(r.grid.A, settings{}), r.node(r.grid.B, settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	f := a.flood(b.overlay4)
	r.awaitAfter(f, time.Now())
	for range 3 {
		b.kill()
		started := time.Now()
		b.begin()
		b.awaitUp()
		r.requireSoon(t, f, started, time.Now())
	}
	f.End()
}

// rotate has a node take new keys. It refuses while it attends no discovery service, as for a moment after a NAT has
// forgotten its connection, and says to try again.
func (n *node) rotate() {
	n.rig.t.Helper()
	n.rig.eventually("new keys are taken", n.role, func() error {
		out, err := n.verb("keys", "rotate")
		if err != nil && !strings.Contains(err.Error(), "discovery_unreachable") {
			n.rig.t.Fatalf("%v\n%s", err, out)
		}
		return err
	})
}
