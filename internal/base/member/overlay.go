// SPDX-License-Identifier: Apache-2.0

package member

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// meshPurpose is byte 7 of the prefix: other uses of a cluster's name differ in it.
const meshPurpose = 0x02

// Overlay6 is the prefix of a cluster's addresses: the last 16 bytes of the SHA-256 of
// its name, turned into a unique local /64.
func Overlay6(cluster string) netip.Prefix {
	sum := sha256.Sum256([]byte(cluster))
	var a [16]byte
	copy(a[:8], sum[16:24])
	a[0], a[7] = 0xfd, meshPurpose
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// IsOverlay6 reports whether a prefix has the form of Overlay6.
func IsOverlay6(p netip.Prefix) bool {
	a := p.Addr()
	return a.Is6() && p.Bits() == 64 && p == p.Masked() && a.As16()[0] == 0xfd && a.As16()[7] == meshPurpose
}

// Address6 is the address of a member within a /64. It follows from the member's id
// alone.
func Address6(prefix netip.Prefix, id string) netip.Addr {
	sum := sha256.Sum256([]byte("tombolo mesh host 2\x00" + id))
	a := prefix.Masked().Addr().As16()
	copy(a[8:], sum[:8])
	a[8] &^= 0x02 // locally assigned (RFC 4291 appendix A)
	return netip.AddrFrom16(a)
}

// Derives6 reports whether an address, in any prefix, follows from an id.
func Derives6(id string, a netip.Addr) bool {
	return a.Is6() && a == Address6(netip.PrefixFrom(a, 64), id)
}

// Address4 is the first free candidate of a member in the pool; invalid if all 256 are
// taken, or there is no pool. The candidates follow from the id.
func Address4(pool netip.Prefix, id string, taken func(netip.Addr) bool) netip.Addr {
	if !pool.IsValid() || !pool.Addr().Is4() || pool.Bits() > 30 {
		return netip.Addr{}
	}
	base := pool.Masked().Addr().As4()
	size := uint64(1) << (32 - pool.Bits())
	for k := range 256 {
		sum := sha256.Sum256(append([]byte("tombolo mesh overlay4 2\x00"+id+"\x00"), byte(k)))
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
