// SPDX-License-Identifier: Apache-2.0

package psk_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/psk"
)

type (
	state = psk.State[string]
	facts = psk.Facts[string]
)

func TestNext(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	two, one := []string{"new", "old"}, []string{"old"}
	for _, c := range []struct {
		name string
		s    state
		f    facts
		now  int
		want state
	}{
		{"nothing yet", state{}, facts{Common: two}, 0, state{"new", "new", at(0)}},
		{"nothing in common", state{"x", "x", at(0)}, facts{}, 9, state{"x", "x", at(0)}},
		{"no handshake waits", state{"new", "new", at(0)}, facts{Common: two}, 999, state{"new", "new", at(0)}},
		{"it settled on the older one", state{"old", "new", at(0)}, facts{Common: two}, 999, state{"old", "new", at(0)}},
		{"a newer one appears", state{"old", "old", at(0)}, facts{Common: two}, 5, state{"new", "new", at(5)}},
		{"and is taken back", state{"new", "new", at(0)}, facts{Common: one}, 5, state{"old", "old", at(5)}},
		{"the one in use is gone", state{"old", "new", at(0)}, facts{Common: []string{"new"}}, 5, state{"new", "new", at(5)}},
		{"one alone", state{"old", "old", at(0)}, facts{Common: one, Asked: at(0)}, 999, state{"old", "old", at(0)}},
		{"not long enough", state{"new", "new", at(0)}, facts{Common: two, Asked: at(100)}, 109, state{"new", "new", at(0)}},
		{"the next one", state{"new", "new", at(0)}, facts{Common: two, Asked: at(100)}, 110, state{"old", "new", at(110)}},
		{"round again", state{"old", "new", at(110)}, facts{Common: two, Asked: at(100)}, 120, state{"new", "new", at(120)}},
		{"its turn goes on", state{"old", "new", at(110)}, facts{Common: two, Asked: at(100)}, 119, state{"old", "new", at(110)}},
		{"the patient one stays", state{"new", "new", at(0)}, facts{Common: two, Asked: at(100), Patient: true}, 129, state{"new", "new", at(0)}},
		{"and goes on after a round of the other", state{"new", "new", at(0)}, facts{Common: two, Asked: at(100), Patient: true}, 130, state{"old", "new", at(130)}},
	} {
		if got := psk.Next(c.s, c.f, at(c.now)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestTheyMeet: two nodes that each know some secrets of a few, and learn of the others late,
// have a handshake within what the patient one needs for a round,
// whenever each began.
func TestTheyMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		count := rapid.IntRange(2, limit.ClusterSecrets).Draw(t, "secrets")
		all := []string{"4", "3", "2", "1"}[:count]
		var ends [2]state
		for i := range ends {
			ends[i] = state{Use: rapid.SampledFrom(all).Draw(t, "begins with"), Newest: all[0],
				Since: now.Add(-time.Duration(rapid.IntRange(0, 60_000).Draw(t, "since")) * time.Millisecond)}
		}
		retry := time.Duration(rapid.IntRange(5000, 5400).Draw(t, "retry")) * time.Millisecond
		asked := now
		const step = 100 * time.Millisecond
		round := psk.PSKTurn * time.Duration((count+1)*(count+1))
		var next time.Time
		for ; now.Sub(asked) <= round; now = now.Add(step) {
			for i := range ends {
				// Who answers in vain has asked too: see Asked of the tunnel.
				ends[i] = psk.Next(ends[i], facts{Common: all, Patient: i == 1, Asked: asked}, now)
			}
			if !now.Before(next) {
				next = now.Add(retry)
				if ends[0].Use == ends[1].Use {
					return
				}
			}
		}
		t.Fatalf("no handshake in %v: %+v", round, ends)
	})
}
