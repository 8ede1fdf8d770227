// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

func addresses(all ...string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range all {
		out[netip.MustParseAddr(a)] = true
	}
	return out
}

func TestFirstFree(t *testing.T) {
	all := map[netip.Addr]bool{}
	for a := netip.MustParseAddr("10.0.0.16"); a != netip.MustParseAddr("10.0.0.31"); a = a.Next() {
		all[a] = true
	}
	for name, c := range map[string]struct {
		within string
		taken  map[netip.Addr]bool
		want   string
	}{
		"the first":                      {"192.168.128.0/22", nil, "192.168.128.16"},
		"after one":                      {"192.168.128.0/22", addresses("192.168.128.16"), "192.168.128.17"},
		"in a gap":                       {"192.168.128.0/22", addresses("192.168.128.16", "192.168.128.18"), "192.168.128.17"},
		"others do not matter":           {"192.168.128.0/22", addresses("192.168.128.15", "10.0.0.16"), "192.168.128.16"},
		"none is left, and no broadcast": {"10.0.0.0/27", all, "invalid IP"},
		"the smallest range":             {"10.0.0.0/27", nil, "10.0.0.16"},
		"a range that is too small":      {"10.0.0.0/28", nil, "invalid IP"},
		"a byte that carries":            {"10.0.255.240/27", nil, "10.0.255.240"},
		"no range":                       {"", nil, "invalid IP"},
	} {
		t.Run(name, func(t *testing.T) {
			var within netip.Prefix
			if c.within != "" {
				within = netip.MustParsePrefix(c.within)
			}
			if got, ok := FirstFree(within, c.taken); got.String() != c.want || ok != got.IsValid() {
				t.Errorf("%v, %v, want %s", got, ok, c.want)
			}
		})
	}
}

// TestAllocation switches clusters on and off, gives them other modes and removes them, in any order: no two have one
// address, each keeps its own until it is removed, and the lowest free one is taken.
func TestAllocation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Enabled: rapid.Bool().Draw(t, "enabled"), Range: netip.MustParsePrefix("10.0.0.0/27"),
			Most: rapid.IntRange(0, 16).Draw(t, "most")}
		var all []Cluster
		drawn := byte(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			name := rapid.StringMatching(`c[0-9]`).Draw(t, "name") + rapid.StringMatching(`[0-9]`).Draw(t, "more")
			had, there := Entry(all, name)
			if rapid.IntRange(0, 3).Draw(t, "act") == 0 {
				all = without(all, name)
				continue
			}
			mode := rapid.SampledFrom([]Mode{"", Inherit, On, Off}).Draw(t, "mode")
			drawn++
			before := Config{Range: c.Range}.Free(all)
			got, err := c.Settle(all, name, Change{Mode: mode}, keysOf(drawn))
			if err != nil {
				full := before == 0 && !had.Address.IsValid()
				capped := c.Most > 0 && c.Served(all) >= c.Most
				if !fault.Has(err, fault.CodeLimit) || !full && !capped {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			if c.Effective(got.Mode) != c.Serves(got) {
				t.Fatalf("%+v is neither on nor off", got)
			}
			if there && had.Address.IsValid() && (got.Address != had.Address || got.PublicKey != had.PublicKey) {
				t.Fatalf("%s had %s, and has %s", name, had.Address, got.Address)
			}
			if lowest, _ := FirstFree(c.Range, taken(all)); got.Address.IsValid() && !had.Address.IsValid() && got.Address != lowest {
				t.Fatalf("%s has %s, and %s was free", name, got.Address, lowest)
			}
			all = append(without(all, name), got)
			if err := c.Fits(all); err != nil {
				t.Fatal(err)
			}
			if c.Most > 0 && c.Served(all) > c.Most {
				t.Fatalf("%d are on, at most %d may be", c.Served(all), c.Most)
			}
			if n := len(taken(all)); n+c.Free(all) != 15 {
				t.Fatalf("%d addresses are taken, and %d are free", n, c.Free(all))
			}
			for i, a := range all {
				for _, b := range all[:i] {
					if a.Address.IsValid() && a.Address == b.Address {
						t.Fatalf("%s and %s have %s", a.Name, b.Name, a.Address)
					}
				}
			}
		}
	})
}

func without(all []Cluster, name string) (out []Cluster) {
	for _, k := range all {
		if k.Name != name {
			out = append(out, k)
		}
	}
	return out
}

func taken(all []Cluster) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, k := range all {
		if k.Address.IsValid() {
			out[k.Address] = true
		}
	}
	return out
}

func secretOf(n byte) Secret { return Secret{secret.Hide(&[32]byte{n, 1})} }

func keysOf(n byte) Keys { return Keys{member.Key{n, 2}, secretOf(n), secretOf(n)} }
