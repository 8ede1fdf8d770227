// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
)

// TestWhoIsAttended: a service counts once, while it tells of members and has taken this
// node's word.
func TestWhoIsAttended(t *testing.T) {
	subs, all := &subscriptions{}, &held{}
	for _, s := range []struct {
		name    string
		state   State
		refused string
	}{
		{"a", StateAway, ""}, {"b", StateAttending, ""}, {"b", StateAttending, ""}, {"c", StateConnecting, ""}, {"d", StateAttending, "full"}, {"a", StateAttending, ""},
	} {
		c := &subscription{service: Service{Name: s.name}}
		c.status.init(Status{State: s.state, Refused: s.refused})
		all.all = append(all.all, c)
	}
	subs.held.Store(all)
	f := &Client{subs: subs}
	if got := f.Attending(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%v", got)
	}
}
