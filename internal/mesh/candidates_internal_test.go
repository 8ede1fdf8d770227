// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

func TestCandidatesThatMayBeTried(t *testing.T) {
	s := viewpoint{
		own:     []netip.Addr{netip.MustParseAddr("192.168.1.10")},
		links:   []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("2001:db8:1::/64")},
		overlay: []netip.Prefix{netip.MustParsePrefix("fd7f:175a:b97c:5602::/64"), netip.MustParsePrefix("100.112.0.0/12")},
		has:     func(a netip.Addr) bool { return a.Is4() || a.Is6() && a.String() != "2001:db8:9::1" },
	}
	for _, c := range []struct {
		at   string
		kind member.Kind
		want path.Kind
		near bool
		none bool
	}{
		{at: "203.0.113.9:51820", kind: member.KindMapped, want: path.Mapped},
		{at: "203.0.113.9:51820", kind: member.KindStatic, want: path.Static},
		{at: "203.0.113.9:51820", kind: member.KindObserved, want: path.Observed},
		{at: "203.0.113.9:51820", kind: "", want: path.Observed},
		{at: "192.168.1.11:51820", kind: member.KindOwn, want: path.Own, near: true},
		{at: "192.168.1.11:51820", kind: member.KindMapped, want: path.Mapped, near: true},
		{at: "10.1.2.3:51820", kind: member.KindOwn, want: path.Own, near: true},
		{at: "10.1.2.3:51820", kind: member.KindMapped, want: path.Mapped},
		{at: "[2001:db8:1::7]:51820", kind: member.KindOwn, want: path.Own, near: true},
		{at: "[2001:db8:2::7]:51820", kind: member.KindOwn, want: path.Own},
		{at: "[::ffff:203.0.113.9]:51820", kind: member.KindOwn, want: path.Own},
		{at: "192.168.1.10:51820", kind: member.KindOwn, none: true},
		{at: "100.112.3.1:51820", kind: member.KindOwn, none: true},
		{at: "[fd7f:175a:b97c:5602::1]:51820", kind: member.KindOwn, none: true},
		{at: "[2001:db8:9::1]:51820", kind: member.KindOwn, none: true},
		{at: "127.0.0.1:51820", kind: member.KindOwn, none: true},
		{at: "[fe80::1]:51820", kind: member.KindOwn, none: true},
		{at: "224.0.0.1:51820", kind: member.KindOwn, none: true},
		{at: "0.0.0.0:51820", kind: member.KindOwn, none: true},
		{at: "203.0.113.9:0", kind: member.KindOwn, none: true},
	} {
		m := &roster.Member{Facts: member.Facts{Endpoints: []member.Endpoint{{Addr: netip.MustParseAddrPort(c.at), Kind: c.kind}}}}
		got := s.candidates(m)
		if c.none != (len(got) == 0) || len(got) > 1 {
			t.Errorf("%s (%s): %v", c.at, c.kind, got)
			continue
		}
		if !c.none && (got[0].Kind != c.want || got[0].Near != c.near || got[0].Addr.Addr().Is4In6()) {
			t.Errorf("%s (%s): %+v", c.at, c.kind, got[0])
		}
	}
}

func TestHubsAtWhichBothAre(t *testing.T) {
	m := &roster.Member{Facts: member.Facts{RelayCluster: "c1", Relays: []string{"h3", "h1", "h2"}}}
	for _, c := range []struct {
		cluster string
		hubs    []string
		want    []string
	}{
		{"c1", []string{"h1", "h2"}, []string{"h1", "h2"}},
		{"c1", []string{"h2", "h9", "h1"}, []string{"h2", "h1"}},
		{"c2", []string{"h1"}, nil},
		{"", []string{"h1"}, nil},
		{"c1", nil, nil},
	} {
		if got := meet(c.cluster, c.hubs, m); !slices.Equal(got, c.want) {
			t.Errorf("%s at %v: %v, want %v", c.cluster, c.hubs, got, c.want)
		}
	}
}
