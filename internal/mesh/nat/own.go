// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Address is one of a machine's interface, as the kernel lists it.
type Address struct {
	Interface  string
	Prefix     netip.Prefix // with the host's bits
	Up         bool         // the interface is
	Tentative  bool         // IPv6: not yet, or not, free of duplicates
	Deprecated bool         // IPv6: for connections that began before
	Temporary  bool         // IPv6: of the privacy extensions (RFC 8981)
}

// Choice says which addresses others may try.
type Choice struct {
	// Without are patterns of interfaces that lead to no other machine; nil: DefaultWithout.
	Without []string
	// Overlay are the ranges of the mesh itself, and of peers behind it.
	Overlay []netip.Prefix
}

// DefaultWithout lists the interfaces of containers, virtual machines and overlays, by their usual
// names: networks behind them are announced as ranges, if at all.
func DefaultWithout() []string {
	return []string{
		"lo", "tombolo*", "kubespan*", "cni*", "docker*", "br-" + strings.Repeat("[0-9a-f]", 12), "veth*", "cali*",
		"vxlan*", "tunl*", "flannel*",
		"cilium*", "lxc*", "lxd*", "kube-*", "nodelocaldns", "weave", "ovn-*", "ovs-*", "genev_*", "podman*", "virbr*",
		"vnet*", "dummy*", "antrea-*", "kube-bridge", "incusbr*",
	}
}

// CheckPatterns finds the first invalid pattern.
func CheckPatterns(patterns []string) (bad string, err error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return p, err
		}
	}
	return "", nil
}

// Refused is an address that others are not to try, and why.
type Refused struct {
	Address
	Why string
}

// Own lists the addresses of a machine that others may try: public ones first, then private ones,
// each in the order of the kernel. Temporary IPv6 addresses are left out if the same link has a
// permanent one: they are gone tomorrow.
func Own(all []Address, c Choice) (out []netip.Addr, refused []Refused) {
	if c.Without == nil {
		c.Without = DefaultWithout()
	}
	var good []Address
	for _, a := range all {
		if why := c.refuses(a); why != "" {
			refused = append(refused, Refused{a, why})
			continue
		}
		good = append(good, a)
	}
	lasting := func(t Address) bool {
		return slices.ContainsFunc(good, func(a Address) bool {
			return !a.Temporary && a.Interface == t.Interface && a.Prefix.Masked() == t.Prefix.Masked()
		})
	}
	slices.SortStableFunc(good, func(a, b Address) int { return rank(a.Prefix.Addr()) - rank(b.Prefix.Addr()) })
	for _, a := range good {
		addr := a.Prefix.Addr().Unmap()
		switch {
		case a.Temporary && lasting(a):
			refused = append(refused, Refused{a, "temporary, and the link has a lasting one"})
		case slices.Contains(out, addr):
			refused = append(refused, Refused{a, "listed already"})
		case len(out) >= limit.LocalAddresses:
			refused = append(refused, Refused{a, "there are too many"})
		default:
			out = append(out, addr)
		}
	}
	return out, refused
}

func (c Choice) refuses(a Address) string {
	addr := a.Prefix.Addr().Unmap()
	for _, p := range c.Without {
		if ok, err := path.Match(p, a.Interface); ok && err == nil {
			return "of an interface like " + p
		}
	}
	switch {
	case !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast():
		return "no address of a machine"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsLinkLocalUnicast():
		return "link-local: of no use without the link"
	case !a.Up:
		return "the interface is down"
	case a.Tentative:
		return "not checked for duplicates, or one"
	case a.Deprecated:
		return "deprecated"
	case slices.ContainsFunc(c.Overlay, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return "of the mesh itself"
	}
	return ""
}

func rank(a netip.Addr) int {
	if IsPublic(a) {
		return 0
	}
	return 1
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// IsShared reports whether an address is in the range of carrier-grade NATs (RFC 6598).
func IsShared(a netip.Addr) bool { return netip.MustParsePrefix("100.64.0.0/10").Contains(a.Unmap()) }

// IsPublic reports whether an address may be known to the internet: it is in none of the special
// ranges (RFC 6890) without a meaning beyond a site. Documentation ranges count as public: only
// tests have them.
func IsPublic(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || IsShared(a) {
		return false
	}
	special := prefixes("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4",
		"64:ff9b:1::/48", "100::/64", "2001::/32", "2002::/16", "fec0::/10")
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
