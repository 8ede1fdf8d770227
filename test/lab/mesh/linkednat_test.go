// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// threeEach has two clusters of three nodes, each on a LAN behind a NAT of its own.
func threeEach(t *testing.T, prepare func(*lab.Grid, [][]*lab.Place), o linkedOptions) *linkedRig {
	t.Helper()
	l := labtest.New(t, "mesh")
	g, err := lab.NewPlaces(l, kind(t, "port-restricted"), kind(t, "port-restricted"))
	if err != nil {
		t.Fatal(err)
	}
	places := make([][]*lab.Place, len(g.All))
	for i, first := range g.All {
		places[i] = []*lab.Place{first}
		for n := 2; n <= 3; n++ {
			more, err := first.Second(fmt.Sprintf("%s%d", first.Host.Name(), n))
			if err != nil {
				t.Fatal(err)
			}
			places[i] = append(places[i], more)
		}
	}
	bare := bareRig(t, l, g)
	prepare(g, places)
	r := linkedRigOf(bare, places, o)
	r.mirror()
	return r
}

// all are the nodes of all clusters.
func (r *linkedRig) all() (all []*node) {
	for _, c := range r.linked {
		all = append(all, c.nodes...)
	}
	return all
}

// elasticOf is the public address that a NAT has for one node alone.
func elasticOf(cluster, node int) string { return fmt.Sprintf("198.18.%d.%d", cluster+1, node+1) }

// oneToOne has the routers of some clusters translate each node's address to one of its own, and let everybody in.
func (r *rig) oneToOne(g *lab.Grid, places map[int][]*lab.Place) {
	for i, of := range places {
		router := of[0].Router
		err := errors.Join(of[0].NAT.Off(), of[0].Firewall.Off(),
			g.Internet.Route(fmt.Sprintf("198.18.%d.0/24", i+1), of[0].Public4.String()))
		inner := map[netip.Addr]netip.Addr{}
		for n, p := range of {
			inner[netip.MustParseAddr(elasticOf(i, n))] = p.Addr4
		}
		err = errors.Join(err, lab.OneToOne(router, "wan", inner).On())
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestLinkedClustersWithElasticAddresses: clusters whose nodes have public addresses only at a NAT reach each other
// directly by these, which nobody but the objects knows.
func TestLinkedClustersWithElasticAddresses(t *testing.T) {
	t.Parallel()
	r := threeEach(t, func(g *lab.Grid, places [][]*lab.Place) {
		(&rig{t: t, lab: places[0][0].Host.Network(), grid: g}).oneToOne(g, map[int][]*lab.Place{0: places[0], 1: places[1]})
	}, linkedOptions{})
	elastic := [2]map[string]string{{}, {}}
	for i, c := range r.linked {
		for n, of := range c.nodes {
			elastic[i][of.host.Name()] = elasticOf(i, n)
		}
	}
	of := func(cluster int, networkType string) map[string]any {
		return map[string]any{"networkType": networkType, "nodeElasticIPMap": elastic[cluster]}
	}
	r.clusters(of(0, "p2p"), of(1, "p2p"))
	together(r.all()...)
	r.step("node to node", func(t *testing.T) {
		r.bothWays("node to node", r.east.pods[0], r.west.pods[2])
		r.bothWays("node to node", r.east.pods[2], r.west.pods[1])
		r.directAt(r.east.nodes[0], r.west, 2, elasticOf(1, 2))
		r.directAt(r.west.nodes[1], r.east, 2, elasticOf(0, 2))
	})
	r.step("through gateways", func(t *testing.T) {
		r.gateways("a2", "a3", "b2", "b3")
		r.clusters(of(0, "gateway"), of(1, "gateway"))
		r.noPeers(r.east.nodes[0], "west.")
		r.bothWays("through gateways", r.east.pods[0], r.west.pods[0])
		r.bothWays("through gateways", r.east.pods[0], r.west.pods[2])
		r.directAt(r.east.nodes[1], r.west, 1, elasticOf(1, 1))
		r.directAt(r.west.nodes[2], r.east, 2, elasticOf(0, 2))
	})
	r.requireNoClearText(r.all()...)
}

// TestLinkedClustersBehindNAPT: three nodes share one address, whose ports nobody outside knows. They reach a cluster
// with public addresses directly, and are reached by it.
func TestLinkedClustersBehindNAPT(t *testing.T) {
	t.Parallel()
	r := threeEach(t, func(g *lab.Grid, places [][]*lab.Place) {
		(&rig{t: t, lab: places[0][0].Host.Network(), grid: g}).oneToOne(g, map[int][]*lab.Place{1: places[1]})
	}, linkedOptions{})
	elastic := map[string]string{}
	for n, of := range r.west.nodes {
		elastic[of.host.Name()] = elasticOf(1, n)
	}
	west := func(networkType string) map[string]any {
		return map[string]any{"networkType": networkType, "nodeElasticIPMap": elastic}
	}
	r.clusters(p2p(), west("p2p"))
	together(r.all()...)
	r.step("node to node", func(t *testing.T) {
		for n := range r.east.pods {
			r.bothWays("node to node", r.east.pods[n], r.west.pods[2-n])
			r.directAt(r.east.nodes[n], r.west, 2-n, elasticOf(1, 2-n))
		}
	})
	r.step("through gateways", func(t *testing.T) {
		r.gateways("a2", "a3", "b2", "b3")
		r.clusters(map[string]any{"networkType": "gateway"}, west("gateway"))
		r.noPeers(r.east.nodes[0], "west.")
		r.bothWays("through gateways", r.east.pods[0], r.west.pods[0])
		r.bothWays("through gateways", r.west.pods[2], r.east.pods[1])
		r.directAt(r.east.nodes[1], r.west, 1, elasticOf(1, 1))
	})
	r.requireNoClearText(r.all()...)
}

// directAt waits until a node reaches one of another cluster directly, by an address.
func (r *linkedRig) directAt(n *node, c *linkedCluster, number int, at string) {
	r.t.Helper()
	name := c.name + "." + c.nodes[number].host.Name()
	r.eventually(n.name+" reaches "+name+" at "+at, n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if p.Node == name {
				if on, err := netip.ParseAddrPort(p.Path); p.State != direct || err != nil || on.Addr().String() != at {
					return fmt.Errorf("it is %s by %s: %s", p.State, p.Path, p.Why)
				}
				return nil
			}
		}
		return errors.New("there is no such peer")
	})
}

// noPeers waits until a node has no tunnels with those whose names begin with a word.
func (r *linkedRig) noPeers(n *node, word string) {
	r.t.Helper()
	r.eventually(n.name+" has no peer "+word, n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if strings.HasPrefix(p.Node, word) {
				return fmt.Errorf("it has %s", p.Node)
			}
		}
		return nil
	})
}
