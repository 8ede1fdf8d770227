// SPDX-License-Identifier: Apache-2.0

package network

import "fmt"

// The addresses of a World. Both sites use the same range on purpose. All are
// documentation or private ranges, and exist inside the namespaces only.
const (
	ControlAddr = "198.51.100.10"
	SiteRange   = "10.42.0.0/16"
	BackendAddr = "10.42.0.80"

	internetToControl = "198.51.100.1"
	siteGatewayAddr   = "10.42.0.1"
)

// World is the network that Tombolo is for: a control plane on the public
// internet, and sites behind NAT that nobody can dial into.
//
//	control --- internet --+-- gateway1 (masquerade, drops what comes in) --+-- agents
//	198.51.100.10          |                                               +-- backend 10.42.0.80
//	                       +-- gateway2 (the same) --+-- agents
//	                                                 +-- backend 10.42.0.80
type World struct {
	Control  *Host
	Internet *Host
	Sites    []*Site
}

// Site is one private network. Its gateway's uplink is called "wan", its links
// into the site bear the names of the hosts there.
type Site struct {
	Gateway *Host
	Public  string // the gateway's address on the internet
	Agents  []*Host
	Backend *Host

	NAT      *Filter // on
	Firewall *Filter // on: drops what comes in from the internet
	Uplink   *Filter // off: cuts the site from the internet, silently
}

// NewWorld builds a World with so many sites of so many agent hosts each.
func (n *Network) NewWorld(sites, agents int) (*World, error) {
	const most = 60 // /30s of the documentation range; hosts below the backend's address
	if sites < 1 || sites > most || agents < 1 || agents > most {
		return nil, fmt.Errorf("a world of %d sites with %d agents: want 1 to %d of both", sites, agents, most)
	}
	w := &World{}
	var err error
	if w.Internet, err = n.Router("internet"); err != nil {
		return nil, err
	}
	if w.Control, err = n.behind(w.Internet, "control", ControlAddr, internetToControl); err != nil {
		return nil, err
	}
	for i := range sites {
		site, err := n.newSite(w.Internet, i, agents)
		if err != nil {
			return nil, err
		}
		w.Sites = append(w.Sites, site)
	}
	return w, nil
}

func (n *Network) newSite(internet *Host, index, agents int) (*Site, error) {
	number := index + 1
	gateway, err := n.Router(fmt.Sprintf("gateway%d", number))
	if err != nil {
		return nil, err
	}
	s := &Site{
		Gateway: gateway, Public: fmt.Sprintf("203.0.113.%d", 4*index+2),
		NAT: gateway.Masquerade("wan"), Firewall: gateway.DropNew("wan"), Uplink: gateway.Partition("wan"),
	}
	provider := fmt.Sprintf("203.0.113.%d", 4*index+1)
	err = n.Link(End{Host: gateway, Name: "wan", Addr: s.Public},
		End{Host: internet, Name: fmt.Sprintf("site%d", number), Addr: provider})
	if err != nil {
		return nil, err
	}
	if err := gateway.Default(provider); err != nil {
		return nil, err
	}
	if err := s.NAT.On(); err != nil {
		return nil, err
	}
	if err := s.Firewall.On(); err != nil {
		return nil, err
	}
	for k := range agents {
		name := fmt.Sprintf("agent%d", k+1)
		host, err := n.inSite(s, number, name, fmt.Sprintf("10.42.0.%d", 11+k))
		if err != nil {
			return nil, err
		}
		s.Agents = append(s.Agents, host)
	}
	s.Backend, err = n.inSite(s, number, "backend", BackendAddr)
	return s, err
}

// inSite adds a host behind a site's gateway.
func (n *Network) inSite(s *Site, number int, name, addr string) (*Host, error) {
	host, err := n.Host(fmt.Sprintf("s%d-%s", number, name))
	if err != nil {
		return nil, err
	}
	err = n.Link(End{Host: host, Name: "eth0", Addr: addr}, End{Host: s.Gateway, Name: name, Addr: siteGatewayAddr})
	if err != nil {
		return nil, err
	}
	return host, host.Default(siteGatewayAddr)
}
