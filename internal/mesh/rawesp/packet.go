// SPDX-License-Identifier: Apache-2.0

package rawesp

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
)

// SPI is in front of what this package sends. No state may have it.
const SPI = 0xf5544250

// head is the length of what is in front: SPI and sequence number (RFC 4303 section 2).
const head = 8

// filter lets pass what has the SPI. A raw socket of IPv4 shows whole IP packets, one of IPv6 what is behind the header
// of IPv6.
func filter(v6 bool) []bpf.Instruction {
	begin := bpf.Instruction(bpf.LoadMemShift{Off: 0}) // X: the length of IPv4's header
	if v6 {
		begin = bpf.LoadConstant{Dst: bpf.RegX, Val: 0}
	}
	return []bpf.Instruction{
		begin,
		bpf.LoadIndirect{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: SPI, SkipFalse: 1},
		bpf.RetConstant{Val: packetBytes},
		bpf.RetConstant{Val: 0},
	}
}

// compose makes a packet. Its sequence number says nothing.
func compose(data []byte) []byte {
	b := make([]byte, head, head+len(data))
	binary.BigEndian.PutUint32(b, SPI)
	binary.BigEndian.PutUint32(b[4:], 1)
	return append(b, data...)
}

// parse is what is in a packet, of IPv4 with its header.
func parse(b []byte, v6 bool) ([]byte, bool) {
	if !v6 {
		if len(b) < 20 {
			return nil, false
		}
		n := int(b[0]&15) * 4
		if n < 20 || n > len(b) {
			return nil, false
		}
		b = b[n:]
	}
	if len(b) < head || binary.BigEndian.Uint32(b) != SPI {
		return nil, false
	}
	return b[head:], true
}
