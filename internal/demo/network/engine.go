// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The registers of the engine: four bytes each, keys before data.
const (
	key0 = unix.NFT_REG32_00 + iota
	key1
	key2
	_
	data0
	data1
)

// Directions of a connection, as the kernel counts them.
const (
	original = 0
	reply    = 1
)

// engine writes the rules of a NAT that keeps its mappings in maps.
type engine struct {
	link string
	t    Translation
	own  [4]byte // address of the link
}

func (e engine) chains() []Chain {
	chains := []Chain{
		{Name: "in", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityNATDest, Rules: e.inward()},
		{Name: "out", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityNATSource, Rules: e.outward()},
		{Name: "learn", Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 1), Rules: e.learn(), silent: true},
	}
	if e.t.Hairpin {
		chains = append(chains, Chain{Name: "round", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityNATSource, Rules: [][]expr.Any{e.round()}, silent: true})
	}
	return chains
}

func (e engine) sets() []nftables.Set {
	lifetime := e.t.Lifetime
	if lifetime == 0 {
		lifetime = 2 * time.Minute
	}
	inner := []nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeInetService}
	key := inner
	if e.t.Mapping == AddressDependent {
		key = append(slices.Clone(inner), nftables.TypeIPAddr)
	}
	remote := []nftables.SetDatatype{nftables.TypeInetService, nftables.TypeIPAddr}
	if e.t.Filtering == AddressPortDependent {
		remote = append(remote, nftables.TypeInetService)
	}
	set := func(name string, key []nftables.SetDatatype, data ...nftables.SetDatatype) nftables.Set {
		s := nftables.Set{Name: name, Dynamic: true, HasTimeout: true, Timeout: lifetime, Size: 65535,
			KeyType: key[0], KeyByteOrder: binaryutil.BigEndian, IsMap: len(data) > 0}
		if len(key) > 1 {
			s.KeyType, s.Concatenation = nftables.MustConcatSetType(key...), true
		}
		if len(data) > 0 {
			s.DataType = nftables.MustConcatSetType(data...)
		}
		return s
	}
	return []nftables.Set{
		set("out", key, nftables.TypeInetService),
		set("in", []nftables.SetDatatype{nftables.TypeInetService}, inner...),
		set("met", remote),
	}
}

// inward sends packets from outside, or from a neighbour, to the mapped socket.
func (e engine) inward() [][]expr.Any {
	send := []expr.Any{
		port(key0, destination), look("in", key0, data0),
	}
	dnat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: data0, RegProtoMin: data1}
	udp := Layer4(unix.IPPROTO_UDP)
	var rules [][]expr.Any
	switch e.t.Filtering {
	case Independent:
		rules = append(rules, Rule(slices.Concat(Through(expr.MetaKeyIIFNAME, e.link), udp, send), dnat))
	case AddressDependent:
		met := []expr.Any{port(key0, destination), address(key1, source), look("met", key0, 0)}
		rules = append(rules, Rule(slices.Concat(Through(expr.MetaKeyIIFNAME, e.link), udp, met, send), dnat))
	}
	if e.t.Hairpin {
		own := []expr.Any{
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		}
		rules = append(rules, Rule(slices.Concat(not(Through(expr.MetaKeyIIFNAME, e.link)), udp, own, send), dnat))
	}
	return rules
}

