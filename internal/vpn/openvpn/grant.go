// SPDX-License-Identifier: Apache-2.0

package openvpn

import (
	"fmt"
	"net/netip"
)

// Grant is what a client gets.
type Grant struct {
	Address4, Address6   netip.Addr // in the transfer networks
	Transfer4, Transfer6 netip.Prefix
	Ranges               []netip.Prefix // are behind it; none: it stands by
	MTU                  int
}

// Lines are what follows client-auth: directives of a client's configuration (client-config-dir).
func (g Grant) Lines() (out []string) {
	if g.Address4.IsValid() {
		out = append(out, fmt.Sprintf("ifconfig-push %s %s", g.Address4, mask(g.Transfer4)))
	}
	if g.Address6.IsValid() {
		out = append(out, fmt.Sprintf("ifconfig-ipv6-push %s/%d %s", g.Address6, g.Transfer6.Bits(), First(g.Transfer6)))
	}
	for _, r := range g.Ranges {
		if r.Addr().Is4() {
			out = append(out, fmt.Sprintf("iroute %s %s", r.Addr(), mask(r)))
		} else {
			out = append(out, fmt.Sprintf("iroute-ipv6 %s", r))
		}
	}
	return append(out, fmt.Sprintf(`push "tun-mtu %d"`, g.MTU))
}
