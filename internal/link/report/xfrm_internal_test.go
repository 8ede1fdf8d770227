// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestXfrm: a peer by IPsec has the policies of the tunnel that sends, and the states of all.
func TestXfrm(t *testing.T) {
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.2")
	p := Peer{Name: "b.n1", Allowed: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd02::/64")},
		SAs: []SA{{Local: here, Remote: there, Number: 7, In: 0x100, Algorithm: "x"},
			{Local: here, Remote: there, Number: 7, In: 0x200, Out: 0x300, Algorithm: "x", Sends: true}}}
	spec := Spec(Facts{Engine: member.IPsec, Peers: []Peer{p, {Name: "b.n2", Allowed: p.Allowed}}})
	var got []string
	for _, x := range spec.XfrmPolicies {
		got = append(got, fmt.Sprint(x.Dir, " ", x.LeftNet, " ", x.LeftIP, " ", x.RightIP, " ", x.RightNet, " ", x.ReqID))
	}
	for _, x := range spec.XfrmStates {
		got = append(got, fmt.Sprintf("%s %s %d %#x %s", x.LeftIP, x.RightIP, x.ReqID, x.SPI, x.Algorithm))
	}
	want := `out 0.0.0.0/0 192.0.2.1 203.0.113.2 10.2.0.0/16 7
in 10.2.0.0/16 203.0.113.2 192.0.2.1 0.0.0.0/0 7
fwd 10.2.0.0/16 203.0.113.2 192.0.2.1 0.0.0.0/0 7
out ::/0 192.0.2.1 203.0.113.2 fd02::/64 7
in fd02::/64 203.0.113.2 192.0.2.1 ::/0 7
fwd fd02::/64 203.0.113.2 192.0.2.1 ::/0 7
203.0.113.2 192.0.2.1 7 0x100 x
203.0.113.2 192.0.2.1 7 0x200 x
192.0.2.1 203.0.113.2 7 0x300 x`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	for len(p.Allowed) < mostPolicies {
		p.Allowed = append(p.Allowed, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(len(p.Allowed) >> 8), byte(len(p.Allowed)), 0}), 24))
	}
	if spec = Spec(Facts{Peers: []Peer{p}}); len(spec.XfrmPolicies) != mostPolicies || spec.More.XfrmPolicies != 2*mostPolicies {
		t.Errorf("%d policies, %d more", len(spec.XfrmPolicies), spec.More.XfrmPolicies)
	}
}
