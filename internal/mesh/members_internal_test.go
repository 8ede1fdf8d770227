// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"

	"github.com/tombolo-io/tombolo/internal/roster"
	"github.com/tombolo-io/tombolo/internal/topology"
)

// TestOurKeyCountsForWhoProvesIt: who only says that it has a key of ours would keep this
// node from starting; of who has signed with it we have been copied.
func TestOurKeyCountsForWhoProvesIt(t *testing.T) {
	var m Mesh
	for _, k := range []*key{&m.keys.now, &m.keys.next} {
		var err error
		if *k, err = drawKey(); err != nil {
			t.Fatal(err)
		}
	}
	for name, ours := range map[string]key{"now": m.keys.now, "next": m.keys.next} {
		for _, proven := range []bool{false, true} {
			other := roster.Key{1}
			got := m.believed([]roster.Member{
				{Facts: roster.Facts{ID: "says", Key: roster.Key(ours.public)}, Entries: []roster.Entry{{ID: "says", Proven: proven}}},
				{Facts: roster.Facts{ID: "other", Key: other}, Entries: []roster.Entry{{ID: "other"}}},
			})
			if has := got[0].Key == topology.Key(ours.public); has != proven || !has && got[0].Key != (topology.Key{}) {
				t.Errorf("%s, proven %v: it has the key %x", name, proven, got[0].Key)
			}
			if got[1].Key != topology.Key(other) {
				t.Errorf("another's key is %x", got[1].Key)
			}
		}
	}
}
