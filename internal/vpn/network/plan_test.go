// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
)

var update = flag.Bool("update", false, "write the golden files")

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// TestState holds what is written to the kernel for both ends.
func TestState(t *testing.T) {
	var served []mapping.Range
	for _, r := range [][2]string{{"10.244.0.0/16", "240.1.0.0/16"}, {"10.96.0.0/12", ""}, {"fd00:10::/64", ""}} {
		one, err := mapping.Parse("c1", r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, one)
	}
	for name, tunnel := range map[string]network.Tunnel{
		"server": {Link: "tombolo-vpn", Filter: "tombolo_vpn", Table: 182, Rule: 32512, MTU: 1500,
			Addresses: prefixes("192.168.123.1/24", "fd8f:6d53:b97a:1::1/96"),
			Routed:    prefixes("240.1.0.0/16", "10.96.0.0/12", "fd00:10::/64")},
		"client": {Link: "tombolo-vpn0", Filter: "tombolo_vpn0", Table: 182, Rule: 32512, MTU: 1400,
			Addresses: prefixes("192.168.123.2/24"), Served: served},
		"client-waits": {Link: "tombolo-vpn0", Filter: "tombolo_vpn0", Table: 182, Rule: 32512, MTU: 1500, Served: served},
		"client-dials": {Link: "tombolo-vpn0", Filter: "tombolo_vpn0", Table: 182, Rule: 32512, MTU: 1500,
			Addresses: prefixes("192.168.123.2/24"), Routed: prefixes("10.0.0.0/16")},
	} {
		text := plan.Print(plan.Diff(plan.State{}, tunnel.State()))
		path := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != text {
			t.Errorf("%s differs from its golden file (-update writes it): %v\n%s", name, err, text)
		}
	}
}

func TestOverlaps(t *testing.T) {
	part := func(text string) network.Part {
		return network.Part{What: "of " + text, Range: netip.MustParsePrefix(text)}
	}
	for _, test := range []struct {
		parts, reserved []network.Part
		want            []string
	}{
		{parts: []network.Part{part("10.0.0.0/16"), part("10.1.0.0/16"), part("fd00::/64")}},
		{parts: []network.Part{part("10.0.0.0/8"), part("10.1.0.0/16")}, want: []string{"10.0.0.0/8", "10.1.0.0/16"}},
		{parts: []network.Part{part("240.1.0.0/16")}, reserved: []network.Part{part("240.0.0.0/4")}, want: []string{"240.1.0.0/16", "240.0.0.0/4"}},
	} {
		got := network.Overlaps(test.parts, test.reserved)
		if len(got) > 1 || len(got) == 0 != (test.want == nil) ||
			slices.ContainsFunc(test.want, func(text string) bool { return !strings.Contains(got[0], text) }) {
			t.Errorf("%v: %q", test.parts, got)
		}
	}
}

func TestHosts(t *testing.T) {
	if n := network.Hosts(prefixes("10.0.0.0/24", "10.1.0.0/16")); n != 256+65536 {
		t.Error(n)
	}
	if n := network.Hosts(prefixes("fd00::/64", "fd01::/64")); n != 1<<30 {
		t.Error(n)
	}
}
