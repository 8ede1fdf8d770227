// SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// UDP is what UDP of one IP version may do at a place. The zero value: nothing.
type UDP struct {
	Mapping, Filtering Behaviour
}

// Kind is a kind of place where a node may stand: what is between it and the
// internet. It is plain data: Theory reads it, NewGrid builds it.
type Kind struct {
	Name   string
	Stands string // for what in the world

	IPv4, IPv6 bool // whether it has addresses; TCP to port 443 goes out by them
	V4, V6     UDP

	NAT         bool // its IPv4 addresses are private
	Carrier     bool // the NAT's own address is private too (100.64.0.0/10): another is behind it
	Neighbour   bool // another host on the LAN has used the node's port first
	ProxyOnly   bool // nothing goes out but through an HTTP CONNECT proxy, to port 443
	PortMapping bool // the router maps ports on request (NAT-PMP, UPnP)

	MTU       int    // of the way out, if it is small; ICMP does not tell
	LoseOneIn uint32 // packets on the way out and in, if any

	// Delay is that of the way out, each way. No kind of the list has one; a test
	// may give it to a copy, 1 ns to have a link whose Delay can be set later.
	Delay time.Duration
}

// Kinds lists the kinds of places, each once.
func Kinds() []Kind {
	cone := UDP{Independent, Independent}
	byAddress := UDP{Independent, AddressDependent}
	byPort := UDP{Independent, AddressPortDependent} // a stateful firewall without NAT too
	symmetric := UDP{AddressPortDependent, AddressPortDependent}
	return []Kind{
		{Name: "open", Stands: "a server with public addresses and no firewall",
			IPv4: true, IPv6: true, V4: cone, V6: cone},
		{Name: "firewalled", Stands: "a server with a public address that lets in what it asked for",
			IPv4: true, V4: byPort},
		{Name: "full-cone", Stands: "a home router that lets anybody in to a port in use",
			IPv4: true, NAT: true, V4: cone},
		{Name: "restricted", Stands: "a home router that lets in whom the node has written to",
			IPv4: true, NAT: true, V4: byAddress},
		{Name: "port-restricted", Stands: "the usual home router: Linux masquerade with a firewall",
			IPv4: true, NAT: true, V4: byPort},
		{Name: "crowded", Stands: "the same, where a neighbour has the node's port already",
			IPv4: true, NAT: true, Neighbour: true, V4: byPort},
		{Name: "symmetric", Stands: "a NAT gateway of a cloud or company: another port for each destination",
			IPv4: true, NAT: true, V4: symmetric},
		{Name: "cgnat", Stands: "a home router behind a provider's NAT that keeps mappings (RFC 6888)",
			IPv4: true, NAT: true, Carrier: true, V4: byPort},
		{Name: "cgnat-symmetric", Stands: "a mobile provider: another port for each destination",
			IPv4: true, NAT: true, Carrier: true, V4: symmetric},
		{Name: "udp-blocked", Stands: "a company network that lets TCP out and no UDP",
			IPv4: true, NAT: true},
		{Name: "proxy-only", Stands: "a company network with nothing but an HTTP proxy to port 443",
			IPv4: true, NAT: true, ProxyOnly: true},
		{Name: "ipv6-only", Stands: "a network without IPv4, with the usual firewall",
			IPv6: true, V6: byPort},
		{Name: "dual-stack", Stands: "a home with IPv6 and a home router's NAT for IPv4",
			IPv4: true, IPv6: true, NAT: true, V4: byPort, V6: byPort},
		{Name: "dual-symmetric", Stands: "a mobile network: IPv6, and a symmetric NAT for IPv4",
			IPv4: true, IPv6: true, NAT: true, V4: symmetric, V6: byPort},
		{Name: "black-hole", Stands: "a home behind a tunnel with small packets, where ICMP is dropped",
			IPv4: true, NAT: true, MTU: 1360, V4: byPort},
		{Name: "lossy", Stands: "a home with bad wireless: one packet in ten is lost, each way",
			IPv4: true, NAT: true, LoseOneIn: 10, V4: byPort},
		{Name: "port-mapped", Stands: "a symmetric NAT that opens ports on request (NAT-PMP, UPnP)",
			IPv4: true, NAT: true, PortMapping: true, V4: symmetric},
	}
}

// KindOf returns the kind of that name.
func KindOf(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Near says how two places stand to each other.
type Near int

// The ways for places to be near.
const (
	Apart              Near = iota // the internet is between them
	SameLAN                        // two hosts of one place, of A's kind
	SameCarrier                    // two homes behind one provider's NAT, without hairpin
	SameCarrierHairpin             // the same with hairpin
)

func (n Near) String() string {
	return [...]string{"apart", "same LAN", "same carrier", "same carrier with hairpin"}[n]
}

// Pair is two nodes that want to reach each other.
type Pair struct {
	A, B Kind
	Near Near
}

func (p Pair) String() string {
	name := p.A.Name + ":" + p.B.Name
	if p.Near != Apart {
		name += ":" + p.Near.String()
	}
	return name
}

// Pairs lists every pair of kinds, each once, and the pairs that are near.
func Pairs() []Pair {
	var pairs []Pair
	kinds := Kinds()
	for i, a := range kinds {
		for _, b := range kinds[i:] {
			pairs = append(pairs, Pair{A: a, B: b})
		}
	}
	return append(pairs, nearPairs()...)
}

func nearPairs() []Pair {
	var pairs []Pair
	for _, k := range Kinds() {
		if k.NAT || k.Name == "ipv6-only" {
			pairs = append(pairs, Pair{k, k, SameLAN})
		}
		if k.Carrier && k.V4.Mapping == Independent {
			pairs = append(pairs, Pair{k, k, SameCarrier}, Pair{k, k, SameCarrierHairpin})
		}
	}
	return pairs
}

// Covering lists a part of Pairs in which every kind meets itself, the usual
// home router and the symmetric NAT, and comes to be direct and to be relayed if
// it ever does; and every way to be near.
func Covering() []Pair {
	type outcome struct {
		name   string
		direct bool
	}
	var pairs, rest []Pair
	seen, near := map[outcome]bool{}, map[Near]bool{}
	take := func(p Pair) {
		direct := p.Theory().Direct
		seen[outcome{p.A.Name, direct}], seen[outcome{p.B.Name, direct}] = true, true
		pairs = append(pairs, p)
	}
	for _, p := range Pairs() {
		with := func(name string) bool { return p.A.Name == name || p.B.Name == name }
		switch {
		case p.Near != Apart:
			if p.Near != SameLAN || !near[SameLAN] || p.A.ProxyOnly {
				near[p.Near] = true
				pairs = append(pairs, p)
			}
		case p.A.Name == p.B.Name || with("port-restricted") || with("symmetric"):
			take(p)
		default:
			rest = append(rest, p)
		}
	}
	for _, p := range rest {
		direct := p.Theory().Direct
		if !seen[outcome{p.A.Name, direct}] || !seen[outcome{p.B.Name, direct}] {
			take(p)
		}
	}
	return pairs
}
