// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestChainsOfSuccessions: the last of a chain counts, of a ring the smallest id,
// however long they are: each id is looked at once.
func TestChainsOfSuccessions(t *testing.T) {
	const n = 2000
	id := func(i int) string { return fmt.Sprintf("m%05d", i) }
	for name, c := range map[string]struct {
		order func(i int) int // which takes the place of i
		want  []string
	}{
		"upwards":            {func(i int) int { return i + 1 }, []string{id(n)}},
		"downwards":          {func(i int) int { return i - 1 }, []string{id(-1)}},
		"a ring":             {func(i int) int { return (i + 1) % n }, []string{id(0)}},
		"a way into a ring":  {func(i int) int { return (i + 1) - 1500*((i+1)/n) }, []string{id(500)}},
		"all one's":          {func(int) int { return n }, []string{id(n)}},
		"each its neighbour": {func(i int) int { return i ^ 1 }, nil},
	} {
		said := []Said{}
		next := map[string]string{}
		for i := range n {
			next[id(i)] = id(c.order(i))
		}
		for old, new := range next {
			f := native(member.Facts{ID: new, Node: new}, 1)
			f.Replaces = old
			said = append(said, native(member.Facts{ID: old, Node: old}, 1), f)
		}
		if name == "each its neighbour" {
			for i := 0; i < n; i += 2 {
				c.want = append(c.want, id(i))
			}
		}
		var got []string
		for _, m := range Merge(now(), me(), said, Rules{}).Members {
			got = append(got, m.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %d members are left, %v", name, len(got), got[:min(len(got), 5)])
		}
		if len(leaders(next)) > len(c.want) {
			t.Errorf("%s: %d lead", name, len(leaders(next)))
		}
	}
}

// TestWhoThisNodeWas is neither a peer nor a conflict.
func TestWhoThisNodeWas(t *testing.T) {
	self := me()
	self.Replaces = "old"
	was := native(member.Facts{ID: "old", Node: "here", Key: key(99)}, 5)
	if r := Merge(now(), self, []Said{was}, Rules{}); len(r.Members) != 0 || len(r.Conflicts) != 0 {
		t.Errorf("%+v", r)
	}
	if r := Merge(now(), me(), []Said{was}, Rules{}); len(r.Conflicts) != 1 {
		t.Errorf("of a stranger it is a conflict: %+v", r)
	}
}

// TestASuccessionIsAChange, also of a member that has no key in the mesh.
func TestASuccessionIsAChange(t *testing.T) {
	was := native(member.Facts{ID: "old", Node: "a"}, 5)
	is := native(member.Facts{ID: "new", Node: "a"}, 6)
	is.Replaces = "old"
	before, after := Merge(now(), me(), []Said{was}, Rules{}), Merge(now(), me(), []Said{was, is}, Rules{})
	events := Events(before, after)
	if len(events) != 1 || events[0].What != Altered || !slices.Equal(events[0].Fields, []Field{FieldID}) {
		t.Errorf("%+v", events)
	}
	is.Replaces = ""
	if events := Events(before, Merge(now(), me(), []Said{is}, Rules{})); len(events) != 2 {
		t.Errorf("without it, it is another one: %+v", events)
	}
}
