// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// ours reports whether a link that has our name is ours.
func (n Names) ours(l netlink.Link) bool {
	return tunnels(l) && (!n.Former || staysAlone(l))
}

// rule reports whether a rule is ours: it leads into our table, or is about our link.
func (n Names) rule(r netlink.Rule) bool {
	return r.Protocol == n.Protocol && (n.Table != 0 && r.Table == n.Table || n.Link != "" && r.IifName == n.Link)
}

// route reports whether a route is ours: it is in our table, or goes by our link, or refuses in
// the main table what no link takes, with the metric that is our table's.
func (n Names) route(r netlink.Route, byLink bool) bool {
	switch {
	case uint8(r.Protocol) != n.Protocol:
		return false
	case byLink:
		return true
	case n.Table == 0:
		return false
	}
	return r.Table == n.Table ||
		r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNREACHABLE && uint32(r.Priority) == plan.Refusing(n.Table)
}

// by reports whether a route goes by the link of an index.
func by(r netlink.Route, index int) bool {
	return index != 0 && r.LinkIndex == index && r.Type != unix.RTN_UNREACHABLE
}

// any reports whether something bears a name of ours, present or former.
func (k *Kernel) any(bears func(Names) bool) bool {
	return bears(k.names) || slices.ContainsFunc(k.former, bears)
}

// Claims reads whose tables with our mark are, of all meshes on this machine. One without a
// claim has no owner.
func (k *Kernel) Claims() ([]plan.Claim, error) {
	all, err := k.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, reading("chains of nftables", err)
	}
	var out []plan.Claim
	at := map[string]int{}
	for _, c := range all {
		if c.Name == marker {
			at[c.Table.Name] = len(out)
			out = append(out, plan.Claim{Filter: c.Table.Name})
		}
	}
	for _, c := range all {
		i, marked := at[c.Table.Name]
		if _, is := plan.ClaimOf(head(c)); !is || !marked {
			continue
		}
		read, err := k.chainIn(&nftables.Table{Name: c.Table.Name, Family: nftables.TableFamilyINet}, c)
		if err != nil {
			return nil, err
		}
		claim, _ := plan.ClaimOf(read)
		claim.Filter = c.Table.Name
		if out[i].Owner == "" {
			out[i] = claim
		} else { // another run is taking it over: it belongs to both
			out = append(out, claim)
		}
	}
	return out, nil
}

// contested refuses our table where another mesh says that it is its own, and uses another table
// of routes: it is no earlier run of ours whose state directory is lost.
func (k *Kernel) contested(chains []*nftables.Chain, want plan.State) (out []*fault.Fault) {
	var ours plan.Claim
	for _, t := range want.Tables {
		for _, c := range t.Chains {
			if claim, is := plan.ClaimOf(c); is {
				ours = claim
			}
		}
	}
	for _, c := range chains {
		if claim, is := plan.ClaimOf(head(c)); is && ours.Owner != "" && claim.Owner != ours.Owner &&
			claim.Table != ours.Table {
			out = append(out, k.clash("table inet "+k.names.Filter+" of nftables",
				"another mesh on this machine has it, whose table of routes is %d", claim.Table).
				Hint("choose another mesh.filter; if that mesh is gone, remove it with 'tombolo mesh down' "+
					"and its configuration"))
		}
	}
	return out
}
