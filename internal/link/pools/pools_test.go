// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/pools"
)

func TestCompare(t *testing.T) {
	a, b := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd10:2::/64")
	pool := func(p netip.Prefix, ours bool) pools.Pool {
		return pools.Pool{Name: pools.Name(p.String()), CIDR: p, Disabled: true, Ours: ours}
	}
	enabled := pool(a, true)
	enabled.Disabled = false
	other := pools.Pool{Name: "theirs", CIDR: netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		want []netip.Prefix
		have []pools.Pool
		is   string
	}{
		"new":                     {[]netip.Prefix{a, b}, nil, "create [10.1.0.0/16 fd10:2::/64] remove [] <nil>"},
		"as it is":                {[]netip.Prefix{a, b}, []pools.Pool{pool(a, true), pool(b, true)}, "create [] remove [] <nil>"},
		"gone":                    {nil, []pools.Pool{pool(a, true), other}, "create [] remove [tombolo-10-1-0-0-16] <nil>"},
		"enabled by somebody":     {[]netip.Prefix{a}, []pools.Pool{enabled}, "create [10.1.0.0/16] remove [tombolo-10-1-0-0-16] <nil>"},
		"covered by others":       {[]netip.Prefix{a}, []pools.Pool{other}, "create [] remove [] <nil>"},
		"covered by others later": {[]netip.Prefix{a}, []pools.Pool{pool(a, true), other}, "create [] remove [tombolo-10-1-0-0-16] <nil>"},
		"somebody's, the same":    {[]netip.Prefix{a}, []pools.Pool{pool(a, false)}, "create [] remove [] <nil>"},
		"somebody's name": {[]netip.Prefix{a, b}, []pools.Pool{{Name: "tombolo-10-1-0-0-16", CIDR: b}},
			"create [] remove [] link_refused"},
		"somebody's that cannot be read": {[]netip.Prefix{a}, []pools.Pool{{Name: "x"}}, "create [10.1.0.0/16] remove [] <nil>"},
	} {
		p := pools.Compare(c.want, c.have)
		err := "<nil>"
		if p.Err != nil {
			err = string(fault.From(p.Err).Code)
		}
		if got := fmt.Sprintf("create %v remove %v %s", p.Create, p.Remove, err); got != c.is {
			t.Errorf("%s: %s, want %s", name, got, c.is)
		}
	}
}

// TestBlockSize: between 20 and 32 of IPv4, between 116 and 128 of IPv6, and never wider than the pool.
func TestBlockSize(t *testing.T) {
	for cidr, want := range map[string]int{"10.0.0.0/8": 26, "10.0.0.0/26": 26, "10.0.0.0/29": 29, "10.0.0.1/32": 32,
		"fd00::/48": 122, "fd00::/125": 125, "fd00::1/128": 128} {
		if got := pools.BlockSize(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("%s: %d, want %d", cidr, got, want)
		}
	}
}

func TestOurs(t *testing.T) {
	name, cidr := pools.Name("10.1.0.0/16"), "10.1.0.0/16"
	byHand := map[string]string{"app.kubernetes.io/managed-by": "tombolo"}
	if !pools.Ours(name, cidr, pools.Labels()) || pools.Ours(name, cidr, byHand) || pools.Ours(name, "10.2.0.0/16", pools.Labels()) {
		t.Error("a pool is ours by labels, and by a name that fits its range")
	}
}
