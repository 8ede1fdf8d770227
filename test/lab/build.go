// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
)

// builder makes the parts of a grid. After the first error it does nothing.
type builder struct {
	lab *Lab
	err error
}

func (b *builder) do(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) host(name string) *Host   { return b.made(name, b.lab.Host) }
func (b *builder) router(name string) *Host { return b.made(name, b.lab.Router) }

func (b *builder) made(name string, by func(string) (*Host, error)) *Host {
	if b.err != nil {
		return nil
	}
	h, err := by(name)
	b.do(err)
	return h
}

// server adds a public server of both IP versions.
func (b *builder) server(internet *Host, name, addr, addr6 string) *Host {
	const gateway, gateway6 = "198.51.100.1", "2001:db8:100::1"
	h := b.host(name)
	if b.err != nil {
		return nil
	}
	b.do(b.lab.Link(End{Host: h, Name: "eth0", Addr: addr, Addr6: addr6},
		End{Host: internet, Name: name, Addr: gateway, Addr6: gateway6}))
	b.routes(h, gateway, gateway6)
	return h
}

// routes sends everything to a neighbour, by the IP versions that are given.
func (b *builder) routes(h *Host, via ...string) {
	for _, gateway := range via {
		if b.err == nil && gateway != "" {
			b.do(h.Default(gateway))
		}
	}
}

// carrierNAT is a provider's NAT with its firewall, on.
type carrierNAT struct {
	host     *Host
	nat      *Filter
	firewall *Filter
	up       uplink
}

// uplink is a router's link to the internet.
type uplink struct {
	site            string // the internet's end of it
	public, gateway netip.Addr
	delay           *Delay
}

// uplink gives the router its "wan" on the internet.
func (b *builder) uplink(g *Grid, router *Host, index int, kind Kind) uplink {
	u := uplink{site: letter(index)}
	here, there := End{Host: router, Name: "wan"}, End{Host: g.Internet, Name: u.site}
	if kind.IPv4 {
		// Not a documentation range where ports are mapped: miniupnpd refuses to
		// map where the outer address cannot be a public one.
		format := "203.0.113.%d"
		if kind.PortMapping {
			format = "192.0.1.%d"
		}
		here.Addr, there.Addr = fmt.Sprintf(format, 4*index+2), fmt.Sprintf(format, 4*index+1)
		u.public, u.gateway = netip.MustParseAddr(here.Addr), netip.MustParseAddr(there.Addr)
	}
	if kind.IPv6 {
		here.Addr6, there.Addr6 = fmt.Sprintf("2001:db8:f:%d::2", index), fmt.Sprintf("2001:db8:f:%d::1", index)
	}
	if b.err != nil {
		return u
	}
	if kind.Delay == 0 {
		b.do(b.lab.Link(here, there))
	} else {
		var err error
		u.delay, err = SlowLink(b.lab, here, there, kind.Delay)
		b.do(err)
	}
	b.routes(router, there.Addr, there.Addr6)
	return u
}

func letter(index int) string { return string(rune('a' + index)) }

// carrier makes a provider's NAT. Its outer ports are a range of their own, as
// providers do it to know their customers by the port.
func (b *builder) carrier(g *Grid, name string, index int, kind Kind, hairpin bool) *carrierNAT {
	c := &carrierNAT{host: b.router(name)}
	c.up = b.uplink(g, c.host, index, kind)
	if b.err != nil {
		return nil
	}
	t := Translation{Mapping: kind.V4.Mapping, Filtering: AddressPortDependent, Hairpin: hairpin}
	if t.Mapping == Independent {
		t.FirstPort, t.LastPort = 20000, 29999
	}
	var err error
	c.nat, err = c.host.Translate("wan", t)
	b.do(err)
	c.firewall = c.host.DropNew("wan")
	if b.err == nil {
		b.do(c.nat.On())
		b.do(c.firewall.On())
	}
	return c
}

// place makes a place on the internet, behind a provider's NAT of its own if the
// kind says so.
func (b *builder) place(g *Grid, kind Kind, index int) *Place {
	var c *carrierNAT
	if kind.Carrier {
		c = b.carrier(g, letter(index)+"-carrier", index, kind, false)
	}
	return b.home(g, kind, index, c)
}

