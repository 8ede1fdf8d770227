// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"testing"
	"time"

	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

// TestEntriesThatNoSecretOpens are counted while their service tells of them: what comes to
// be opened, is removed, or is listed no more, is none any longer.
func TestEntriesThatNoSecretOpens(t *testing.T) {
	ours, theirs, second := newSecret(t), newSecret(t), newSecret(t)
	now := time.Now()
	b := newOlderBook("one", "cluster", secretOf(t, ours).Sidero())
	b.others = append(b.others, secretOf(t, second).Sidero())
	want := func(when string, n int) {
		t.Helper()
		if got := b.unopened(); got != n {
			t.Errorf("%s: %d, want %d", when, got, n)
		}
	}
	foreign := []*pb.Affiliate{affiliate(t, theirs, "x", "x"), affiliate(t, theirs, "y", "y")}
	b.snapshot(now, append(foreign, affiliate(t, ours, "a", "a"), affiliate(t, second, "b", "b"), &pb.Affiliate{Id: "empty"}))
	want("two of another secret", 2)
	b.news(now, foreign)
	want("the same again", 2)
	b.news(now, []*pb.Affiliate{affiliate(t, ours, "x", "x")})
	want("one of ours now", 1)
	b.deleted(now, foreign[1:])
	want("one is removed", 0)
	b.news(now, foreign[1:])
	b.away(now)
	want("the service is away", 0)
	b.snapshot(now, nil)
	want("a new list", 0)
}
