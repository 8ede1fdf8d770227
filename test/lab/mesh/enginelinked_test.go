// SPDX-License-Identifier: Apache-2.0

//go:build guest

package mesh

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestEngineLinkedClusters: two linked clusters with the kernel's WireGuard, node to node and through gateways. On no
// cable is a packet between them in clear.
func TestEngineLinkedClusters(t *testing.T) {
	l := labtest.New(t, "mesh")
	open := kind(t, "open")
	g, err := lab.NewPlaces(l, kind(t, "port-restricted"), open, open, open)
	if err != nil {
		t.Fatal(err)
	}
	r := linkedRigOf(bareRig(t, l, g), [][]*lab.Place{g.All[:1], g.All[1:]}, linkedOptions{engine: meshconf.Kernel})
	r.clusters(p2p(), p2p())
	r.mirror()
	masquerades := r.masquerades()
	r.switched(masquerades, (*lab.Filter).On)
	r.west.nodes[2].edit(func(whole map[string]any) { section(whole, "mesh")["keep"] = true })
	heard := r.heardAtFirst()
	together(r.all()...)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"node to node", r.nodeToNode},
		{"IPv6 and nodes themselves", r.familiesAndNodes},
		{"through gateways", r.throughGateways},
		{"IPv6 and nodes themselves, through gateways", r.without(masquerades, r.familiesAndNodesByGateways)},
		{"a Service", r.service},
		{"a gateway is killed", r.killed},
		{"mapped ranges", r.mapped},
		{"phases", func(t *testing.T) { r.pass(r.wireGuardPhases(t)) }},
		{"nothing in clear", func(*testing.T) { r.nothingInClear(heard) }},
	} {
		if !r.step(step.name, step.do) {
			return // what comes then would only wait
		}
	}
}

// wireGuardPhases are those of the node of the east and of one of the west, node to node.
func (r *linkedRig) wireGuardPhases(t *testing.T) phases {
	a, d := r.east.nodes[0], r.west.nodes[2]
	podA, podD := r.east.pods[0], r.west.pods[2]
	const name = "west.d"
	return phases{
		a: a, e: d, name: name, engine: meshconf.Kernel, link: "wireguard",
		flows: []*lab.Flood{r.flood(podA.host, netip.MustParseAddr(strings.Replace(podD.addr, "10.99.", "240.99.", 1))),
			r.flood(podD.host, netip.MustParseAddr(podA.addr6))},
		renew: func() {
			before := r.keyOf(d)
			d.rotate()
			if r.keyOf(d) == before {
				t.Error("d has its old key")
			}
			r.eventually("a's kernel has d's new key", a.role, func() error {
				if !r.hasPeer(a, d) {
					return errNotYet
				}
				return nil
			})
		},
		byKernel: true,
		gone: func() error {
			if r.hasPeer(a, d) {
				return errNotYet
			}
			return nil
		},
		shown: func() {
			r.eventually("a has a tunnel with "+name, a.role, func() error {
				s, err := a.status()
				i := slices.IndexFunc(s.Peers, func(p peerStatus) bool { return p.Node == name && p.State == direct })
				if err == nil && i < 0 {
					err = errNotYet
				}
				return err
			})
		},
		came: func() {},
	}
}

// keyOf is the public key of a node, in base64.
func (r *linkedRig) keyOf(n *node) string {
	r.t.Helper()
	s, err := n.status()
	if err != nil {
		r.t.Fatal(err)
	}
	return s.PublicKey
}

// hasPeer reports whether a node's kernel knows another node's key.
func (r *linkedRig) hasPeer(n, other *node) bool {
	r.t.Helper()
	var peers []wgtypes.Peer
	if err := n.host.Do(func() error {
		c, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer c.Close()
		d, err := c.Device("tombolo0")
		if err == nil {
			peers = d.Peers
		}
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	key := r.keyOf(other)
	return slices.ContainsFunc(peers, func(p wgtypes.Peer) bool { return p.PublicKey.String() == key })
}
