// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// TestUnderWhichSecretsAMemberIs: those of its newest word, and for a moment those of
// the one before.
func TestUnderWhichSecretsAMemberIs(t *testing.T) {
	one, two := seal.ClusterID{1}, seal.ClusterID{2}
	began := time.Unix(1_800_000_000, 0)
	id := seal.MemberID{9}
	b := newNativeBook()
	b.members[id] = &signedWord{cluster: one, entry: &discovery.Entry{Version: 2}, began: began, prior: []seal.ClusterID{one, two}}
	for _, c := range []struct {
		after time.Duration
		want  []seal.ClusterID
	}{
		{0, []seal.ClusterID{one, two}},
		{underGrace - 1, []seal.ClusterID{one, two}},
		{underGrace, []seal.ClusterID{one}},
	} {
		got := b.under(began.Add(c.after), id)
		for _, cluster := range []seal.ClusterID{one, two} {
			if slices.Contains(got, cluster) != slices.Contains(c.want, cluster) {
				t.Errorf("after %v: %v, want %v", c.after, got, c.want)
			}
		}
	}
	b.members[id].too(two, &discovery.Entry{Version: 2})
	if got := b.under(began.Add(time.Hour), id); !slices.Contains(got, two) {
		t.Errorf("the same word under the second secret: %v", got)
	}
	b.members[id].entry = &discovery.Entry{Version: 3, Removed: true}
	if got := b.under(began, id); len(got) != 0 {
		t.Errorf("removed: %v", got)
	}
	if got := b.under(began, seal.MemberID{8}); len(got) != 0 {
		t.Errorf("nobody: %v", got)
	}
}
