// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
)

// Expectation is what theory says of a pair.
type Expectation struct {
	Direct   bool  // by UDP, from node to node
	Families []int // 4, 6 or both: by which; none when not direct
	MTU      int   // of the direct way, in bytes of IP; 0 when not direct
	// Proxies says who reaches a relay on TCP 443 through a proxy only: A, B.
	// Everybody reaches one.
	Proxies [2]bool
	Why     string
}

// lanMTU is that of every link that is not made smaller.
const lanMTU = 1500

// Theory says whether nodes of two kinds, apart, find a direct way by standard
// hole punching: each learns its outer endpoint by STUN and tells the other (by
// the relay), both send to the other's again and again, and each answers to where
// it sees a packet come from. Nobody guesses ports.
func Theory(a, b Kind) Expectation { return Pair{A: a, B: b}.Theory() }

// Theory says the same of a pair that may be near.
func (p Pair) Theory() Expectation {
	e := Expectation{Proxies: [2]bool{p.A.ProxyOnly, p.B.ProxyOnly}}
	var why []string
	for _, family := range []int{4, 6} {
		has, reason := p.direct(family)
		why = append(why, fmt.Sprintf("IPv%d: %s", family, reason))
		if has {
			e.Direct, e.MTU = true, p.mtu()
			e.Families = append(e.Families, family)
		}
	}
	e.Why = strings.Join(why, "; ")
	return e
}

func (p Pair) mtu() int {
	mtu := lanMTU
	for _, k := range []Kind{p.A, p.B} {
		if k.MTU != 0 && p.Near != SameLAN {
			mtu = min(mtu, k.MTU)
		}
	}
	return mtu
}

// direct decides for one IP version.
func (p Pair) direct(family int) (bool, string) {
	aHas, a := p.A.by(family)
	bHas, b := p.B.by(family)
	switch {
	case !aHas && !bHas:
		return false, "neither has it"
	case !aHas || !bHas:
		return false, "one side has none"
	case p.Near == SameLAN:
		return true, "one LAN, nothing is between them"
	case a.Mapping == Blocked || b.Mapping == Blocked:
		return false, "UDP is blocked"
	case p.Near == SameCarrier:
		return false, "one public address, and its NAT does not turn packets round"
	case p.Near == SameCarrierHairpin && a.Mapping == Independent && b.Mapping == Independent:
		return true, "one public address, and its NAT turns packets round"
	case p.Near == SameCarrierHairpin:
		return false, "one public address, and ports that nobody knows"
	case reaches(a, b):
		return true, "B lets A in: " + lets(b, a)
	case reaches(b, a):
		return true, "A lets B in: " + lets(a, b)
	case a.Mapping != Independent && b.Mapping != Independent:
		return false, "both have another port for each destination: nobody knows where to send"
	}
	return false, "one has another port for each destination, the other lets in known ports only"
}

// by returns whether the kind has addresses of the family, and what UDP does.
func (k Kind) by(family int) (bool, UDP) {
	if family == 6 {
		return k.IPv6, k.V6
	}
	if k.PortMapping {
		return k.IPv4, UDP{Independent, Independent} // at the endpoint that it asked for
	}
	return k.IPv4, k.V4
}

// reaches says whether the first packet can come from one to the other's outer
// endpoint that STUN told, while both send. Then the other answers to where it
// saw the packet come from, and both ways are open.
func reaches(from, to UDP) bool {
	switch to.Filtering {
	case Independent:
		return true
	case AddressDependent:
		return to.Mapping == Independent // it has written to that address from there
	case AddressPortDependent:
		// It has written to the very port: the one that STUN told must be the one
		// that the sender bears.
		return to.Mapping == Independent && from.Mapping == Independent
	}
	return false
}

func lets(to, from UDP) string {
	switch {
	case to.Filtering == Independent:
		return "anybody may come"
	case to.Filtering == AddressDependent:
		return "it has written to the address"
	}
	return "each has written to the other's one port"
}
