// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
)

// TestWhoIsAttended: a service counts once, while it tells of members and has taken this
// node's word.
func TestWhoIsAttended(t *testing.T) {
	f, all := &Client{}, &held{}
	for _, s := range []struct {
		name    string
		state   State
		refused string
	}{
		{"a", StateAway, ""}, {"b", StateAttending, ""}, {"b", StateAttending, ""}, {"c", StateConnecting, ""}, {"d", StateAttending, "full"}, {"a", StateAttending, ""},
	} {
		c := &subscription{service: Service{Name: s.name}}
		c.status.init(Status{State: s.state, Refused: s.refused})
		all.subscriptions = append(all.subscriptions, c)
	}
	f.held.Store(all)
	if got := f.Attending(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%v", got)
	}
}
