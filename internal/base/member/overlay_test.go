// SPDX-License-Identifier: Apache-2.0

package member_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// The addresses of one id. Other releases come to the same.
const (
	aMember = "0f2c9vnt8glpvjdqgh3c8p3sk1o5j1m0gk2q3tt1hs8g7n6v5e20"
	hostOf  = "fd7f:175a:b97c:5602:3495:aad7:2daa:cb6a"
	fourOf  = "100.119.31.127"
)

func TestOverlay6(t *testing.T) {
	p := member.Overlay6("8XuV9TZHW08DOk3bVxQjH9ih_TBKjnh-j44tsCLSBzo=") // as Talos derives it
	if p.String() != "fd7f:175a:b97c:5602::/64" || !member.IsOverlay6(p) || member.IsOverlay6(netip.MustParsePrefix("fd00::/64")) {
		t.Fatalf("prefix %s", p)
	}
	a := member.Address6(p, aMember)
	if a.String() != hostOf || !p.Contains(a) || a.As16()[8]&0x02 != 0 {
		t.Errorf("address %s", a)
	}
	if member.Address6(p, aMember+"x") == a || member.Address6(member.Overlay6("another"), aMember).As16()[15] != a.As16()[15] {
		t.Error("the host half does not follow from the id alone")
	}
}

func TestAddress4(t *testing.T) {
	pool := netip.MustParsePrefix("100.112.0.0/12")
	nobody := func(netip.Addr) bool { return false }
	first := member.Address4(pool, aMember, nobody)
	if first.String() != fourOf {
		t.Errorf("the first candidate has changed: %s", first)
	}
	second := member.Address4(pool, aMember, func(a netip.Addr) bool { return a == first })
	if second == first || !pool.Contains(second) || !pool.Contains(first) {
		t.Errorf("candidates %s and %s", first, second)
	}
	small := netip.MustParsePrefix("192.0.2.4/30")
	seen := map[netip.Addr]bool{}
	for n := range 64 {
		seen[member.Address4(small, fmt.Sprint("member", n), nobody)] = true
	}
	if len(seen) != 2 || !seen[netip.MustParseAddr("192.0.2.5")] || !seen[netip.MustParseAddr("192.0.2.6")] {
		t.Errorf("of a small pool: %v", seen)
	}
	for name, a := range map[string]netip.Addr{
		"a pool that is full": member.Address4(small, aMember, func(netip.Addr) bool { return true }),
		"no pool":             member.Address4(netip.Prefix{}, aMember, nobody),
		"too small a pool":    member.Address4(netip.MustParsePrefix("192.0.2.4/31"), aMember, nobody),
		"a pool of IPv6":      member.Address4(netip.MustParsePrefix("fd00::/8"), aMember, nobody),
	} {
		if a.IsValid() {
			t.Errorf("%s: %s", name, a)
		}
	}
}
