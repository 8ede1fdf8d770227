// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Asked is the result of a request to a STUN server. All requests of a check come from one socket
// for each family.
type Asked struct {
	Server Server
	Mapped netip.AddrPort // not valid: no answer
	RTT    time.Duration
	Why    string // there is none
}

// Tri is yes, no, or unknown.
type Tri string

// The answers.
const (
	Unknown Tri = "unknown"
	Yes     Tri = "yes"
	No      Tri = "no"
)

// TriOf converts a fact that was found out.
func TriOf(yes bool) Tri {
	if yes {
		return Yes
	}
	return No
}

// Tried is an attempt to have a port mapped.
type Tried struct {
	Method string `json:"method"`
	Why    string `json:"why,omitempty"` // it is not used
}

// PortMapping is the router's answer to the request for a port.
type PortMapping struct {
	Method   string         `json:"method,omitempty"` // nat-pmp or upnp; empty: none
	External netip.AddrPort `json:"external,omitzero"`
	Lifetime time.Duration  `json:"-"`
	Tried    []Tried        `json:"tried,omitempty"`
}

// Relay is what is known about a hub as a relay.
type Relay struct {
	Name    string
	Latency time.Duration
	Why     string // it cannot be reached
}

// Facts are what a check found out.
type Facts struct {
	Own       []netip.Addr     // addresses of this machine, as Own lists them
	Sockets   []netip.AddrPort // local endpoints of the sockets; an unspecified address for all
	Asked     []Asked
	OtherPort []Asked // of servers with another port: the answers were wished from there
	Beside    []Asked // both ports of such servers, from a socket beside those of Asked
	Hairpin   Tri
	Mapping   *PortMapping // nil: nobody was asked
	Relays    []Relay
}

// Behaviour is how a NAT chooses or filters, in the terms of RFC 4787.
type Behaviour string

// The behaviours.
const (
	NotKnown             Behaviour = "unknown"
	None                 Behaviour = "none" // nothing translates
	EndpointIndependent  Behaviour = "endpoint-independent"
	AddressDependent     Behaviour = "address-dependent"
	AddressPortDependent Behaviour = "address-and-port-dependent"
	// DestinationDependent is one of the last two: no server was asked at two ports.
	DestinationDependent Behaviour = "address-dependent or address-and-port-dependent"
	// AtMostAddress is endpoint-independent or address-dependent: only a server with two
	// addresses could tell them apart.
	AtMostAddress Behaviour = "endpoint-independent or address-dependent"
)

// Family is what is known about one IP version.
type Family struct {
	Address   Tri              `json:"address"`          // the machine has one that others may try
	UDP       Tri              `json:"udp"`              // a STUN server answered
	Mapped    []netip.AddrPort `json:"mapped,omitempty"` // as servers see the socket
	NAT       Tri              `json:"nat"`              // something translates
	Mapping   Behaviour        `json:"mapping"`
	Filtering Behaviour        `json:"filtering"`
}

// Report is what is known about the network in front of a node.
type Report struct {
	UDP         Tri
	IPv4, IPv6  Family
	Varies      Tri // the mapping is another one for other destinations
	Hairpin     Tri
	PortMapping *PortMapping
	CGNAT       Tri    // a provider's NAT is suspected behind the router's
	CGNATWhy    string // or why not
	Relays      []Relay
	Servers     []Asked
}

// Classify interprets facts.
func Classify(f Facts) Report {
	r := Report{
		IPv4: f.family(true), IPv6: f.family(false), Hairpin: f.Hairpin, PortMapping: f.Mapping,
		Relays: slices.Clone(f.Relays), Servers: slices.Clone(f.Asked),
	}
	if r.Hairpin == "" {
		r.Hairpin = Unknown
	}
	r.UDP = either(r.IPv4.UDP, r.IPv6.UDP)
	r.Varies = either(varies(r.IPv4.Mapping), varies(r.IPv6.Mapping))
	r.CGNAT, r.CGNATWhy = f.cgnat(r.IPv4)
	slices.SortStableFunc(r.Relays, func(a, b Relay) int {
		return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a.Latency, b.Latency))
	})
	return r
}

// rankOf puts reachable relays before the others.
func rankOf(l Relay) int {
	if l.Why == "" {
		return 0
	}
	return 1
}

// either is yes if one is, no if none is and at least one is no.
func either(a, b Tri) Tri {
	switch {
	case a == Yes || b == Yes:
		return Yes
	case a == No || b == No:
		return No
	}
	return Unknown
}

func varies(b Behaviour) Tri {
	switch b {
	case NotKnown:
		return Unknown
	case None, EndpointIndependent:
		return No
	}
	return Yes
}

