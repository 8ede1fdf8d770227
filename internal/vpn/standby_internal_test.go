// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestStandby(t *testing.T) {
	now := time.Unix(1_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	fresh, good := ago(time.Second), ago(time.Hour)
	for name, test := range map[string]struct {
		peers []peer
		comes string
		takes bool
		again []int
	}{
		"nobody is here":                 {comes: "a", takes: true},
		"one has the ranges and answers": {[]peer{{client: 1, name: "a", active: true, since: good, answered: fresh}}, "b", false, nil},
		"one is new":                     {[]peer{{client: 1, name: "a", active: true, since: fresh}}, "b", false, nil},
		"one never answered":             {[]peer{{client: 1, name: "a", active: true, since: good}}, "b", true, nil},
		"one comes again":                {[]peer{{client: 1, name: "a", active: true, since: good, answered: fresh}}, "a", true, nil},
		"one is silent, and another stands by": {[]peer{
			{client: 1, name: "a", active: true, since: good, answered: ago(deadAfter)},
			{client: 2, name: "b", since: good, answered: fresh}}, "c", true, []int{1, 2}},
		"one is silent, and nobody can take its place": {[]peer{
			{client: 1, name: "a", active: true, since: good, answered: ago(deadAfter)},
			{client: 2, name: "b", since: good, answered: ago(time.Minute)}, {client: 3, name: "c", since: fresh}}, "d", true, nil},
		"the one that had them is gone": {[]peer{{client: 4, name: "c", since: good, answered: fresh},
			{client: 2, name: "b", since: good, answered: fresh}}, "d", true, []int{2}},
	} {
		if got := takes(test.peers, test.comes, favour{}, now); got != test.takes {
			t.Errorf("%s: %s takes the ranges: %v", name, test.comes, got)
		}
		if got := relieve(test.peers, now); !slices.Equal(got, test.again) {
			t.Errorf("%s: %v have to come again, want %v", name, got, test.again)
		}
	}
}

// After a start of OpenVPN the ranges are kept for the client that had them, for a moment.
func TestFavour(t *testing.T) {
	now := time.Unix(1_000, 0)
	for name, test := range map[string]struct {
		kept  favour
		comes string
		want  bool
	}{
		"the same client":   {favour{"a", now.Add(time.Second)}, "a", true},
		"another one":       {favour{"a", now.Add(time.Second)}, "b", false},
		"another one, late": {favour{"a", now}, "b", true},
		"the first start":   {favour{"", now.Add(time.Second)}, "b", true},
	} {
		if got := takes(nil, test.comes, test.kept, now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPlaces(t *testing.T) {
	peers := []peer{{name: "a", place: 1}, {name: "b", place: 3}}
	for _, test := range []struct {
		name   string
		former map[string]int
		want   int
	}{
		{"c", nil, 2}, {"a", nil, 1}, {"c", map[string]int{"c": 5}, 5}, {"c", map[string]int{"c": 3}, 2},
		{"c", map[string]int{"d": 2}, 4},
	} {
		if got := placeOf(peers, test.name, test.former); got != test.want {
			t.Errorf("%s with %v: place %d, want %d", test.name, test.former, got, test.want)
		}
	}
	all := transfer{netip.MustParsePrefix("192.168.123.0/24"), netip.MustParsePrefix("fd8f:6d53:b97a:1::/96")}
	if got := texts(peer{place: 2}.addresses(all)); !slices.Equal(got, []string{"192.168.123.3", "fd8f:6d53:b97a:1::3"}) {
		t.Error(got)
	}
}
