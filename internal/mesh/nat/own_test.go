// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func TestOwnAddresses(t *testing.T) {
	up := func(link, prefix string) Address {
		return Address{Interface: link, Prefix: netip.MustParsePrefix(prefix), Up: true}
	}
	with := func(a Address, fn func(*Address)) Address {
		fn(&a)
		return a
	}
	down := func(a *Address) { a.Up = false }
	temporary := func(a *Address) { a.Temporary = true }
	overlay := Choice{Overlay: []netip.Prefix{netip.MustParsePrefix("fd7f:175a:b97c:5602::/64"), netip.MustParsePrefix("100.112.0.0/12")}}
	for name, c := range map[string]struct {
		all  []Address
		c    Choice
		want []string
	}{
		"nothing":        {},
		"public first":   {all: []Address{up("eth1", "10.0.0.2/24"), up("eth0", "203.0.113.2/24"), up("eth0", "2001:db8::2/64")}, want: []string{"203.0.113.2", "2001:db8::2", "10.0.0.2"}},
		"loopback":       {all: []Address{up("lo", "127.0.0.1/8"), up("lo", "203.0.113.2/32"), up("eth0", "127.0.0.2/8"), up("eth0", "::1/128")}},
		"link-local":     {all: []Address{up("eth0", "fe80::1/64"), up("eth0", "169.254.1.2/16")}},
		"no host":        {all: []Address{up("eth0", "0.0.0.0/0"), up("eth0", "ff02::1/128"), up("eth0", "::/0")}},
		"down":           {all: []Address{with(up("eth0", "10.0.0.2/24"), down)}},
		"tentative":      {all: []Address{with(up("eth0", "2001:db8::2/64"), func(a *Address) { a.Tentative = true })}},
		"deprecated":     {all: []Address{with(up("eth0", "2001:db8::2/64"), func(a *Address) { a.Deprecated = true })}},
		"temporary":      {all: []Address{with(up("eth0", "2001:db8::99/64"), temporary), up("eth0", "2001:db8::2/64")}, want: []string{"2001:db8::2"}},
		"only temporary": {all: []Address{with(up("eth0", "2001:db8::99/64"), temporary), up("eth0", "2001:db8:1::2/64")}, want: []string{"2001:db8::99", "2001:db8:1::2"}},
		"containers": {all: []Address{up("cni0", "10.244.0.1/24"), up("docker0", "172.17.0.1/16"), up("flannel.1", "10.244.0.0/32"), up("cali123", "10.1.1.1/32"),
			up("veth9", "10.9.9.9/24"), up("br-0123456789ab", "172.18.0.1/16"), up("cilium_host", "10.0.1.1/32"), up("tombolo0", "100.112.1.1/32"), up("br-lan", "192.168.1.1/24")},
			want: []string{"192.168.1.1"}},
		"configured": {all: []Address{up("docker0", "172.17.0.1/16"), up("eth0", "10.0.0.2/24"), up("wan1", "203.0.113.2/24")}, c: Choice{Without: []string{"eth*"}},
			want: []string{"203.0.113.2", "172.17.0.1"}},
		"none left out": {all: []Address{up("docker0", "172.17.0.1/16")}, c: Choice{Without: []string{}}, want: []string{"172.17.0.1"}},
		"the mesh":      {all: []Address{up("wg9", "100.112.3.4/32"), up("wg9", "fd7f:175a:b97c:5602::1/128"), up("eth0", "100.64.0.9/10")}, c: overlay, want: []string{"100.64.0.9"}},
		"twice":         {all: []Address{up("eth0", "10.0.0.2/24"), up("eth1", "10.0.0.2/24")}, want: []string{"10.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, refused := Own(c.all, c.c)
			var texts []string
			for _, a := range got {
				texts = append(texts, a.String())
			}
			if !slices.Equal(texts, c.want) {
				t.Errorf("%v, want %v; refused %v", texts, c.want, refused)
			}
			if len(refused)+len(got) != len(c.all) {
				t.Errorf("of %d addresses %d are used and %d refused", len(c.all), len(got), len(refused))
			}
			for _, r := range refused {
				if r.Why == "" {
					t.Errorf("%v is refused without a reason", r)
				}
			}
		})
	}
}

func TestOwnAddressesAreBounded(t *testing.T) {
	var all []Address
	for i := range limit.LocalAddresses + 10 {
		all = append(all, Address{Interface: "eth0", Prefix: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", i)), Up: true})
	}
	if got, refused := Own(all, Choice{}); len(got) != limit.LocalAddresses || len(refused) != 10 {
		t.Errorf("%d are used, %d refused", len(got), len(refused))
	}
}

func TestPublic(t *testing.T) {
	for a, want := range map[string]bool{
		"8.8.8.8": true, "203.0.113.1": true, "2001:db8::1": true, "2a00::1": true, "::ffff:8.8.8.8": true,
		"10.1.1.1": false, "172.16.0.1": false, "192.168.0.1": false, "100.64.0.1": false, "100.127.255.255": false, "100.128.0.1": true,
		"127.0.0.1": false, "169.254.0.1": false, "224.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "255.255.255.255": false, "240.0.0.1": false,
		"198.18.0.1": false, "192.0.0.1": false, "fd00::1": false, "fe80::1": false, "::1": false, "::": false, "2002::1": false, "2001::1": false, "100::1": false,
	} {
		if IsPublic(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: public is not %v", a, want)
		}
	}
	if IsPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestPatterns(t *testing.T) {
	if bad, err := CheckPatterns(DefaultWithout()); err != nil {
		t.Errorf("%s: %v", bad, err)
	}
	if bad, err := CheckPatterns([]string{"a*", "[x"}); err == nil || bad != "[x" {
		t.Errorf("%s, %v", bad, err)
	}
}
