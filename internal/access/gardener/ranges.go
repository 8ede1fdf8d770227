// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"net/netip"
	"strings"
)

// readRange reads a range as Gardener writes it: a CIDR, never an address alone. What other readers take for something
// else, or cut to what they understand, is refused.
func (ps *problems) readRange(path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	switch a, alone := netip.ParseAddr(text); {
	case err == nil && p.Addr().Is4In6():
		next := "write the IPv4 range"
		if p.Bits() >= 96 {
			next = "write " + netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked().String()
		}
		ps.refuse(path, Invalid, next, "%q is an IPv4-mapped range, which proxies read in different ways", text)
	case err == nil && p != p.Masked():
		ps.refuse(path, Invalid, "write "+p.Masked().String()+", or a longer prefix", "%q has host bits set", text)
	case err == nil:
		return p, true
	case alone == nil && a.Zone() == "":
		a = a.Unmap()
		ps.refuse(path, Invalid, "write "+netip.PrefixFrom(a, a.BitLen()).String(), "%q is an address, not a CIDR", text)
	case text == "":
		ps.refuse(path, Required, "write a CIDR such as 203.0.113.0/24", "the range is empty")
	case strings.TrimSpace(text) != text:
		ps.refuse(path, Invalid, "", "%.100q has spaces around it", text)
	default:
		ps.refuse(path, Invalid, "write a CIDR such as 203.0.113.0/24", "%.100q is no CIDR", text)
	}
	return netip.Prefix{}, false
}
