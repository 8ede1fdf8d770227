// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestDiversions: packets leave by the other link for the ranges of its peers, but for longer ones of peers of the
// first link within them, and the longest range is asked first.
func TestDiversions(t *testing.T) {
	prefixes := func(text string) (out []netip.Prefix) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for _, c := range []struct{ away, stay, want string }{
		{"", "10.1.0.0/16", ""},
		{"10.1.0.0/16", "", "10.1.0.0/16"},
		{"10.1.0.0/16 fd00:1::/64", "10.2.0.0/16", "10.1.0.0/16 fd00:1::/64"},
		{"10.0.0.0/8", "10.1.0.0/16 11.0.0.0/8", "not 10.1.0.0/16, 10.0.0.0/8"},
		{"10.1.2.0/24", "10.1.0.0/16", "10.1.2.0/24"},
		{"10.0.0.0/8 10.1.2.0/24", "10.1.0.0/16", "10.1.2.0/24 not 10.1.0.0/16, 10.0.0.0/8"},
		{"fd00::/8 fd00:1::1/128", "fd00:1::/64", "fd00:1::1/128 not fd00:1::/64, fd00::/8"},
		{"10.1.0.0/16", "10.1.0.0/16", "not 10.1.0.0/16,"}, // a peer that moves to IPsec
		{"0.0.0.0/0", "::/0", "0.0.0.0/0"},
	} {
		var got []string
		last := uint16(1)
		for _, v := range diversions(prefixes(c.away), prefixes(c.stay)) {
			text := v.to.String()
			if !v.away {
				text = fmt.Sprintf("not %s,", text)
			}
			got = append(got, text)
			if v.priority() < last {
				t.Errorf("%s without %s: %v is asked too late", c.away, c.stay, v)
			}
			last = v.priority()
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s without %s: %q, want %q", c.away, c.stay, all, c.want)
		}
	}
	// A priority has one IP version and one length.
	seen := map[uint16]string{}
	for _, v := range []struct{ any, kind string }{{"0.0.0.0", "4"}, {"::", "6"}} {
		a := netip.MustParseAddr(v.any)
		for bits := range a.BitLen() + 1 {
			p := diversion{to: netip.PrefixFrom(a, bits)}.priority()
			if had := seen[p]; had != "" || p == 0 || !ofDiversion(p) {
				t.Fatalf("%d bits of IPv%s have the priority %d of %s", bits, v.kind, p, had)
			}
			seen[p] = fmt.Sprintf("%d bits of IPv%s", bits, v.kind)
		}
	}
	for p := range uint16(400) {
		if ofDiversion(p) != (seen[p] != "") {
			t.Errorf("the priority %d is ours: %v", p, ofDiversion(p))
		}
	}
}
