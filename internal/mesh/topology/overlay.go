// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// meshPurpose is byte 7 of the prefix: other uses of a cluster's name have others.
const meshPurpose = 0x02

// Overlay6 is the prefix of a cluster's addresses: of SHA-256 over its name the last
// 16 bytes, made a unique local prefix.
func Overlay6(cluster string) netip.Prefix {
	sum := sha256.Sum256([]byte(cluster))
	var a [16]byte
	copy(a[:8], sum[16:24])
	a[0], a[7] = 0xfd, meshPurpose
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// IsOverlay6 reports whether a prefix can be one of Overlay6's.
func IsOverlay6(p netip.Prefix) bool {
	a := p.Addr()
	return a.Is6() && p.Bits() == 64 && p == p.Masked() && a.As16()[0] == 0xfd && a.As16()[7] == meshPurpose
}

// Host6 is a node's address by its hardware address (RFC 4291 appendix A); not valid
// where that is none of 6 or 8 bytes, or all zero.
func Host6(prefix netip.Prefix, hardware []byte) netip.Addr {
	var host [8]byte
	switch len(hardware) {
	case 6:
		copy(host[:3], hardware[:3])
		host[3], host[4] = 0xff, 0xfe
		copy(host[5:], hardware[3:])
	case 8:
		copy(host[:], hardware)
	default:
		return netip.Addr{}
	}
	if zero(hardware) {
		return netip.Addr{}
	}
	host[0] ^= 0x02
	return join(prefix, host)
}

// Named6 is a node's address by its name: where it has no hardware address, or another
// member has that one's.
func Named6(prefix netip.Prefix, node string) netip.Addr {
	sum := sha256.Sum256([]byte("tombolo mesh host 1\x00" + node))
	host := [8]byte(sum[:8])
	host[0] &^= 0x02 // no manufacturer's
	return join(prefix, host)
}

func join(prefix netip.Prefix, host [8]byte) netip.Addr {
	a := prefix.Addr().As16()
	copy(a[8:], host[:])
	return netip.AddrFrom16(a)
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Choose6 is the address that a node takes: by its hardware if that is free, else by its name.
func Choose6(prefix netip.Prefix, hardware []byte, node string, taken func(netip.Addr) bool) netip.Addr {
	if a := Host6(prefix, hardware); a.IsValid() && !taken(a) {
		return a
	}
	return Named6(prefix, node)
}

// Choose4 is the first candidate in the pool that no other has; not valid where all
// 256 are taken, or there is no pool.
func Choose4(pool netip.Prefix, node string, taken func(netip.Addr) bool) netip.Addr {
	if !pool.IsValid() || !pool.Addr().Is4() || pool.Bits() > 30 {
		return netip.Addr{}
	}
	base := pool.Masked().Addr().As4()
	size := uint64(1) << (32 - pool.Bits())
	for k := range 256 {
		sum := sha256.Sum256(append([]byte("tombolo mesh overlay4 1\x00"+node+"\x00"), byte(k)))
		offset := binary.BigEndian.Uint64(sum[:8]) % size
		if offset == 0 || offset == size-1 { // those of a network and its broadcast
			continue
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(base[:])+uint32(offset))
		if addr := netip.AddrFrom4(a); !taken(addr) {
			return addr
		}
	}
	return netip.Addr{}
}
