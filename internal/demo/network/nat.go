// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Behaviour is what a NAT or firewall goes by for UDP, in the words of RFC 4787
// (sections 4.1 and 5): the larger, the stricter.
type Behaviour int

// The behaviours. For a mapping they say what of the destination must be equal
// for a packet of one inner socket to bear the same outer port; for filtering,
// what of the sender must have been sent to before it is let in.
const (
	Blocked              Behaviour = iota // no UDP at all
	Independent                           // nothing
	AddressDependent                      // the address
	AddressPortDependent                  // the address and the port
)

func (b Behaviour) String() string {
	return [...]string{"blocked", "endpoint-independent", "address-dependent", "address-and-port-dependent"}[b]
}

// Translation is a kind of NAT, for UDP over IPv4. Other protocols are
// masqueraded.
//
//	Translation{Mapping: Independent, Filtering: AddressPortDependent}          // a home router
//	Translation{Mapping: Independent, Filtering: Independent}                   // full cone
//	Translation{Mapping: AddressPortDependent, Filtering: AddressPortDependent} // symmetric
type Translation struct {
	Mapping   Behaviour
	Filtering Behaviour
	// Hairpin lets hosts behind the NAT reach each other by their outer
	// endpoints (RFC 4787 section 6); it does not filter.
	Hairpin bool
	// FirstPort and LastPort are the outer ports, both or none. None: a port is
	// kept where it is free.
	FirstPort, LastPort uint16
	// Lifetime is how long a mapping lives without a packet from inside; 0: two
	// minutes. It is not that of the kernel's connections.
	Lifetime time.Duration
}

// Translate returns the NAT, off, for what leaves through the link. Its count is
// the number of connections that it translated. A firewall
// in front of it (DropNew) belongs to every kind: without it, a packet from
// outside that comes first takes the place that the mapping needs.
//
// A plain home router or symmetric NAT is the kernel's own masquerade. The others
// keep their mappings in nftables maps that packets from inside fill:
//
//	out: inner address . port [. destination] -> outer port
//	in:  outer port -> inner address . port
//	met: outer port . address [. port] that was sent to
func (h *Host) Translate(link string, t Translation) (*Filter, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("NAT of %s on %s: %w", h.name, link, err)
	}
	f := &Filter{host: h, table: "nat-" + link, family: nftables.TableFamilyIPv4}
	e := engine{link: link, t: t}
	if !t.kept() {
		f.chains = []Chain{{Name: "out", Type: nftables.ChainTypeNAT,
			Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
			Rules: [][]expr.Any{Rule(Through(expr.MetaKeyOIFNAME, link),
				&expr.Masq{FullyRandom: t.Mapping == AddressPortDependent})}}}
		return f, nil
	}
	f.sets = e.sets()
	f.fresh = func() error {
		own, err := h.Addr4(link)
		if err != nil {
			return err
		}
		e.own = own.As4()
		f.chains = e.chains()
		return nil
	}
	return f, nil
}

func (t Translation) check() error {
	switch {
	case t.Mapping < Independent || t.Mapping > AddressPortDependent ||
		t.Filtering < Independent || t.Filtering > AddressPortDependent:
		return fmt.Errorf("mapping %d, filtering %d: want behaviours of RFC 4787", t.Mapping, t.Filtering)
	case t.Mapping != Independent && (t.Filtering != AddressPortDependent || t.Hairpin):
		return fmt.Errorf("%s mapping with %s filtering, hairpin %v: only built strict and without",
			t.Mapping, t.Filtering, t.Hairpin)
	case t.Mapping == AddressPortDependent && t.FirstPort != 0:
		return fmt.Errorf("%s mapping to a range of ports: not built", t.Mapping)
	case (t.FirstPort == 0) != (t.LastPort == 0) || t.FirstPort > t.LastPort:
		return fmt.Errorf("ports %d to %d: want a range", t.FirstPort, t.LastPort)
	}
	return nil
}

// kept says whether mappings are kept in maps.
func (t Translation) kept() bool {
	return t.Mapping == AddressDependent ||
		t.Mapping == Independent && (t.Filtering != AddressPortDependent || t.Hairpin || t.FirstPort != 0)
}
