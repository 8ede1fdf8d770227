// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

func TestListSettles(t *testing.T) {
	heard := discoveryclient.Status{Kind: discoveryclient.KindService, State: discoveryclient.StateAttending}
	settled := heard
	settled.Settled = true
	away := discoveryclient.Status{Kind: discoveryclient.KindService, State: discoveryclient.StateAway}
	cache := discoveryclient.Status{Kind: discoveryclient.KindCache}
	for _, c := range []struct {
		what      string
		sources   []discoveryclient.Status
		unsettled int
		attended  bool
	}{
		{"none", nil, 0, false},
		{"a cache alone", []discoveryclient.Status{cache}, 0, false},
		{"a service is away", []discoveryclient.Status{away, cache}, 1, false},
		{"one has said all, one not yet", []discoveryclient.Status{settled, heard, away}, 2, true},
	} {
		l := List{Sources: c.sources}
		if n := len(l.Unsettled()); n != c.unsettled || l.Attended() != c.attended {
			t.Errorf("%s: %d unsettled, want %d; attended %v, want %v", c.what, n, c.unsettled, l.Attended(), c.attended)
		}
	}
}

func TestListNamed(t *testing.T) {
	all := List{Members: []roster.Member{{}, {}}}
	all.Members[0].Node, all.Members[1].ID = "a", "id-b"
	for name, want := range map[string]int{"a": 1, "id-b": 1, "c": 0} {
		if got := all.Named(name); len(got.Members) != want {
			t.Errorf("%s: %d members, want %d", name, len(got.Members), want)
		}
	}
	if len(all.Members) != 2 || all.Members[0].Node != "a" {
		t.Error("the list itself has changed")
	}
}
