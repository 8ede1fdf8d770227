// SPDX-License-Identifier: Apache-2.0

package network

import "fmt"

// The public servers of Homes.
const (
	HubAddr   = "198.51.100.10"
	OtherAddr = "198.51.100.20"

	internetToServers = "198.51.100.1"
	homeAddr          = "192.168.1.10"
	homeRouterAddr    = "192.168.1.1"
)

// Homes is the network that the mesh is for: nodes a, b, c... behind NATs, with
// the same private address, and two public servers.
//
//	hub    198.51.100.10 --+            +-- a-router -- a 192.168.1.10
//	                       +- internet -+
//	other  198.51.100.20 --+            +-- b-router -- b 192.168.1.10
type Homes struct {
	Internet   *Host
	Hub, Other *Host
	All        []*Home
}

// Home is a node behind a NAT of its own. The router's link to the internet is
// called "wan"; its link to the node, and the internet's to it, bear the node's name.
type Home struct {
	Host   *Host
	Router *Host
	NAT    Translation
}

// DirectWith says whether two nodes find a direct path. A NAT that gives each
// destination another port cannot be written to where ports must be known first.
func (h *Home) DirectWith(other *Home) bool {
	passes := func(from, to Translation) bool {
		return from.Mapping != AddressPortDependent || to.Filtering != AddressPortDependent
	}
	return passes(h.NAT, other.NAT) && passes(other.NAT, h.NAT)
}

// NewHomes builds Homes, one for each NAT.
func (n *Network) NewHomes(nats ...Translation) (*Homes, error) {
	const most = 16 // letters, and /30s of the documentation range
	if len(nats) > most {
		return nil, fmt.Errorf("%d homes: want at most %d", len(nats), most)
	}
	w := &Homes{}
	var err error
	if w.Internet, err = n.Router("internet"); err != nil {
		return nil, err
	}
	if w.Hub, err = n.behind(w.Internet, "hub", HubAddr, internetToServers); err != nil {
		return nil, err
	}
	if w.Other, err = n.behind(w.Internet, "other", OtherAddr, internetToServers); err != nil {
		return nil, err
	}
	for i, nat := range nats {
		home, err := n.newHome(w.Internet, i, nat)
		if err != nil {
			return nil, err
		}
		w.All = append(w.All, home)
	}
	return w, n.AwaitLinks()
}

func (n *Network) newHome(internet *Host, index int, nat Translation) (*Home, error) {
	name := string(rune('a' + index))
	router, err := n.Router(name + "-router")
	if err != nil {
		return nil, err
	}
	public, provider := fmt.Sprintf("203.0.113.%d", 4*index+2), fmt.Sprintf("203.0.113.%d", 4*index+1)
	err = n.Link(End{Host: router, Name: "wan", Addr: public}, End{Host: internet, Name: name, Addr: provider})
	if err != nil {
		return nil, err
	}
	if err := router.Default(provider); err != nil {
		return nil, err
	}
	translate, err := router.Translate("wan", nat)
	if err != nil {
		return nil, err
	}
	if err := translate.On(); err != nil {
		return nil, err
	}
	if err := router.DropNew("wan").On(); err != nil {
		return nil, err
	}
	host, err := n.behind(router, name, homeAddr, homeRouterAddr)
	return &Home{Host: host, Router: router, NAT: nat}, err
}

// behind adds a host that reaches all others through the router.
func (n *Network) behind(router *Host, name, addr, routerAddr string) (*Host, error) {
	host, err := n.Host(name)
	if err != nil {
		return nil, err
	}
	err = n.Link(End{Host: host, Name: "eth0", Addr: addr}, End{Host: router, Name: name, Addr: routerAddr})
	if err != nil {
		return nil, err
	}
	return host, host.Default(routerAddr)
}
