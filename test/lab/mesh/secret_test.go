// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestMeshSecretRotates follows docs/howto/mesh.md: the cluster's new secret comes beside
// the old one, node by node, and the old one goes, node by node, while packets flow, direct
// and by the relay. None is lost: the old session carries them until the new handshake is done.
// A node that keeps only the old secret reaches nobody, and sends nothing in clear.
func TestMeshSecretRotates(t *testing.T) { // not beside other worlds: it counts single packets
	r := ofPlaces(t, "symmetric", "symmetric", "open", "open")
	fresh := filepath.Join(r.dir, "new.secret")
	id := strings.TrimSpace(r.verb(nil, "discovery", "secret", "create", fresh))
	r.plantFile("the cluster's new secret", fresh)
	var nodes []*node
	for _, place := range r.grid.All {
		nodes = append(nodes, r.node(place, settings{}))
	}
	a, b, c, late := nodes[0], nodes[1], nodes[2], nodes[3]
	together(nodes...)
	known(nodes...)
	awaitDirect(a, c)
	awaitDirect(b, c)
	awaitState(a, b, relayed)
	_, before := a.mustStatus()
	flows := []*lab.Flood{a.flood(b.overlay4), a.flood(c.overlay4), c.flood(b.overlay6), c.flood(a.overlay4)}
	begin := time.Now()
	for _, f := range flows {
		r.awaitAfter(f, begin)
	}
	begin = time.Now()
	members := []*node{c, a, b}
	for _, files := range [][]string{{fresh, r.secret}, {fresh}} {
		for _, n := range members {
			n.change(func(whole map[string]any) { section(whole, "cluster")["secretFiles"] = files })
			moment := time.Now() // somebody changes one node after the other
			for _, f := range flows {
				r.eventually("packets go on for a while", nil, func() error {
					if f.Lost(moment).Sent < packetsOfAStep {
						return errNotYet
					}
					return nil
				})
			}
		}
		for _, n := range members {
			for _, other := range members {
				if n != other {
					awaitSecret(n, other, id)
				}
			}
		}
	}
	defer func() {
		for _, n := range members {
			if t.Failed() {
				s, err := n.status()
				t.Logf("%s has dropped %+v (%v)", n.name, s.TunnelDropped, err)
			}
		}
	}()
	r.noneLost("the cluster's secret changes", begin, time.Now(), flows...)
	for _, f := range flows {
		f.End()
		t.Logf("of %s: %s", f, f.Lost(begin))
	}
	awaitState(a, b, relayed)
	_, after := a.mustStatus()
	if !slices.Equal(after.Secrets, []string{id}) || after.Overlay4 != before.Overlay4 || after.Overlay6 != before.Overlay6 || after.PublicKey != before.PublicKey {
		t.Errorf("after the rotation the node is %+v, before %+v", after, before)
	}
	r.eventually("a node with the old secret alone reaches nobody", late.role, func() error {
		text, s := late.mustStatus()
		if len(s.Peers) != len(members) || slices.ContainsFunc(s.Peers, func(p peerStatus) bool { return p.State != down }) || !slices.Equal(s.Secrets, before.Secrets) {
			return fmt.Errorf("its status is\n%s", text)
		}
		return nil
	})
	begin = time.Now()
	stray := late.flood(c.overlay4)
	r.eventually("it sends all the same", nil, func() error {
		if stray.Lost(begin).Sent < packetsOfAStep {
			return errNotYet
		}
		return nil
	})
	stray.End()
	if l := stray.Lost(begin); l.Lost < l.Sent {
		t.Errorf("a node with the old secret alone was answered: %s", l)
	}
	for _, n := range members {
		if _, s := n.mustStatus(); len(s.Peers) != len(members)-1 {
			t.Errorf("%s has the peers %+v", n.name, s.Peers)
		}
	}
	r.requireNoClearText(nodes...)
}

// packetsOfAStep is how many packets of a flow pass between one node's change and the next
// one's: 0.5 s.
const packetsOfAStep = 25

// awaitSecret waits until a node's session with another one, as its status shows it, was
// made with a secret.
func awaitSecret(n, other *node, id string) {
	n.rig.t.Helper()
	began := time.Now()
	n.rig.eventually(n.name+" has a session with "+other.name+" of the new secret", n.role, func() error {
		p, err := n.peer(other)
		if err != nil {
			return err
		}
		if p.Secret != id {
			return fmt.Errorf("handshakes are made with %s", p.Secret)
		}
		return nil
	})
	n.rig.t.Logf("%s and %s after %v", n.name, other.name, time.Since(began).Round(time.Millisecond))
}
