// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The least MTU of the link is IPv6's (RFC 8200 section 5); the most is what 64 KiB of
// UDP payload carry as WireGuard's.
const (
	LeastMTU = 1280
	MostMTU  = 65456
	stepMTU  = 20 // of peers' own: each that differs has sets and rules
)

// Options are what an operator chooses.
type Options struct {
	Link   string
	MTU    int
	Marks  Marks
	Table  int    // of routes
	Rule   int    // priority of the first rule; the next is ours too
	Filter string // name of the nftables table
	Owner  string // whose that is; empty: it is not said
	Bypass bool   // what is down goes in clear
	IPsec  bool   // the link is of kind xfrm

	Overlay6 netip.Prefix // of the cluster
	Overlay4 netip.Prefix // the pool; not valid: none
	Accept   []netip.Prefix
	Exclude  []netip.Prefix
	// Masquerade are ranges beside this node that go into the mesh under its own address.
	Masquerade []netip.Prefix
}

// Marks are bits of the packets' mark: Own is set on the socket, Mesh on what is to be
// sent into the mesh, both on what came from it.
type Marks struct{ Own, Mesh, Mask uint32 }

func (m Marks) both() uint32 { return m.Own | m.Mesh }

// Defaults are the options without a cluster.
func Defaults() Options {
	return Options{
		Link: "tombolo0", MTU: 1420, Marks: Marks{0x20, 0x40, 0x60}, Table: 180, Rule: 32500, Filter: "tombolo_mesh",
		Overlay4: netip.MustParsePrefix("100.112.0.0/12"),
		Accept:   DefaultAccept(),
	}
}

// DefaultAccept are the private (RFC 1918), shared (RFC 6598) and unique local
// (RFC 4193) addresses.
func DefaultAccept() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
	}
}

// Check refuses options that cannot work. All mistakes are given, each with its name.
func (o Options) Check() []*fault.Fault {
	var out []*fault.Fault
	bad := func(code fault.Code, what, why string, args ...any) {
		out = append(out, fault.New(code, what).Whyf(why, args...))
	}
	if o.MTU < LeastMTU || o.MTU > MostMTU {
		bad(fault.CodeConfig, "mesh.mtu", "%d is not within %d and %d: less carries no IPv6", o.MTU, LeastMTU, MostMTU)
	}
	m := o.Marks
	if m.Own == 0 || m.Mesh == 0 || m.Own&m.Mesh != 0 || m.both()&^m.Mask != 0 {
		bad(fault.CodeConfig, "mesh.marks",
			"%#x and %#x with mask %#x: two marks without a bit in common, both within the mask, are expected",
			m.Own, m.Mesh, m.Mask)
	}
	if o.Table <= 0 || o.Table >= 253 && o.Table <= 255 || o.Table > 1<<31-1 {
		bad(fault.CodeConfig, "mesh.table", "%d is no table that is free: 1 to 252, or above 255", o.Table)
	}
	if o.Rule <= 0 || o.Rule >= 32765 { // and the next
		bad(fault.CodeConfig, "mesh.rule", "%d is not within 1 and 32764, before the main table", o.Rule)
	}
	if o.Link == "" || len(o.Link) > 15 {
		bad(fault.CodeConfig, "mesh.link", "%q is no name of a link: 1 to 15 characters", o.Link)
	} else if slices.Contains([]string{"all", "default", "lo"}, o.Link) {
		bad(fault.CodeConfig, "mesh.link", "%q is a name of the kernel's own", o.Link)
	}
	if o.Overlay4.IsValid() {
		if why := badPool(o.Overlay4); why != "" {
			bad(fault.CodeRange, "mesh.overlay4", "%s", why)
		}
	}
	for _, p := range o.Accept {
		if why := Never(p); why != "" && p.Bits() != 0 {
			bad(fault.CodeRange, "mesh.accept", "%s is %s", p, why)
		}
	}
	return out
}

// Never returns the reason why a range may be nobody's, on whatever machine, or "".
func Never(p netip.Prefix) string {
	switch {
	case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6():
		return "no range"
	case p.Bits() == 0:
		return "the default route"
	}
	for _, s := range []struct{ within, what string }{
		{"0.0.0.0/8", "this network"}, {"127.0.0.0/8", "loopback"}, {"169.254.0.0/16", "link-local"},
		{"224.0.0.0/4", "multicast"},
		{"255.255.255.255/32", "broadcast"}, {"::/127", "loopback"}, {"fe80::/10", "link-local"}, {"ff00::/8", "multicast"},
	} {
		if p.Overlaps(netip.MustParsePrefix(s.within)) {
			return fmt.Sprintf("%s, or covers it", s.what)
		}
	}
	return ""
}
