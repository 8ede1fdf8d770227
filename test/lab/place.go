// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Place is where a node of a grid stands: its host, and what is between it and
// the internet. Filters can be switched during a test; those that the kind asks
// for are on.
type Place struct {
	Kind      Kind
	Host      *Host
	Router    *Host
	Carrier   *Host // of kinds behind a provider's NAT
	Neighbour *Host // of crowded kinds

	Addr4, Addr6 netip.Addr // the host's own
	Public4      netip.Addr // as the internet sees it

	Gateway4 netip.Addr // the router's address on the LAN: NAT-PMP is asked there
	Proxy    *Proxy     // of kinds that have nothing else; HTTPS_PROXY=http:// and its Addr
	Mapping  *PortMapping

	NAT, CarrierNAT           *Filter // nil without
	Firewall, CarrierFirewall *Filter // what begins outside is dropped
	IPv4Block, IPv6Block      *Filter // off: one IP version does not pass the router
	UDPBlock                  *Filter // at the router, outwards and inwards
	AllBlock                  *Filter // the same for everything that is forwarded
	Uplink                    *Filter // off: cuts the place from the internet, silently
	UplinkIn, UplinkOut       *Filter // off: one direction of it
	LossIn, LossOut           *Filter // one packet in LoseOneIn of the kind, or in ten
	Delay                     *Delay  // nil where the kind has none

	grid    *Grid
	outer   *Host  // whose "wan" is on the internet: the carrier, or the router
	site    string // the internet's link to it
	hiding  *Filter
	clamp   *Filter
	moves   int // how often it was renumbered
	index   int
	nodes   *int       // on the LAN
	gateway netip.Addr // the internet's address on the link
}

// Forget loses the NAT's mappings, as when the router is switched off and on.
func (p *Place) Forget() error {
	var errs []error
	if p.NAT != nil {
		errs = append(errs, p.NAT.Off(), p.NAT.On())
	}
	errs = append(errs, ForgetConnections(p.Router))
	if p.CarrierNAT != nil {
		errs = append(errs, p.CarrierNAT.Off(), p.CarrierNAT.On(), ForgetConnections(p.Carrier))
	}
	return errors.Join(errs...)
}

// ForgetAfter sets how long the place's routers keep a mapping without packets,
// in whole seconds, for mappings that the kernel keeps itself (home routers and
// symmetric NATs).
func (p *Place) ForgetAfter(d time.Duration) error {
	var errs []error
	for _, router := range []*Host{p.Router, p.Carrier} {
		if router != nil {
			errs = append(errs, ForgetAfter(router, d, d))
		}
	}
	return errors.Join(errs...)
}

// BlackHole makes the way to the internet narrow: bigger packets vanish without
// a word. TCP is told in time, as home routers do it. 0 makes it wide again.
func (p *Place) BlackHole(mtu int) error {
	if p.clamp != nil {
		if err := errors.Join(p.clamp.Off(), p.hiding.Off()); err != nil {
			return err
		}
	}
	width := lanMTU
	if mtu != 0 {
		width = mtu
		p.clamp, p.hiding = ClampMSS(p.outer, mtu), HideTooBig(p.outer)
		if err := errors.Join(p.clamp.On(), p.hiding.On(), p.grid.hiding.On()); err != nil {
			return err
		}
	}
	return errors.Join(setMTU(p.outer, "wan", width), setMTU(p.grid.Internet, p.site, width))
}

// SwallowedTooBig returns how many words on too big packets were kept back on
// either side of the narrow link since the grid began.
func (p *Place) SwallowedTooBig() (uint64, error) {
	inward, err := p.grid.hiding.Packets()
	if err != nil || p.hiding == nil {
		return inward, err
	}
	outward, err := p.hiding.Packets()
	return inward + outward, err
}

// Renumber gives the place a new public IPv4 address, as a provider does at
// night, and takes the old one away. It returns the new one.
func (p *Place) Renumber() (netip.Addr, error) {
	const most, places = 15, 4 // beyond, an address would be another place's
	if p.NAT == nil {
		return netip.Addr{}, fmt.Errorf("renumbering %s: only a NAT's address can change without its hosts'", p.Kind.Name)
	}
	if p.moves >= most || len(p.grid.All) > places {
		return netip.Addr{}, fmt.Errorf("renumbering %s: no address is free after %d times, with %d places",
			p.Kind.Name, p.moves, len(p.grid.All))
	}
	old := p.Public4
	bytes := old.As4()
	bytes[3] += 16
	fresh := netip.AddrFrom4(bytes)
	p.moves++
	nat := p.NAT
	if p.CarrierNAT != nil {
		nat = p.CarrierNAT
	}
	for _, step := range []func() error{
		func() error {
			return readdress(p.outer, "wan", [2]netip.Addr{old, p.gateway}, [2]netip.Addr{fresh, p.gateway})
		},
		func() error {
			return readdress(p.grid.Internet, p.site, [2]netip.Addr{p.gateway, old}, [2]netip.Addr{p.gateway, fresh})
		},
		func() error { return redefault(p.outer, p.gateway) },
		nat.Off, nat.On, // it loses its mappings, as routers do when they connect anew
		func() error { return ForgetConnections(p.outer) },
	} {
		if err := step(); err != nil {
			return netip.Addr{}, fmt.Errorf("renumbering %s: %w", p.Kind.Name, err)
		}
	}
	p.Public4 = fresh
	return fresh, nil
}
