// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"fmt"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/pools"
)

func TestCompare(t *testing.T) {
	const a, b = "10.1.0.0/16", "fd10:2::/64"
	pool := func(p string, ours bool) pools.Pool {
		return pools.Pool{Name: pools.Name(p), CIDR: p, Disabled: true, Ours: ours}
	}
	enabled := pool(a, true)
	enabled.Disabled = false
	other := pools.Pool{Name: "theirs", CIDR: "10.0.0.0/8"}
	for name, c := range map[string]struct {
		want []string
		have []pools.Pool
		is   string
	}{
		"new":                     {[]string{a, b}, nil, "create [10.1.0.0/16 fd10:2::/64] remove [] <nil>"},
		"as it is":                {[]string{a, b}, []pools.Pool{pool(a, true), pool(b, true)}, "create [] remove [] <nil>"},
		"gone":                    {nil, []pools.Pool{pool(a, true), other}, "create [] remove [tombolo-10-1-0-0-16] <nil>"},
		"enabled by somebody":     {[]string{a}, []pools.Pool{enabled}, "create [10.1.0.0/16] remove [tombolo-10-1-0-0-16] <nil>"},
		"covered by others":       {[]string{a}, []pools.Pool{other}, "create [] remove [] <nil>"},
		"covered by others later": {[]string{a}, []pools.Pool{pool(a, true), other}, "create [] remove [tombolo-10-1-0-0-16] <nil>"},
		"somebody's, the same":    {[]string{a}, []pools.Pool{pool(a, false)}, "create [] remove [] <nil>"},
		"somebody's name": {[]string{a, b}, []pools.Pool{{Name: "tombolo-10-1-0-0-16", CIDR: b}},
			"create [] remove [] link_refused"},
		"somebody's that cannot be read": {[]string{a}, []pools.Pool{{Name: "x", CIDR: "7"}}, "create [10.1.0.0/16] remove [] <nil>"},
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
		if got := pools.BlockSize(cidr); got != want {
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

// TestRanges: as nodes have it, a map may be wider than a range, and only what is accepted counts.
func TestRanges(t *testing.T) {
	c := pools.Cluster{Name: "b", Ranges: []string{"10.1.0.0/16", "10.9.0.0/16", "fd01::/48", "x"},
		Maps: map[string]string{"10.0.0.0/14": "240.8.0.0/14"}, Accepted: []string{"240.8.0.0/14", "fd00::/8"}}
	if got := fmt.Sprint(pools.Ranges([]pools.Cluster{c, c})); got != "[240.9.0.0/16 fd01::/48]" {
		t.Errorf("%s", got)
	}
	c.Maps["10.9.0.0/16"] = "240.9.0.0/24"
	if got := pools.Ranges([]pools.Cluster{c}); got != nil {
		t.Errorf("of a map that cannot be read: %v", got)
	}
}
