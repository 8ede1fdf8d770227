// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func TestNICOf(t *testing.T) {
	var all []nat.Address
	for _, a := range [][2]string{{"eth0", "192.168.0.1/24"}, {"eth1", "fe80::1/64"}, {"eth1", "10.9.0.1/24"},
		{"eth1", "10.9.0.2/24"}, {"eth1", "fd09::1/64"}, {"eth2", "fe80::2/64"}, {"docker0", "172.17.0.1/16"}, {"tombolo0", "100.64.0.1/32"}} {
		all = append(all, nat.Address{Interface: a[0], Prefix: netip.MustParsePrefix(a[1]), Up: true})
	}
	at := netip.MustParseAddr
	for name, c := range map[string]struct {
		want   v1alpha1.ClusterNIC
		hop    machine.Hop
		failed error
		says   string
	}{
		"no entry":                    {says: "nil"},
		"by name":                     {want: v1alpha1.ClusterNIC{Interface: "eth1"}, says: "{eth1 [10.9.0.1 10.9.0.2 fd09::1] }"},
		"one of containers, by name":  {want: v1alpha1.ClusterNIC{Interface: "docker0"}, says: "{docker0 [172.17.0.1] }"},
		"there is none":               {want: v1alpha1.ClusterNIC{Interface: "eth9"}, says: "{ [] it has no interface eth9 with an address}"},
		"without an address":          {want: v1alpha1.ClusterNIC{Interface: "eth2"}, says: "{ [] its address fe80::2 at eth2 cannot be used: link-local: of no use without the link}"},
		"the mesh's own":              {want: v1alpha1.ClusterNIC{Interface: "tombolo0"}, says: "{ [] tombolo0 is the link of the mesh itself}"},
		"by what it leads to":         {want: v1alpha1.ClusterNIC{Reach: "10.9.0.9"}, hop: machine.Hop{Link: "eth1", Own: at("10.9.0.2")}, says: "{eth1 [10.9.0.2 10.9.0.1 fd09::1] }"},
		"from an address of loopback": {want: v1alpha1.ClusterNIC{Reach: "10.9.0.9"}, hop: machine.Hop{Link: "eth2", Own: at("192.0.2.1")}, says: "{eth2 [192.0.2.1] }"},
		"it is not reached":           {want: v1alpha1.ClusterNIC{Reach: "10.9.0.9"}, failed: errors.New("no route"), says: "{ [] it does not reach 10.9.0.9: no route}"},
		"it is its own":               {want: v1alpha1.ClusterNIC{Reach: "10.9.0.1"}, hop: machine.Hop{Link: "lo", Own: at("10.9.0.1"), Self: true}, says: "{ [] 10.9.0.1 is an address of its own}"},
		"through the mesh":            {want: v1alpha1.ClusterNIC{Reach: "100.64.0.9"}, hop: machine.Hop{Link: "tombolo0", Own: at("100.64.0.1")}, says: "{ [] it reaches 100.64.0.9 through the mesh alone}"},
	} {
		got := "nil"
		if n := nicOf(c.want, c.hop, c.failed, all, "tombolo0"); n != nil {
			got = fmt.Sprint(*n)
		}
		if got != c.says {
			t.Errorf("%s: %s, want %s", name, got, c.says)
		}
	}
}
