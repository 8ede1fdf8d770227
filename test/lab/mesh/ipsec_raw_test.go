// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/rawesp"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestIPsecWithoutUDP: of three nodes one is behind a NAT that translates addresses alone, and to one no packets of
// protocol 50 come. To the first one ESP goes without UDP, until a firewall drops it in one direction: then packets are
// back within the mesh's bound, in UDP. To the other one it never does.
func TestIPsecWithoutUDP(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, open, kind(t, "full-cone"), open)
	if err != nil {
		t.Fatal(err)
	}
	r := bareRig(t, l, g)
	r.oneToOne(g, map[int][]*lab.Place{1: {g.All[1]}})
	if err := lab.CutESP(g.All[2].Router, "wan").On(); err != nil {
		t.Fatal(err)
	}
	r.startDiscovery()
	var nodes []*node
	for i := range g.All {
		nodes = append(nodes, r.withEngine(i, meshconf.IPsec))
		nodes[i].edit(func(whole map[string]any) {
			section(whole, "mesh")["ipsec"] = map[string]any{"esp": meshconf.ESPAuto}
		})
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	a.asUnit()
	together(a, b, c)
	to, back := a.flood(b.overlay4), b.flood(a.overlay4)
	defer func() { to.End(); back.End() }()
	r.step("where it passes", func(t *testing.T) {
		for n, other := range map[*node]*node{a: b, b: a} {
			n.awaitESP(other, "without UDP: ")
		}
		now := time.Now()
		r.awaitAfter(to, now)
		r.awaitAfter(back, now)
		for _, n := range []*node{a, b} {
			if n.rawESP() == 0 {
				t.Errorf("no packet of ESP without UDP was at %s", n.name)
			}
		}
		if text, err := a.verb("explain", b.overlay4.String()); err != nil || !strings.Contains(text, "\nesp without UDP: ") {
			t.Errorf("explain (%v) does not say it:\n%s", err, text)
		}
	})
	r.step("where it never passes", func(t *testing.T) {
		a.awaitESP(c, "in UDP: protocol 50: nothing answers there")
		reach(a, c)
		if n := c.rawESP(); n > 0 {
			t.Errorf("%d packets of ESP without UDP were at %s", n, c.name)
		}
	})
	r.step("where it passes no more", func(t *testing.T) {
		a.awaitESP(b, "without UDP: ") // still, or again
		b.awaitESP(a, "without UDP: ")
		if err := lab.CutESP(b.place.Router, "wan").On(); err != nil {
			t.Fatal(err)
		}
		moment := time.Now()
		for _, f := range []*lab.Flood{to, back} {
			took := r.awaitAfter(f, moment)
			t.Attr("figure", fmt.Sprintf("protocol 50 is blocked: packets of %s flow again after %v", f,
				took.Round(10*time.Millisecond)))
			if took > replaced {
				t.Errorf("packets of %s flow again after %v, want at most %v", f, took, replaced)
			}
		}
		a.awaitESP(b, "in UDP: protocol 50: ")
		if p, err := a.peer(b); err == nil {
			t.Attr("figure", "then a says: "+p.ESP)
		}
	})
	r.requireNoClearText(r.nodes...)
}

// awaitESP waits until a node says that packets to another one go without UDP, or not, and why. With UDP or without,
// the tunnel that it shows is one like that.
func (n *node) awaitESP(other *node, want string) {
	n.rig.t.Helper()
	n.rig.eventually(n.name+" says of ESP to "+other.name+": "+want, n.role, func() error {
		p, err := n.peer(other)
		if err != nil {
			return err
		}
		for _, s := range p.SecurityAssociations {
			if s.Sends && s.Raw == strings.HasPrefix(want, "without") && strings.HasPrefix(p.ESP, want) {
				return nil
			}
		}
		return fmt.Errorf("it says %q, with %+v", p.ESP, p.SecurityAssociations)
	})
}

// rawESP is how many packets of ESP without UDP were on a node's cable.
func (n *node) rawESP() int {
	n.rig.t.Helper()
	count, err := n.wire.Count(func(frame []byte) bool {
		esp, raw := lab.ESPWithin(frame)
		return raw && len(esp) > 8 && binary.BigEndian.Uint32(esp) != rawesp.SPI
	})
	if err != nil {
		n.rig.t.Fatal(err)
	}
	return count
}
