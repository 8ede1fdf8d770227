// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/vpn/network"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		self string
		n    int
		want []int
	}{
		{"192.168.128.16", 0, []int{}},
		{"192.168.128.17", 1, []int{0}},
		{"192.168.128.16", 2, []int{0, 1}},
		{"192.168.128.17", 2, []int{1, 0}},
		{"192.168.129.17", 2, []int{1, 0}},
		{"fd00::11", 2, []int{1, 0}},
		{"192.168.128.0", 3, []int{0, 1, 2}},
		{"192.168.128.1", 3, []int{1, 2, 0}},
		{"192.168.128.2", 3, []int{2, 0, 1}},
		{"192.168.128.3", 3, []int{0, 2, 1}}, // the same first choice as .0, and another second one
		{"192.168.128.4", 3, []int{1, 0, 2}},
		{"192.168.128.5", 3, []int{2, 1, 0}},
	} {
		if got := network.Order(netip.MustParseAddr(c.self), c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s of %d: %v, want %v", c.self, c.n, got, c.want)
		}
	}
	if got := network.Order(netip.Addr{}, 3); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("without an address: %v", got)
	}
}

// TestOrderIsShared: of addresses in a row, each endpoint has as many as the others, but for one; and when one of them
// is lost, each of the rest gets as many of its clusters, but for one.
func TestOrderIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "endpoints")
		from := rapid.IntRange(0, 255).Draw(t, "from")
		to := rapid.IntRange(from, 255).Draw(t, "to")
		first, second := make([]int, n), make([][]int, n)
		for i := range second {
			second[i] = make([]int, n)
		}
		for last := from; last <= to; last++ {
			o := network.Order(netip.AddrFrom4([4]byte{192, 168, 128, byte(last)}), n)
			all := slices.Sorted(slices.Values(o))
			for i, x := range all {
				if i != x || len(all) != n {
					t.Fatalf("%d: %v", last, o)
				}
			}
			first[o[0]]++
			second[o[0]][o[1]]++
		}
		if slices.Max(first)-slices.Min(first) > 1 {
			t.Errorf("first choices of %d to %d: %v", from, to, first)
		}
		for lost, heirs := range second {
			rest := slices.Delete(slices.Clone(heirs), lost, lost+1)
			if heirs[lost] != 0 || slices.Max(rest)-slices.Min(rest) > 1 {
				t.Errorf("without %d its clusters go to %v", lost, heirs)
			}
		}
	})
}