// home makes a place on the internet, or behind the provider's NAT.
func (b *builder) home(g *Grid, kind Kind, index int, c *carrierNAT) *Place {
	name := letter(index)
	p := &Place{Kind: kind, grid: g, index: index, nodes: new(int), Router: b.router(name + "-router")}
	if b.err != nil {
		return nil
	}
	var up uplink
	if c == nil {
		up = b.uplink(g, p.Router, index, kind)
		p.outer = p.Router
	} else {
		up = c.up
		p.Carrier, p.CarrierNAT, p.CarrierFirewall, p.outer = c.host, c.nat, c.firewall, c.host
		here, there := fmt.Sprintf("100.64.0.%d", 4*index+2), fmt.Sprintf("100.64.0.%d", 4*index+1)
		b.do(b.lab.Link(End{Host: p.Router, Name: "wan", Addr: here}, End{Host: c.host, Name: name, Addr: there}))
		b.routes(p.Router, there)
	}
	p.site, p.Public4, p.gateway, p.Delay = up.site, up.public, up.gateway, up.delay
	b.lan(p, g)
	p.Host = b.guest(p, name, 10)
	*p.nodes = 1
	b.filters(p, g)
	return p
}

// lanPrefixes are the router's addresses on the LAN, "" where it has none.
func (p *Place) lanPrefixes() (v4, v6 netip.Prefix) {
	if p.Kind.IPv4 {
		v4 = netip.MustParsePrefix("192.168.1.1/24") // the same at both places
		if !p.Kind.NAT {
			v4 = netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/28", 16*p.index+1))
		}
	}
	if p.Kind.IPv6 {
		v6 = netip.MustParsePrefix(fmt.Sprintf("2001:db8:1%d::1/64", p.index))
	}
	return v4, v6
}

func (b *builder) lan(p *Place, g *Grid) {
	v4, v6 := p.lanPrefixes()
	p.Gateway4 = v4.Addr()
	var prefixes []string
	for _, prefix := range []netip.Prefix{v4, v6} {
		if prefix.IsValid() {
			prefixes = append(prefixes, prefix.String())
		}
	}
	if b.err != nil {
		return
	}
	b.do(LAN(p.Router, "lan", prefixes...))
	if v4.IsValid() && !p.Kind.NAT {
		b.do(g.Internet.Route(v4.Masked().String(), p.Public4.String()))
	}
	if v6.IsValid() {
		b.do(g.Internet.Route(v6.Masked().String(), fmt.Sprintf("2001:db8:f:%d::2", p.index)))
	}
}

// nth is an address of a range, by the number in its last byte counted from
// the range's beginning.
func nth(prefix netip.Prefix, n int) netip.Prefix {
	bytes := prefix.Masked().Addr().AsSlice()
	bytes[len(bytes)-1] += byte(n)
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, prefix.Bits())
}

// guest adds a host to the place's LAN.
func (b *builder) guest(p *Place, name string, number int) *Host {
	h := b.host(name)
	b.plug(p, h, number)
	return h
}

// plug joins a host to the place's LAN and writes its addresses down.
func (b *builder) plug(p *Place, h *Host, number int) {
	if b.err != nil {
		return
	}
	v4, v6 := p.lanPrefixes()
	var own, via []string
	for _, prefix := range []netip.Prefix{v4, v6} {
		if prefix.IsValid() {
			own, via = append(own, nth(prefix, number).String()), append(via, prefix.Addr().String())
		}
	}
	b.do(Join(p.Router, "lan", h, "eth0", own...))
	b.routes(h, via...)
	if v4.IsValid() {
		p.Addr4 = nth(v4, number).Addr()
	}
	if v6.IsValid() {
		p.Addr6 = nth(v6, number).Addr()
	}
	if !p.Kind.NAT {
		p.Public4 = p.Addr4
	}
}

// second is a place's LAN with another node on it: a host that is there already,
// or a new one of the name.
func (b *builder) second(first *Place, name string, h *Host) *Place {
	if b.err != nil {
		return nil
	}
	most := 64 // nodes; the neighbour's number comes later
	if !first.Kind.NAT {
		most = 5 // of a range of 16 addresses, from the tenth
	}
	if *first.nodes >= most {
		b.do(fmt.Errorf("the LAN has %d nodes", *first.nodes))
		return nil
	}
	p := *first
	if h == nil {
		h = b.host(name)
	}
	p.Host, p.Addr4, p.Addr6 = h, netip.Addr{}, netip.Addr{}
	b.plug(&p, h, 10+*first.nodes)
	*first.nodes++
	return &p
}

