// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestOverlay6(t *testing.T) {
	p := topology.Overlay6("8XuV9TZHW08DOk3bVxQjH9ih_TBKjnh-j44tsCLSBzo=")
	if p.String() != "fd7f:175a:b97c:5602::/64" {
		t.Fatalf("prefix %s", p)
	}
	named := topology.Named6(p, "node1")
	nobody := func(netip.Addr) bool { return false }
	for _, tc := range []struct {
		hardware string
		taken    func(netip.Addr) bool
		want     string
	}{
		{"2e1ab6538169", nobody, "fd7f:175a:b97c:5602:2c1a:b6ff:fe53:8169"},
		{"0200000000000001", nobody, "fd7f:175a:b97c:5602::1"}, // EUI-64 itself
		{"", nobody, named.String()},
		{"000000000000", nobody, named.String()},                             // a TUN link, or lo
		{"0102030405060708090a0b0c0d0e0f1011121314", nobody, named.String()}, // InfiniBand
		{"2e1ab6538169", func(a netip.Addr) bool { return a.String() == "fd7f:175a:b97c:5602:2c1a:b6ff:fe53:8169" }, named.String()},
	} {
		var hardware []byte
		fmt.Sscanf(tc.hardware, "%x", &hardware)
		if got := topology.Choose6(p, hardware, "node1", tc.taken); got.String() != tc.want {
			t.Errorf("%s: %s, want %s", tc.hardware, got, tc.want)
		}
	}
	if !p.Contains(named) || named == topology.Named6(p, "node2") || named.As16()[8]&0x02 != 0 {
		t.Errorf("by its name: %s", named)
	}
	if named.String() != "fd7f:175a:b97c:5602:"+nodeOne {
		t.Errorf("the address by a name has changed: %s", named)
	}
}

// nodeOne is the host half by the name node1; nodeOne4 its first candidate in the
// default pool. Other releases come to the same.
const (
	nodeOne  = "bd70:55a1:a5a:f46a"
	nodeOne4 = "100.112.171.224"
)

func TestOverlay4(t *testing.T) {
	pool := netip.MustParsePrefix("100.112.0.0/12")
	nobody := func(netip.Addr) bool { return false }
	first := topology.Choose4(pool, "node1", nobody)
	if first.String() != nodeOne4 {
		t.Errorf("the first candidate has changed: %s", first)
	}
	second := topology.Choose4(pool, "node1", func(a netip.Addr) bool { return a == first })
	if second == first || !pool.Contains(second) || !pool.Contains(first) {
		t.Errorf("candidates %s and %s", first, second)
	}
	small := netip.MustParsePrefix("192.0.2.4/30")
	seen := map[netip.Addr]bool{}
	for n := range 64 {
		seen[topology.Choose4(small, fmt.Sprint("node", n), nobody)] = true
	}
	if len(seen) != 2 || !seen[netip.MustParseAddr("192.0.2.5")] || !seen[netip.MustParseAddr("192.0.2.6")] {
		t.Errorf("of a small pool: %v", seen)
	}
	for name, a := range map[string]netip.Addr{
		"a pool that is full": topology.Choose4(small, "node1", func(netip.Addr) bool { return true }),
		"no pool":             topology.Choose4(netip.Prefix{}, "node1", nobody),
		"too small a pool":    topology.Choose4(netip.MustParsePrefix("192.0.2.4/31"), "node1", nobody),
		"a pool of IPv6":      topology.Choose4(netip.MustParsePrefix("fd00::/8"), "node1", nobody),
	} {
		if a.IsValid() {
			t.Errorf("%s: %s", name, a)
		}
	}
}