// outward gives packets from inside their outer port.
func (e engine) outward() [][]expr.Any {
	out, udp := Through(expr.MetaKeyOIFNAME, e.link), Layer4(unix.IPPROTO_UDP)
	mapped := append(e.inner(), look("out", key0, data0))
	taken := []expr.Any{port(key0, source), look("in", key0, data0)}
	// Not masquerade where the port is chosen here: the library cannot say that
	// it is to go by the ports.
	own := []expr.Any{&expr.Immediate{Register: key0, Data: e.own[:]}}
	snat := func(first, last uint32) expr.Any {
		return &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4,
			RegAddrMin: key0, RegProtoMin: first, RegProtoMax: last}
	}
	choose := []expr.Any{}
	var first, fresh expr.Any = &expr.Masq{FullyRandom: e.t.Mapping != Independent}, &expr.Masq{FullyRandom: true}
	if e.t.FirstPort != 0 {
		choose = []expr.Any{own[0],
			&expr.Immediate{Register: data0, Data: binaryutil.BigEndian.PutUint16(e.t.FirstPort)},
			&expr.Immediate{Register: data1, Data: binaryutil.BigEndian.PutUint16(e.t.LastPort)},
		}
		fresh = snat(data0, data1)
		first = fresh
	}
	rules := [][]expr.Any{
		Rule(slices.Concat(out, udp, mapped, own), snat(data0, data0)),
		// Another socket inside has this port as its outer one.
		Rule(slices.Concat(out, udp, taken, choose), fresh),
		Rule(slices.Concat(out, udp, choose), first),
		Rule(out, &expr.Masq{}),
	}
	return rules
}

// round lets the neighbour see the sender's outer endpoint, at the address that
// the sender used for the neighbour's.
func (e engine) round() []expr.Any {
	return Rule(slices.Concat(not(Through(expr.MetaKeyOIFNAME, e.link)), Layer4(unix.IPPROTO_UDP),
		anyBit(expr.CtKeySTATUS, sentOn), e.inner(), []expr.Any{look("out", key0, data0),
			&expr.Ct{Key: expr.CtKeyDST, Register: data1, Direction: original}}),
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: data1, RegProtoMin: data0})
}

// learn keeps in mind what outward did, from the packet as it leaves: its
// source port is the outer one. A connection that began outside has its inner
// socket at the source of the reply.
func (e engine) learn() [][]expr.Any {
	var rules [][]expr.Any
	remember := func(set string, data uint32, match ...[]expr.Any) {
		rules = append(rules, Rule(
			slices.Concat(append([][]expr.Any{Through(expr.MetaKeyOIFNAME, e.link), Layer4(unix.IPPROTO_UDP)}, match...)...),
			&expr.Dynset{SetName: set, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), SrcRegKey: key0, SrcRegData: data}))
	}
	for _, direction := range []uint32{original, reply} {
		way := []expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(direction)}},
		}
		inner := func(addrReg, portReg uint32) []expr.Any {
			return []expr.Any{
				&expr.Ct{Key: expr.CtKeySRC, Register: addrReg, Direction: direction},
				&expr.Ct{Key: expr.CtKeyPROTOSRC, Register: portReg, Direction: direction},
			}
		}
		key := inner(key0, key1)
		if e.t.Mapping == AddressDependent {
			key = append(key, address(key2, destination))
		}
		remember("out", data0, way, key, []expr.Any{port(data0, source)})
		remember("in", data0, way, []expr.Any{port(key0, source)}, inner(data0, data1))
	}
	met := []expr.Any{port(key0, source), address(key1, destination)}
	if e.t.Filtering == AddressPortDependent {
		met = append(met, port(key2, destination))
	}
	remember("met", 0, met)
	return rules
}

// inner is the key of the map "out", from a packet on its way out.
func (e engine) inner() []expr.Any {
	key := []expr.Any{address(key0, source), port(key1, source)}
	if e.t.Mapping == AddressDependent {
		key = append(key, address(key2, destination))
	}
	return key
}

// Which end of a packet.
const (
	source      = 0
	destination = 1
)

// address and port load an end of an IPv4 packet into a register.
func address(register uint32, end uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 12 + 4*end, Len: 4}
}

func port(register uint32, end uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2 * end, Len: 2}
}

// look looks a key up; without it the rule ends. A map's data goes to a register.
func look(set string, key, data uint32) expr.Any {
	return &expr.Lookup{SourceRegister: key, SetName: set, DestRegister: data, IsDestRegSet: data != 0}
}

// not turns a match of one comparison around.
func not(match []expr.Any) []expr.Any {
	turned := slices.Clone(match)
	cmp := *turned[len(turned)-1].(*expr.Cmp)
	cmp.Op = expr.CmpOpNeq
	turned[len(turned)-1] = &cmp
	return turned
}