// filters puts in force what the kind says.
func (b *builder) filters(p *Place, g *Grid) {
	if b.err != nil {
		return
	}
	k := p.Kind
	if k.NAT {
		t := Translation{Mapping: max(k.V4.Mapping, Independent), Filtering: max(k.V4.Filtering, Independent)}
		if k.Carrier || k.V4.Mapping == Blocked {
			t = Translation{Mapping: Independent, Filtering: AddressPortDependent}
		}
		var err error
		p.NAT, err = p.Router.Translate("wan", t)
		b.do(err)
		if b.err != nil {
			return
		}
		b.do(p.NAT.On())
	}
	p.Firewall = p.Router.DropNew("wan")
	p.IPv4Block, p.IPv6Block = BlockFamily(p.Router, "wan", 4), BlockFamily(p.Router, "wan", 6)
	p.UDPBlock, p.AllBlock = BlockUDP(p.Router, "wan"), BlockForward(p.Router, "wan")
	p.Uplink = p.outer.Partition("wan")
	p.UplinkIn, p.UplinkOut = CutIn(p.outer, "wan"), CutOut(p.outer, "wan")
	oneIn := k.LoseOneIn
	if oneIn == 0 {
		oneIn = 10
	}
	p.LossIn, p.LossOut = Lose(p.outer, "wan", oneIn), Lose(g.Internet, p.site, oneIn)

	for _, f := range []struct {
		filter *Filter
		on     bool
	}{
		{p.Firewall, k.V4.Filtering != Independent && k.V6.Filtering != Independent || k.NAT},
		{p.UDPBlock, k.V4.Mapping == Blocked && k.V6.Mapping == Blocked && !k.ProxyOnly},
		{p.AllBlock, k.ProxyOnly},
		{p.LossIn, k.LoseOneIn != 0}, {p.LossOut, k.LoseOneIn != 0},
	} {
		if f.on {
			b.do(f.filter.On())
		}
	}
	if k.MTU != 0 {
		b.do(p.BlackHole(k.MTU))
	}
}

// settle starts what needs the whole network: proxies, neighbours, services.
func (b *builder) settle(g *Grid) {
	b.do(b.lab.AwaitLinks())
	first := map[*Host]*Place{} // places by their router: several nodes share what is there
	for _, p := range g.All {
		if b.err != nil {
			return
		}
		if same := first[p.Router]; same != nil {
			p.Proxy, p.Mapping, p.Neighbour = same.Proxy, same.Mapping, same.Neighbour
			continue
		}
		first[p.Router] = p
		if same := first[p.outer]; p.Carrier != nil && same != nil {
			// One uplink, so one switch.
			p.Uplink, p.UplinkIn, p.UplinkOut = same.Uplink, same.UplinkIn, same.UplinkOut
			p.LossIn, p.LossOut = same.LossIn, same.LossOut
		}
		first[p.outer] = p
		b.services(p, g)
	}
}

func (b *builder) services(p *Place, g *Grid) {
	if p.Kind.ProxyOnly {
		var err error
		p.Proxy, err = StartProxy(p.Router, netip.AddrPortFrom(p.Gateway4, 3128).String(), "", "")
		b.do(err)
	}
	if p.Kind.PortMapping {
		var err error
		p.Mapping, err = StartPortMapping(p.Router, "lan", "wan", true)
		b.do(err)
	}
	if p.Kind.Neighbour {
		own := *p // the guest's address is not the place's
		p.Neighbour = b.guest(&own, letter(p.index)+"-neighbour", 77)
		b.do(b.lab.AwaitLinks())
		b.neighbour(p.Neighbour, own.Addr4, g.STUN4)
	}
}

// neighbour uses the node's port towards every server before the node does.
func (b *builder) neighbour(h *Host, addr netip.Addr, servers []netip.AddrPort) {
	if b.err != nil {
		return
	}
	conn, err := h.ListenUDP("udp4", netip.AddrPortFrom(addr, NodePort).String())
	b.do(err)
	for _, server := range servers {
		if b.err == nil {
			_, err := STUNAsk(conn, server, stunPatience)
			b.do(err)
		}
	}
}
