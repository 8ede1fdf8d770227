// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// findNIC looks for the interface of this machine that leads to other clusters; nil: nobody says which one does.
func findNIC(want v1alpha1.ClusterNIC, interfaces []nat.Address, mesh string) *report.NIC {
	if want.Reach == "" {
		return nicOf(want, machine.Hop{}, nil, interfaces, mesh)
	}
	to, err := netip.ParseAddr(string(want.Reach))
	if err != nil {
		return nicOf(want, machine.Hop{}, err, interfaces, mesh)
	}
	hop, err := machine.HopTo(to.Unmap())
	return nicOf(want, hop, err, interfaces, mesh)
}

// nicOf decides which interface it is.
//
//	hop: by which this machine reaches want.Reach
//	failed: why it does not
func nicOf(want v1alpha1.ClusterNIC, hop machine.Hop, failed error, interfaces []nat.Address, mesh string) *report.NIC {
	name, none := want.Interface, func(why string, args ...any) *report.NIC {
		return &report.NIC{Reason: fmt.Sprintf(why, args...)}
	}
	switch {
	case want.Interface == "" && want.Reach == "":
		return nil
	case name == mesh:
		return none("%s is the link of the mesh itself", name)
	case name != "":
	case failed != nil:
		return none("it does not reach %s: %v", want.Reach, failed)
	case hop.Self:
		return none("%s is an address of its own", want.Reach)
	case hop.Link == mesh:
		return none("it reaches %s through the mesh alone", want.Reach)
	default:
		name = hop.Link
	}
	var there []nat.Address
	for _, a := range interfaces {
		if a.Interface == name {
			there = append(there, a)
		}
	}
	own, refused := nat.Own(there, nat.Choice{Without: []string{}})
	if from := hop.Own; from.IsValid() && !from.IsLinkLocalUnicast() { // others come to what packets leave from
		own = slices.Insert(slices.DeleteFunc(own, func(a netip.Addr) bool { return a == from }), 0, from)
	}
	switch {
	case len(own) > 0:
		return &report.NIC{Interface: name, Addresses: own}
	case len(refused) > 0:
		return none("its address %s at %s cannot be used: %s", refused[0].Prefix.Addr(), name, refused[0].Why)
	}
	return none("it has no interface %s with an address", name)
}
