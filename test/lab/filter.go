// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// CutIn drops what comes in through the link, CutOut what goes out: halves of a
// Partition.
func CutIn(h *Host, link string) *Filter {
	return h.Filter("cut-in-"+link, incoming(network.Through(expr.MetaKeyIIFNAME, link)))
}

// CutOut is the other half; see CutIn.
func CutOut(h *Host, link string) *Filter {
	return h.Filter("cut-out-"+link, network.Chain{
		Name: "out", Type: nftables.ChainTypeFilter,
		Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityMangle,
		Rules: [][]expr.Any{network.Rule(network.Through(expr.MetaKeyOIFNAME, link), network.Drop())},
	})
}

// incoming drops what matches, before it is routed.
func incoming(match []expr.Any) network.Chain {
	return network.Chain{
		Name: "in", Type: nftables.ChainTypeFilter,
		Hook: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		Rules: [][]expr.Any{network.Rule(match, network.Drop())},
	}
}

// BlockUDP drops UDP that is forwarded in or out through the link, as strict
// company networks do. Its count is the packets dropped.
func BlockUDP(h *Host, link string) *Filter {
	return h.Dropping(nftables.ChainHookForward, "no-udp-"+link,
		append(network.Through(expr.MetaKeyOIFNAME, link), network.Layer4(unix.IPPROTO_UDP)...),
		append(network.Through(expr.MetaKeyIIFNAME, link), network.Layer4(unix.IPPROTO_UDP)...))
}

// CutESP drops packets of protocol 50, ESP without UDP, that come in through the link. Its count is the packets.
func CutESP(h *Host, link string) *Filter {
	return h.Filter("no-esp-"+link, incoming(append(network.Through(expr.MetaKeyIIFNAME, link),
		network.Layer4(unix.IPPROTO_ESP)...)))
}

// BlockFamily drops one IP version, 4 or 6, where it is forwarded in or out
// through the link: a network that announces it and does not carry it. Its count
// is the packets dropped.
func BlockFamily(h *Host, link string, version int) *Filter {
	proto := byte(unix.NFPROTO_IPV4)
	if version == 6 {
		proto = unix.NFPROTO_IPV6
	}
	return h.Dropping(nftables.ChainHookForward, fmt.Sprintf("no-ipv%d-%s", version, link),
		append(layer3(proto), network.Through(expr.MetaKeyOIFNAME, link)...),
		append(layer3(proto), network.Through(expr.MetaKeyIIFNAME, link)...))
}

// BlockForward drops everything that is forwarded in or out through the link, so
// that only the host's own sockets pass: what a Proxy on it lets through. Its
// count is the packets dropped.
func BlockForward(h *Host, link string) *Filter {
	return h.Dropping(nftables.ChainHookForward, "no-way-"+link,
		network.Through(expr.MetaKeyOIFNAME, link), network.Through(expr.MetaKeyIIFNAME, link))
}

// HideTooBig keeps the host from telling senders that their packets are too big
// for its next link. With a smaller MTU there, this is the black hole that path
// MTU discovery falls into. Its count is the words it kept back.
func HideTooBig(h *Host) *Filter {
	v4 := slices.Concat(layer3(unix.NFPROTO_IPV4), network.Layer4(unix.IPPROTO_ICMP), transport(0, []byte{3, 4}))
	v6 := slices.Concat(layer3(unix.NFPROTO_IPV6), network.Layer4(unix.IPPROTO_ICMPV6), transport(0, []byte{2}))
	return h.Dropping(nftables.ChainHookOutput, "hide-too-big", v4, v6)
}

// ClampMSS lets the TCP connections that the host forwards fit into an MTU, as
// home routers do: they go on where UDP meets a black hole. Its count is the
// packets that bear the option.
func ClampMSS(h *Host, mtu int) *Filter {
	clamp := func(proto byte, headers int) []expr.Any {
		syn := []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x02}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(mtu - headers))},
		}
		// The kernel lowers the size and never raises it.
		const maxSegment = 2
		return network.Rule(slices.Concat(layer3(proto), network.Layer4(unix.IPPROTO_TCP), syn), &expr.Exthdr{
			SourceRegister: 1, Op: expr.ExthdrOpTcpopt, Type: maxSegment, Offset: 2, Len: 2})
	}
	return h.Filter("clamp-mss", network.Chain{
		Name: "through", Type: nftables.ChainTypeFilter,
		Hook: nftables.ChainHookForward, Priority: nftables.ChainPriorityMangle,
		Rules: [][]expr.Any{clamp(unix.NFPROTO_IPV4, 40), clamp(unix.NFPROTO_IPV6, 60)},
	})
}

// ToAddress sends what comes to the host for one address of IPv4 to another one, as the proxy
// of a Service does. Its count is the number of connections.
func ToAddress(h *Host, from, to netip.Addr) *Filter {
	return h.Filter("to-"+to.String(), network.Chain{
		Name: "pre", Type: nftables.ChainTypeNAT,
		Hook: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
		Rules: [][]expr.Any{destined(address(16, from), to)},
	})
}

// OneToOne gives each of some addresses behind the host one of its own at a link, as clouds do
// with elastic addresses. Its count is the number of connections.
func OneToOne(h *Host, link string, inner map[netip.Addr]netip.Addr) *Filter {
	pre := network.Chain{Name: "pre", Type: nftables.ChainTypeNAT,
		Hook: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest}
	post := network.Chain{Name: "post", Type: nftables.ChainTypeNAT,
		Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}
	for outer, behind := range inner {
		pre.Rules = append(pre.Rules, destined(slices.Concat(network.Through(expr.MetaKeyIIFNAME, link), address(16, outer)), behind))
		post.Rules = append(post.Rules, translated(slices.Concat(network.Through(expr.MetaKeyOIFNAME, link), address(12, behind)),
			expr.NATTypeSourceNAT, outer))
	}
	return h.Filter("one-to-one-"+link, pre, post)
}

func destined(match []expr.Any, to netip.Addr) []expr.Any {
	return translated(match, expr.NATTypeDestNAT, to)
}

func translated(match []expr.Any, kind expr.NATType, to netip.Addr) []expr.Any {
	return network.Rule(append(match, &expr.Immediate{Register: 1, Data: to.AsSlice()}),
		&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegAddrMax: 1})
}

// address matches one at a place of the header of IPv4.
func address(offset uint32, is netip.Addr) []expr.Any {
	return append(layer3(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: is.AsSlice()})
}

// Swallow drops what comes to the host for a network of IPv4, before it is routed,
// silently: a place where many could be, and nobody answers. Its count is the packets.
func Swallow(h *Host, prefix netip.Prefix) *Filter {
	return h.Filter("swallow-"+prefix.Addr().String(), incoming(to(prefix)))
}

// to matches a destination of IPv4.
func to(prefix netip.Prefix) []expr.Any {
	const destination = 16 // in the header
	return append(layer3(unix.NFPROTO_IPV4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(prefix.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: prefix.Masked().Addr().AsSlice()})
}

// layer3 matches one IP version, in tables of both.
func layer3(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

// transport matches bytes of the header behind that of IP.
func transport(offset uint32, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
	}
}
