// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestMembersOfTheRoster(t *testing.T) {
	where := func(at, kind string) roster.Where {
		return roster.Where{Addr: netip.MustParseAddrPort(at), Kind: kind}
	}
	key := member.Key{7}
	full := roster.Facts{
		ID: "a", Node: "n1", Hostname: "h", Key: key, Overlay6: netip.MustParseAddr("fd00::1"), Overlay4: netip.MustParseAddr("100.112.0.9"),
		Addresses: addrs("192.0.2.1"), Ranges: prefixes("10.1.0.0/24"), Excluded: prefixes("10.1.0.9/32"),
		Endpoints: []roster.Where{
			where("192.0.2.1:51820", roster.KindOwn), where("198.51.100.1:4000", roster.KindMapped), where("198.51.100.1:4001", roster.KindMapped),
			where("203.0.113.5:1", roster.KindStatic), where("10.9.9.9:51820", roster.KindObserved),
		},
	}
	want := topology.Member{
		ID: "a", Node: "n1", Key: key, Overlay6: full.Overlay6, Overlay4: full.Overlay4, Addresses: full.Addresses,
		Endpoints: addrs("192.0.2.1", "198.51.100.1", "203.0.113.5"), Ranges: full.Ranges, Excluded: full.Excluded,
	}
	for _, tc := range []struct {
		name string
		in   roster.Member
		want topology.Member
	}{
		{"with everything", roster.Member{Facts: full, Tier: roster.TierNative}, want},
		{"a stale one counts", roster.Member{Facts: full, Tier: roster.TierNative, Stale: true, Until: time.Unix(1, 0)}, want},
		{"without a key", roster.Member{Facts: roster.Facts{ID: "b", Addresses: addrs("192.0.2.7")}}, topology.Member{ID: "b", Addresses: addrs("192.0.2.7")}},
		{"nothing but an id", roster.Member{Facts: roster.Facts{ID: "c"}}, topology.Member{ID: "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := MemberOf(tc.in); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v\nwant %+v", got, tc.want)
			}
		})
	}
	t.Run("nothing is shared", func(t *testing.T) {
		got := MemberOf(roster.Member{Facts: full})
		got.Ranges[0] = netip.Prefix{}
		if !full.Ranges[0].IsValid() {
			t.Error("to change one changes the other")
		}
	})
}

func TestIDsOfMembersAreUnique(t *testing.T) {
	in := []roster.Member{
		{Facts: roster.Facts{ID: "n1"}, Tier: roster.TierKubernetes}, {Facts: roster.Facts{ID: "n1"}, Tier: roster.TierStatic},
		{Facts: roster.Facts{ID: "n2"}, Tier: roster.TierOlder},
	}
	var got []string
	for _, m := range MembersOf(in) {
		got = append(got, m.ID)
	}
	if want := []string{"n1 (kubernetes)", "n1", "n2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLocalFacts(t *testing.T) {
	at := func(link, prefix string) nat.Address {
		return nat.Address{Interface: link, Prefix: netip.MustParsePrefix(prefix), Up: true}
	}
	got := localOf([]nat.Address{
		at("lo", "127.0.0.1/8"), at("lo", "::1/128"), at("eth0", "192.0.2.2/24"), at("eth0", "fe80::1/64"), at("eth0", "2001:db8::2/64"),
		at("cni0", "10.244.1.1/24"), at("tombolo0", "100.112.0.1/32"), at("eth1", "192.0.2.2/32"),
	}, append(addrs("192.0.2.1", "fe80::1", "2001:db8::1"), netip.Addr{}), [][]byte{
		[]byte("# nameserver 10.0.0.9\nsearch x\nnameserver 127.0.0.53\nnameserver\t10.0.0.53 # x\noptions edns0\nnameserver fe80::53%eth0\nnameserver\n"),
		[]byte("nameserver 2001:db8::53\nnameserver 10.0.0.53\nnameserver nonsense"),
	}, "tombolo0")
	want := topology.Local{
		Addresses: addrs("10.244.1.1", "192.0.2.2", "2001:db8::2"), Gateways: addrs("192.0.2.1", "2001:db8::1"), Resolvers: addrs("10.0.0.53", "2001:db8::53"),
		Networks: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestUnderlay: the links of the default routes count, and where there is none the
// addresses from which services are reached.
func TestUnderlay(t *testing.T) {
	all := []nat.Address{}
	for _, a := range [][2]string{{"lo", "127.0.0.1/8"}, {"eth0", "192.0.2.2/24"}, {"eth0", "fe80::1/64"}, {"eth0", "2001:db8::2/64"}, {"lan0", "192.168.7.1/24"}, {"tombolo0", "100.112.0.1/32"}} {
		all = append(all, nat.Address{Interface: a[0], Prefix: netip.MustParsePrefix(a[1]), Up: true})
	}
	for _, c := range []struct {
		outward []string
		sources []netip.Addr
		want    []netip.Addr
	}{
		{nil, nil, nil},
		{[]string{"eth0"}, nil, addrs("192.0.2.2", "2001:db8::2")},
		{[]string{"eth0", "tombolo0"}, nil, addrs("192.0.2.2", "2001:db8::2")},
		{nil, addrs("192.168.7.1", "10.0.0.9"), addrs("192.168.7.1")},
	} {
		if got := underlay(all, c.outward, c.sources, "tombolo0"); !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.outward, c.sources, got, c.want)
		}
	}
}

// The files of resolvers may be missing, or longer than anybody writes them.
func TestFilesOfResolvers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, append([]byte("nameserver 192.0.2.53\n"), make([]byte, 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Around{Link: "tombolo0", Resolvers: []string{filepath.Join(dir, "none"), file}}.Local()
	if err != nil || !slices.Equal(got.Resolvers, addrs("192.0.2.53")) {
		t.Errorf("%+v, %v", got, err)
	}
}
