// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// leastPool is the length of the widest pool: what is wider takes half the internet.
const leastPool = 8

// pools are those that may be chosen instead of one that does not fit here.
func pools() []netip.Prefix {
	return []netip.Prefix{
		Defaults().Overlay4, netip.MustParsePrefix("100.80.0.0/12"), netip.MustParsePrefix("100.64.0.0/12"),
		netip.MustParsePrefix("172.24.0.0/13"), netip.MustParsePrefix("10.192.0.0/12"),
		netip.MustParsePrefix("192.168.192.0/18"),
	}
}

// badPool returns the reason why a pool may be nobody's, on whatever machine, or "".
func badPool(p netip.Prefix) string {
	switch why := Never(p); {
	case !p.Addr().Is4() || p.Bits() > 30 || p != p.Masked():
		return fmt.Sprintf("%s is no IPv4 range of four addresses or more", p)
	case why != "":
		return fmt.Sprintf("%s is %s: a private range is expected, as %s is", p, why, Defaults().Overlay4)
	case p.Bits() < leastPool:
		return fmt.Sprintf("%s is wider than /%d: a private range is expected, as %s is", p, leastPool, Defaults().Overlay4)
	}
	return ""
}

// needsOf returns the reason why this machine cannot have a route to a whole pool, or "": what
// it needs lies there, and would go into the mesh.
func (l Local) needsOf(pool netip.Prefix) string {
	type need struct {
		addr netip.Addr
		what string
	}
	var all []need
	for _, s := range []struct {
		addrs []netip.Addr
		what  string
	}{{l.Underlay, "the address by which this machine reaches the others"},
		{l.Gateways, "a default gateway of this machine"}, {l.Resolvers, "a resolver of this machine"}} {
		for _, a := range s.addrs {
			all = append(all, need{a, s.what})
		}
	}
	for _, s := range l.Services {
		all = append(all, need{s.Addr, s.What})
	}
	for _, n := range all {
		if a := n.addr.Unmap().WithZone(""); pool.Contains(a) {
			return fmt.Sprintf("it covers %s, %s", a, n.what)
		}
	}
	return ""
}

// Pool is the problem of a pool that does not fit this machine: there is no route to all of
// it then, but one to each peer.
func Pool(in Input) (Problem, bool) {
	p := in.Options.Overlay4
	if !p.IsValid() {
		return Problem{}, false
	}
	why := in.Local.needsOf(p)
	if why == "" {
		return Problem{}, false
	}
	return Problem{Kind: Refused, Member: in.Self.ID, Node: in.Self.Node, Range: p,
		Why: "mesh.overlay4: " + why + poolInstead}, true
}

const poolInstead = "; only the addresses of peers are routed, not the whole pool"

// PoolFault is why a node does not start with its pool, with one that fits.
func PoolFault(in Input) *fault.Fault {
	p, bad := Pool(in)
	if !bad {
		return nil
	}
	free := "none, for no IPv4 in the mesh"
	for _, q := range pools() {
		meets := func(n netip.Prefix) bool { return n.Overlaps(q) }
		within := func(n netip.Prefix) bool { return n.Contains(q.Addr()) && n.Bits() <= q.Bits() }
		taken := slices.ContainsFunc(in.Local.Networks, meets) || slices.ContainsFunc(in.Self.Ranges, meets)
		if !taken && in.Local.needsOf(q) == "" && slices.ContainsFunc(in.Options.Accept, within) {
			free = q.String()
			break
		}
	}
	return fault.Newf(fault.CodeRange, "the pool of overlay addresses %s does not fit this machine", p.Range).
		Whyf("mesh.overlay4: %s", in.Local.needsOf(p.Range)).
		Hint("set mesh.overlay4 to a range that is free here: %s; other nodes may have another one", free)
}
