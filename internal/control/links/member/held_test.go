// SPDX-License-Identifier: Apache-2.0

package member

import (
	"testing"
	"time"
)

// TestHold: what is missing at the host cluster goes after a moment, and nothing goes while the host has lost the own
// Cluster.
func TestHold(t *testing.T) {
	now := time.Unix(10_000, 0)
	own := nothing().put("a", "x", "own", true).put("b", "y", "copy", true).put("mine", "z", "theirs", false)
	whole := nothing().put("a", "x", "h", false).put("b", "y", "i", false)
	without := nothing().put("a", "x", "h", false)
	var h held
	step := func(what string, there linked, at time.Duration, want string, again time.Duration) {
		t.Helper()
		var out linked
		var soon time.Duration
		out, h, soon = h.hold(there, own, "a", now.Add(at))
		if got := said(copied(out, own, "a")); got != want || soon != again {
			t.Errorf("%s: %q, again in %v, want %q in %v", what, got, soon, want, again)
		}
	}
	const gone = "Cluster b remove copy1, ClusterNode b.y remove copy2"
	step("all are there", whole, 0, "", 0)
	step("b is gone", without, time.Second, "", missedFor)
	step("b is gone for a moment", without, missedFor, "", time.Second)
	step("b is back", whole, missedFor+time.Second/2, "", 0)
	step("b is gone again", without, time.Minute, "", missedFor)
	step("b is gone for good", without, time.Minute+missedFor, gone, 0)
	h = nil
	step("b goes", without, time.Hour, "", missedFor)
	step("and the own one", nothing(), time.Hour+time.Second, "", 0)
	lost, _, _ := h.hold(nothing(), own, "a", now.Add(2*time.Hour))
	if got := said(copied(warned(lost, own, "a", unlinked("a"), now), own, "a")); got != "Cluster a status" {
		t.Errorf("of a host that has lost all it is said %q", got)
	}
	step("for a day", nothing(), 25*time.Hour, "", 0)
	step("the own one is back, and b not yet", without, 25*time.Hour+time.Second, "", missedFor-time.Second)
	step("b does not come", without, 25*time.Hour+missedFor, gone, 0)
}
