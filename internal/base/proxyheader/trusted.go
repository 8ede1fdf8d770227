// SPDX-License-Identifier: Apache-2.0

package proxyheader

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// Trusted are the load balancers that a header is taken from, and then required.
type Trusted []netip.Prefix

// ParseTrusted reads the setting proxyProtocol, which is at path.
func ParseTrusted(raw v1alpha1.ProxyProtocolConfig, path string, add conf.Report) (out Trusted) {
	for i, text := range raw.From {
		p, err := prefix(text)
		if err != nil {
			add(fmt.Sprintf("%s.from[%d]", path, i), "%v", err)
		}
		out = append(out, p)
	}
	return out
}

// Has reports whether a peer is one of them.
func (t Trusted) Has(peer netip.Addr) bool {
	return slices.ContainsFunc(t, func(p netip.Prefix) bool { return p.Contains(peer) })
}

func prefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is neither a CIDR nor an address", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4-mapped range; write the IPv4 range", text)
	case p != p.Masked():
		return p, fmt.Errorf("%q has host bits set; did you mean %s?", text, p.Masked())
	}
	return p, nil
}
