// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"encoding/binary"
	"net/netip"
)

// reserved is how many addresses at the beginning of a range are not for clusters: the network's own, those of
// endpoints, and some to spare.
const reserved = 16

// longestRange has place for a few clusters after the reserved addresses.
const longestRange = 27

// FirstFree is the lowest address of a range that a cluster may have and that is not taken, false if there is none.
func FirstFree(within netip.Prefix, taken map[netip.Addr]bool) (netip.Addr, bool) {
	for n := uint32(reserved); n < reserved+capacity(within); n++ {
		if a := nth(within, n); !taken[a] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// usable says whether a cluster may have the address.
func usable(within netip.Prefix, a netip.Addr) bool {
	return within.Contains(a) && !a.Less(nth(within, reserved)) && a.Less(nth(within, reserved+capacity(within)))
}

// capacity is how many clusters a range has addresses for: the last address is that of the broadcast.
func capacity(within netip.Prefix) uint32 {
	if !within.IsValid() || within.Bits() > longestRange {
		return 0
	}
	return 1<<(32-within.Bits()) - reserved - 1
}

// nth is the address at n from the beginning of an IPv4 range.
func nth(within netip.Prefix, n uint32) netip.Addr {
	first := within.Masked().Addr().As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first[:])+n)))
}
