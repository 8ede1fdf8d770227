// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
)

// ParseAddr reads an address of 4 or 16 bytes. An IPv4 address within IPv6
// (::ffff:a.b.c.d) becomes an IPv4 one: there is one value for each address.
func ParseAddr(b []byte) (netip.Addr, error) {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}, fmt.Errorf("an address has 4 or 16 bytes, not %d", len(b))
	}
	return checkAddr(a)
}

// checkAddr refuses values that cannot be anyone's address. Loopback and link-local ones are
// left to the code that would dial them.
func checkAddr(a netip.Addr) (netip.Addr, error) {
	switch a = a.Unmap(); {
	case !a.IsValid():
		return netip.Addr{}, errors.New("there is no address")
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%v has a zone, which means nothing elsewhere", a)
	case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return netip.Addr{}, fmt.Errorf("%v is not the address of one machine", a)
	}
	return a, nil
}

func parseEndpoint(ip []byte, port uint32) (netip.AddrPort, error) {
	a, err := ParseAddr(ip)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if port > math.MaxUint16 {
		return netip.AddrPort{}, fmt.Errorf("port %d is above 65535", port)
	}
	return checkEndpoint(netip.AddrPortFrom(a, uint16(port)))
}

func checkEndpoint(at netip.AddrPort) (netip.AddrPort, error) {
	a, err := checkAddr(at.Addr())
	if err == nil && at.Port() == 0 {
		err = errors.New("there is no port")
	}
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(a, at.Port()), nil
}

// ParsePrefix reads a prefix, and drops bits behind it. One within ::ffff:0:0/96
// becomes an IPv4 one; one that only reaches into it is refused.
func ParsePrefix(ip []byte, bits uint32) (netip.Prefix, error) {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("an address has 4 or 16 bytes, not %d", len(ip))
	}
	if bits > uint32(a.BitLen()) {
		return netip.Prefix{}, fmt.Errorf("%v has %d bits, not %d", a, a.BitLen(), bits)
	}
	n := int(bits)
	if a.Is4In6() {
		if n < 96 {
			return netip.Prefix{}, fmt.Errorf("%v/%d is neither of IPv4 nor of IPv6", a, n)
		}
		a, n = a.Unmap(), n-96
	}
	p := netip.PrefixFrom(a, n).Masked()
	if p.Addr().IsMulticast() {
		return netip.Prefix{}, fmt.Errorf("%v is multicast", p)
	}
	return p, nil
}
