// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// pinged is a line of `tombolo mesh ping -o json`.
type pinged struct {
	Kind, Node, State, Path, Why string
	To                           netip.Addr
	Seq                          int
	RTTMillis, PathRTTMillis     float64
	Fault                        *faultBody
}

// pings asks for so many, each a document of its own.
func (n *node) pings(to string, count int) (all []pinged, err error) {
	out, err := n.verb("ping", to, "-c", fmt.Sprint(count), "-o", "json")
	d := json.NewDecoder(strings.NewReader(out))
	for d.More() {
		var p pinged
		if err := d.Decode(&p); err != nil {
			n.rig.t.Fatalf("%v\n%s", err, out)
		}
		all = append(all, p)
	}
	return all, err
}

// TestMeshPingIsTrue: what ping says of each echo is so: it goes to an address that the peer's
// kernel has, through the link, by the way on which packets leave this machine; and of a peer
// that does not answer it says that, with a code.
func TestMeshPingIsTrue(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "symmetric", "symmetric", "open")
	var nodes []*node
	for _, place := range r.grid.All {
		nodes = append(nodes, r.node(place, settings{}))
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	together(nodes...)
	known(nodes...)
	awaitState(a, b, relayed)
	awaitDirect(a, c)
	const count = 3
	for _, to := range []struct {
		peer  *node
		state string
		way   string
	}{{b, relayed, "relay "}, {c, direct, netip.AddrPortFrom(c.place.Addr4, 51820).String()}} {
		r.step(to.state, func(t *testing.T) {
			before := to.peer.received()
			all, err := a.pings(to.peer.host.Name(), count)
			if err != nil || len(all) != count {
				t.Fatalf("%d answers, %v", len(all), err)
			}
			for i, p := range all {
				if p.Kind != "MeshPing" || p.Seq != i+1 || p.Node != to.peer.host.Name() || p.To != to.peer.overlay4 || p.Fault != nil || p.RTTMillis <= 0 ||
					p.State != to.state || !strings.HasPrefix(p.Path, to.way) {
					t.Errorf("%+v, want an answer of %s at %s, %s by %s", p, to.peer.host.Name(), to.peer.overlay4, to.state, to.way)
				}
				if to.state == direct && p.PathRTTMillis <= 0 || to.state == relayed && !strings.Contains(p.Why, "answers") {
					t.Errorf("of the way: %+v", p)
				}
			}
			if got := to.peer.received() - before; got < count {
				t.Errorf("%d packets have come to %s, %d echoes were answered", got, to.peer.name, count)
			}
			if has := to.peer.addresses(); !slices.Contains(has, to.peer.overlay4) || !slices.Contains(has, to.peer.overlay6) {
				t.Errorf("its kernel has %v, and it was reached at %s", has, to.peer.overlay4)
			}
		})
	}
	r.step("nobody answers", func(t *testing.T) {
		c.kill()
		all, err := a.pings(c.host.Name(), 1)
		if err == nil || len(all) != 1 || all[0].Fault == nil || all[0].Fault.Code != "dial_timeout" || all[0].RTTMillis != 0 || all[0].To != c.overlay4 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// addresses are those that a node's kernel has at the mesh's link.
func (n *node) addresses() (all []netip.Addr) {
	n.rig.t.Helper()
	var links []struct {
		Addresses []struct{ Local netip.Addr } `json:"addr_info"`
	}
	n.ask(&links, "ip", "-j", "address", "show", link)
	for _, l := range links {
		for _, a := range l.Addresses {
			all = append(all, a.Local)
		}
	}
	return all
}
