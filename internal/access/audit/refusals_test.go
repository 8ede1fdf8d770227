// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"testing"
	"time"
)

// The first refusals of a source and of a cluster have records; the others are in sums, which are bounded, and none is
// lost.
func TestRefusals(t *testing.T) {
	var r Refusals
	now := time.Unix(1_000_000, 0)
	told, refused := 0, 0
	refuse := func(cluster, source, code string) (tell bool) {
		refused++
		if tell = r.Take(now, Record{At: AtEdge, Cluster: cluster, Frontend: "tls", Code: code}, source); tell {
			told++
		}
		return tell
	}
	for i := range 20 {
		if tell := refuse("c1", "192.0.2.1", "policy_denied"); tell != (i < refusalsEach) {
			t.Errorf("refusal %d of one source: %v", i, tell)
		}
	}
	for i := range 2_000 { // a scan of names by many, in many ways
		refuse("", fmt.Sprintf("198.51.100.%d", i%250), fmt.Sprintf("code%d", i))
	}
	if !refuse("c2", "203.0.113.1", "policy_denied") {
		t.Error("others have used up the share of a cluster")
	}
	sums, n := r.Turn(now.Add(time.Minute)), 0
	for _, s := range sums {
		n += int(s.Count)
		if s.Cluster == "c1" && (s.Count != 15 || s.Verdict != Deny || s.Reason != "15 more refusals" || !s.Since.Equal(now) || s.Kind != KindRefusal) {
			t.Errorf("%+v", s)
		}
	}
	if told+n != refused || told > refusalsAll+2*refusalsShare {
		t.Errorf("%d told and %d in %d sums, of %d", told, n, len(sums), refused)
	}
	if again := r.Turn(now); len(again) > 0 || !refuse("c1", "192.0.2.1", "policy_denied") {
		t.Errorf("%+v after an interval without any", again)
	}
}
