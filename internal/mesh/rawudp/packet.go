// SPDX-License-Identifier: Apache-2.0

package rawudp

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
)

// head is the length of a header of UDP.
const head = 8

// What packets begin with that are heard: see disco.KindOf. WireGuard's own stay in the kernel.
const (
	probeMagic = 0xf5544201
	stunCookie = 0x2112a442 // behind four bytes
)

// filter lets pass what is heard of a port. A raw socket of IPv4 shows whole IP packets, one of IPv6 what is behind the
// header of IPv6.
func filter(port uint16, v6 bool) []bpf.Instruction {
	begin := bpf.Instruction(bpf.LoadMemShift{Off: 0}) // X: the length of IPv4's header
	if v6 {
		begin = bpf.LoadConstant{Dst: bpf.RegX, Val: 0}
	}
	return []bpf.Instruction{
		begin,
		bpf.LoadIndirect{Off: 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(port), SkipTrue: 5},
		bpf.LoadIndirect{Off: head, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: probeMagic, SkipTrue: 2},
		bpf.LoadIndirect{Off: head + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: stunCookie, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}

// parse takes a packet of UDP apart.
func parse(b []byte) (from, to uint16, data []byte, ok bool) {
	if len(b) < head {
		return 0, 0, nil, false
	}
	size := int(binary.BigEndian.Uint16(b[4:]))
	if size < head || size > len(b) {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), b[head:size], true
}

// within is what is inside of an IPv4 packet.
func within(b []byte) ([]byte, bool) {
	if len(b) < 20 {
		return nil, false
	}
	n := int(b[0]&15) * 4
	if n < 20 || n > len(b) {
		return nil, false
	}
	return b[n:], true
}

// compose makes a packet of UDP with its checksum. Both addresses are of one family.
func compose(from, to netip.AddrPort, data []byte) []byte {
	b := make([]byte, head, head+len(data))
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(head+len(data)))
	b = append(b, data...)
	binary.BigEndian.PutUint16(b[6:], checksum(from.Addr(), to.Addr(), b))
	return b
}

// checksum is that of UDP over IPv4 or IPv6 (RFC 768, RFC 8200 section 8.1), of which the field is zero meanwhile.
func checksum(from, to netip.Addr, b []byte) uint16 {
	const udp = 17
	sum := uint32(udp) + uint32(len(b))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), b} {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff { // a checksum of zero would say that there is none
		return 0xffff
	}
	return ^uint16(sum)
}