func (f Facts) family(v4 bool) Family {
	mine := func(a netip.Addr) bool { return a.Unmap().Is4() == v4 }
	out := Family{Address: No, UDP: Unknown, NAT: Unknown, Mapping: NotKnown, Filtering: NotKnown}
	if slices.ContainsFunc(f.Own, mine) {
		out.Address = Yes
	}
	var answers []Asked
	for _, a := range f.Asked {
		if !mine(a.Server.Addr.Addr()) {
			continue
		}
		if !a.Mapped.IsValid() {
			out.UDP = either(out.UDP, No)
			continue
		}
		out.UDP = Yes
		answers = append(answers, a)
		if !slices.Contains(out.Mapped, a.Mapped) {
			out.Mapped = append(out.Mapped, a.Mapped)
		}
	}
	slices.SortFunc(out.Mapped, netip.AddrPort.Compare)
	if len(answers) > 0 {
		out.NAT = TriOf(slices.ContainsFunc(answers, func(a Asked) bool { return !f.local(a.Mapped) }))
		out.Mapping = mapping(answers, f.beside(mine), out.NAT)
		out.Filtering = f.filtering(answers)
	}
	return out
}

// local reports whether an endpoint is one of the sockets' own.
func (f Facts) local(m netip.AddrPort) bool {
	return slices.ContainsFunc(f.Sockets, func(s netip.AddrPort) bool {
		if s.Port() != m.Port() {
			return false
		}
		a := s.Addr().Unmap()
		return a == m.Addr() || a.IsUnspecified() && slices.Contains(f.Own, m.Addr())
	})
}

// beside are the answers for the other socket.
func (f Facts) beside(mine func(netip.Addr) bool) (out []Asked) {
	for _, a := range f.Beside {
		if mine(a.Server.Addr.Addr()) && a.Mapped.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// mapping compares what servers see of one socket. Two ports of one server say more than two
// servers.
func mapping(answers, beside []Asked, nat Tri) Behaviour {
	if nat == No {
		return None
	}
	var addresses, ports, sameAddress, pairs bool
	compare := func(a, b Asked) {
		x, y := a.Server.Addr, b.Server.Addr
		if x == y {
			return
		}
		pairs = true
		differ := a.Mapped != b.Mapped
		if x.Addr() == y.Addr() {
			sameAddress = true
			ports = ports || differ
		} else {
			addresses = addresses || differ
		}
	}
	for _, group := range [][]Asked{answers, beside} {
		for i, a := range group {
			for _, b := range group[i+1:] {
				compare(a, b)
			}
		}
	}
	switch {
	case ports:
		return AddressPortDependent
	case addresses && sameAddress:
		return AddressDependent
	case addresses:
		return DestinationDependent
	case pairs && distinct(answers):
		return EndpointIndependent
	}
	return NotKnown
}

// distinct reports whether servers with different addresses answered: two ports of one say nothing
// about another address.
func distinct(answers []Asked) bool {
	return slices.ContainsFunc(answers,
		func(a Asked) bool { return a.Server.Addr.Addr() != answers[0].Server.Addr.Addr() })
}

// filtering interprets answers from another port of a server. It also applies without translation:
// to a firewall.
func (f Facts) filtering(answers []Asked) Behaviour {
	out := NotKnown
	for _, a := range f.OtherPort {
		i := slices.IndexFunc(answers, func(b Asked) bool { return b.Server.Addr == a.Server.Addr })
		switch {
		case i < 0:
		case a.Mapped.IsValid():
			return AtMostAddress
		default:
			out = AddressPortDependent
		}
	}
	return out
}

// cgnat detects a carrier-grade NAT by its address range, by an outer address of the router that is
// not public, or that differs from the one seen from outside.
func (f Facts) cgnat(v4 Family) (Tri, string) {
	shared := func(a netip.Addr) bool { return a.Is4() && IsShared(a) }
	if i := slices.IndexFunc(f.Own, shared); i >= 0 {
		return Yes, "this machine has " + f.Own[i].String() + ", of the range for providers' NATs (RFC 6598)"
	}
	if f.Mapping != nil && f.Mapping.External.IsValid() {
		outer := f.Mapping.External.Addr()
		switch seen := v4.addresses(); {
		case !IsPublic(outer):
			return Yes, "the router's outer address " + outer.String() + " is not public"
		case len(seen) > 0 && !slices.Contains(seen, outer):
			return Yes, "the router's outer address is " + outer.String() + ", and the world sees " + seen[0].String()
		case len(seen) > 0:
			return No, "the router's outer address is the one that the world sees"
		}
	}
	if v4.NAT == No {
		return No, "nothing translates IPv4"
	}
	return Unknown, ""
}

func (f Family) addresses() []netip.Addr {
	var out []netip.Addr
	for _, m := range f.Mapped {
		if !slices.Contains(out, m.Addr()) {
			out = append(out, m.Addr())
		}
	}
	return out
}
