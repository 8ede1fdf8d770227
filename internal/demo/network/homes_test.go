// SPDX-License-Identifier: Apache-2.0

package network

import "testing"

func TestHomesThatFindADirectPath(t *testing.T) {
	usual := &Home{NAT: Translation{Mapping: Independent, Filtering: AddressPortDependent}}
	cloud := &Home{NAT: Translation{Mapping: AddressPortDependent, Filtering: AddressPortDependent}}
	lenient := &Home{NAT: Translation{Mapping: Independent, Filtering: AddressDependent}}
	for _, c := range []struct {
		name     string
		one, two *Home
		want     bool
	}{
		{"two usual routers", usual, usual, true},
		{"usual and cloud", usual, cloud, false},
		{"two clouds", cloud, cloud, false},
		{"usual and lenient", usual, lenient, true},
		{"cloud and lenient", cloud, lenient, true},
	} {
		if got := c.one.DirectWith(c.two); got != c.want || c.two.DirectWith(c.one) != got {
			t.Errorf("%s: direct is %v, want %v, and the same from both sides", c.name, got, c.want)
		}
	}
}
