// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// TestNICs: a node is stated by its addresses at the interface that spec.nics names, and where others see it; and as
// without an entry while it has not found that interface, which is said.
func TestNICs(t *testing.T) {
	all := []string{"192.168.0.1:51820", "10.9.0.1:51820", "[fd09::1]:51820", "198.51.100.1:4242"}
	const node, other = "192.168.0.1 fd00::1 ", "10.9.0.1 fd09::1 "
	everything, some := strings.Join(all, " "), strings.Join(all[1:], " ")
	found := share.NIC{Addresses: addrs("10.9.0.1", "fd09::1")}
	for name, c := range map[string]struct {
		nics  []v1alpha1.ClusterNIC
		found share.NIC
		want  string
		says  string
	}{
		"no entry":         {nil, found, node + everything, ""},
		"by name":          {[]v1alpha1.ClusterNIC{{Interface: "eth1"}}, found, other + some, ""},
		"by what it leads": {[]v1alpha1.ClusterNIC{{Reach: "10.9.0.9"}}, found, other + some, ""},
		"of another node":  {[]v1alpha1.ClusterNIC{{Nodes: []string{"n2"}, Interface: "eth1"}}, found, node + everything, ""},
		"its own comes before that of all others": {[]v1alpha1.ClusterNIC{{}, {Nodes: []string{"n1"}, Interface: "eth1"}}, found,
			other + some, ""},
		"nothing is said yet": {[]v1alpha1.ClusterNIC{{Interface: "eth1"}}, share.NIC{}, node + everything, ""},
		"not found": {[]v1alpha1.ClusterNIC{{Interface: "eth1"}}, share.NIC{Reason: "it has none"}, node + everything,
			"spec.nics has no effect at node n1: it has none"},
		"not found before the entry went": {nil, share.NIC{Reason: "it has none"}, node + everything, ""},
		"one IP version":                  {[]v1alpha1.ClusterNIC{{Interface: "eth1"}}, share.NIC{Addresses: addrs("10.9.0.1")}, "10.9.0.1  10.9.0.1:51820 198.51.100.1:4242", ""},
	} {
		f := facts(1)
		f.Members["n1"] = v1alpha1.MemberSpec{PublicKey: "key", Addresses: []string{"192.168.0.1", "10.9.0.1", "fd09::1"},
			Endpoints: slices.Clone(all)}
		f.Spec.NICs, f.Nodes[0].NIC = c.nics, c.found
		s := share.Decide(f)
		if n := s.Nodes[0]; n.IP+" "+n.IP6+" "+strings.Join(n.Endpoints, " ") != c.want {
			t.Errorf("%s: %s %s %v, want %s", name, n.IP, n.IP6, n.Endpoints, c.want)
		}
		if !s.Ready || !strings.Contains(s.Message, c.says) || c.says == "" && strings.Contains(s.Message, "spec.nics") {
			t.Errorf("%s: %v, %q", name, s.Ready, s.Message)
		}
	}
	f := facts(9)
	f.Spec.NICs = []v1alpha1.ClusterNIC{{Interface: "eth1"}}
	for i := range f.Nodes {
		f.Nodes[i].NIC.Reason = fmt.Sprintf("why %d", i+1)
	}
	if m := share.Decide(f).Message; !strings.Contains(m, "n3: why 3") || strings.Contains(m, "why 4") || !strings.Contains(m, "at 6 more nodes") {
		t.Errorf("of nine nodes: %q", m)
	}
}
