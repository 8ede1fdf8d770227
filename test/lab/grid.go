// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// NodePort is the UDP port that a Neighbour has used before the node.
const NodePort = 51820

// The ports of STUN on the public servers.
const (
	STUNPort      = 3478
	STUNOtherPort = 3479
)

// Grid is a world for two nodes: two places on the internet, and two public
// servers that both nodes reach by the IP versions that they have.
//
//	hub    198.51.100.10 2001:db8:100::10 --+             +-- a-router --- LAN --- a
//	                                        +-- internet -+
//	other  198.51.100.20 2001:db8:100::20 --+             +-- b-router --- LAN --- b
//
// Both LANs have the same private range and both nodes the same address in it,
// as in life. STUN answers on three endpoints of each IP version: two ports of
// the hub, one of the other. Port 443 of the hub is free for a relay.
type Grid struct {
	Pair     Pair
	Internet *Host
	Hub      *Host
	Other    *Host
	A, B     *Place // of a pair: the first two
	All      []*Place

	STUN4, STUN6 []netip.AddrPort // hub, hub's other port, other server

	// Cuts of the way between the nodes of a pair, off: what goes to the hub
	// passes. Nil where both are on one LAN.
	Between, AToB, BToA *Filter

	hiding *Filter // on the internet router, for all black holes
}

// Addresses of the public servers.
const (
	HubAddr    = network.HubAddr
	HubAddr6   = "2001:db8:100::10"
	OtherAddr  = network.OtherAddr
	OtherAddr6 = "2001:db8:100::20"
)

// NewGrid builds the world of a pair. Everything that its kinds say is in force.
func NewGrid(l *Lab, pair Pair) (*Grid, error) {
	b := &builder{lab: l}
	g := b.internet()
	g.Pair = pair
	switch {
	case b.err != nil:
	case pair.Near == Apart:
		g.All = []*Place{b.place(g, pair.A, 0), b.place(g, pair.B, 1)}
	case pair.Near == SameLAN:
		first := b.place(g, pair.A, 0)
		g.All = []*Place{first, b.second(first, "b", nil)}
	default:
		carrier := b.carrier(g, "carrier", 0, pair.A, pair.Near == SameCarrierHairpin)
		g.All = []*Place{b.home(g, pair.A, 0, carrier), b.home(g, pair.B, 1, carrier)}
	}
	b.settle(g)
	if b.err != nil {
		return nil, fmt.Errorf("building %s: %w", pair, b.err)
	}
	g.A, g.B = g.All[0], g.All[1]
	g.AToB, g.BToA = g.CutFrom(g.A, g.B), g.CutFrom(g.B, g.A)
	g.Between = g.Cut(g.A, g.B)
	return g, nil
}

// NewPlaces builds a world of up to 16 places, apart, with one node each: a, b, c...
func NewPlaces(l *Lab, kinds ...Kind) (*Grid, error) {
	const most = 16
	if len(kinds) < 1 || len(kinds) > most {
		return nil, fmt.Errorf("a world of %d places: want 1 to %d", len(kinds), most)
	}
	b := &builder{lab: l}
	g := b.internet()
	for i, kind := range kinds {
		if b.err == nil {
			g.All = append(g.All, b.place(g, kind, i))
		}
	}
	b.settle(g)
	if b.err != nil {
		return nil, fmt.Errorf("building %d places: %w", len(kinds), b.err)
	}
	return g, nil
}

// internet makes the middle, with the public servers.
func (b *builder) internet() *Grid {
	g := &Grid{}
	g.Internet = b.router("internet")
	g.Hub = b.server(g.Internet, "hub", HubAddr, HubAddr6)
	g.Other = b.server(g.Internet, "other", OtherAddr, OtherAddr6)
	if b.err != nil {
		return g
	}
	g.hiding = HideTooBig(g.Internet)
	for _, stun := range []struct {
		host *Host
		addr string
		port uint16
		list *[]netip.AddrPort
	}{
		{g.Hub, HubAddr, STUNPort, &g.STUN4}, {g.Hub, HubAddr, STUNOtherPort, &g.STUN4}, {g.Other, OtherAddr, STUNPort, &g.STUN4},
		{g.Hub, HubAddr6, STUNPort, &g.STUN6}, {g.Hub, HubAddr6, STUNOtherPort, &g.STUN6}, {g.Other, OtherAddr6, STUNPort, &g.STUN6},
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr(stun.addr), stun.port)
		b.do(Reflect(stun.host, at))
		*stun.list = append(*stun.list, at)
	}
	return g
}

// CutFrom drops what goes from one place to the other; the answers pass, and so
// does what goes to the hub. Nil where nothing is between them but their LAN.
func (g *Grid) CutFrom(from, to *Place) *Filter {
	if from.Router == to.Router {
		return nil
	}
	at, one, two := g.between(from, to)
	return at.Block(one, two)
}

// Cut is CutFrom in both directions.
func (g *Grid) Cut(from, to *Place) *Filter {
	if from.Router == to.Router {
		return nil
	}
	at, one, two := g.between(from, to)
	return at.BlockBoth(one, two)
}

// between is the router on the way from one place to the other, and its links to them.
func (g *Grid) between(from, to *Place) (at *Host, one, two string) {
	if from.outer == to.outer { // one provider's NAT
		return from.outer, letter(from.index), letter(to.index)
	}
	return g.Internet, from.site, to.site
}

// Second adds a node to a place's LAN. What is around it is the first one's.
func (p *Place) Second(name string) (*Place, error) {
	b := &builder{lab: p.Host.Network()}
	second := b.second(p, name, nil)
	b.do(b.lab.AwaitLinks())
	return second, b.err
}

// MoveTo takes the node out of its LAN and plugs it into another place's, as a
// laptop that is carried there: its programs and sockets go on, its address is
// another. It returns where the node stands then.
func (p *Place) MoveTo(there *Place) (*Place, error) {
	if err := change(p.Host, "eth0", p.Host.Netlink().LinkDel); err != nil {
		return nil, err
	}
	b := &builder{lab: p.Host.Network()}
	moved := b.second(there, "", p.Host)
	b.do(b.lab.AwaitLinks())
	return moved, b.err
}
