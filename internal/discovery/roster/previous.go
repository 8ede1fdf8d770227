// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// A node that takes another key names the one before as well, until everybody has met it
// under the new one. That is a second key of the member, for as long as nobody else has
// it: neither as a key nor, with a better right, as one that it gives up.

const whyPrevious = "the key that one gives up is the other's"

// claim is a key as one tier states it.
type claim struct {
	tier Tier
	key  member.Key
}

// claimPrevious leaves one entry of a tier for each key that is given up: this node, then
// the one for which the key has signed (of several the newest), then the one that was
// known first.
func (m *merging) claimPrevious() map[claim]*entry {
	claims := map[claim][]*entry{}
	for _, e := range m.entries {
		if !e.dead && e.head.PreviousKey != (member.Key{}) {
			at := claim{e.tier, e.head.PreviousKey}
			claims[at] = append(claims[at], e)
		}
	}
	out := make(map[claim]*entry, len(claims))
	for at, rivals := range claims {
		slices.SortFunc(rivals, func(a, b *entry) int {
			version := 0
			if a.previous && b.previous {
				version = cmp.Compare(b.said[0].Version, a.said[0].Version)
			}
			return cmp.Or(compareBool(b.self, a.self), compareBool(b.previous, a.previous), version, compareEntries(a, b))
		})
		out[at] = rivals[0]
		for _, e := range rivals[1:] {
			m.losePrevious(e, rivals[0], "two members give up one key")
		}
	}
	return out
}

func (m *merging) losePrevious(e, has *entry, why string) {
	m.refuse(e, has, FieldPrevious, e.head.PreviousKey.String(), why)
	e.lose(FieldPrevious)
	e.previous = false
}

// settlePrevious takes keys that are given up from the members, where another one has
// them in another tier. Those that stay, and are proven, are found in keys as well.
func (m *merging) settlePrevious(members []draft, keys map[member.Key]int) {
	past := map[member.Key]int{}
	states := func(i int, field func(*Facts) member.Key, k member.Key) *entry {
		all := m.groups[i].entries
		return all[max(0, slices.IndexFunc(all, func(e *entry) bool { return field(&e.head) == k }))]
	}
	key, previous := func(f *Facts) member.Key { return f.Key }, func(f *Facts) member.Key { return f.PreviousKey }
	for i := range members {
		k := members[i].PreviousKey
		if k == (member.Key{}) {
			continue
		}
		if to, taken := keys[k]; taken {
			if to != i { // else a higher tier has not heard of the new one
				m.refuse(states(i, previous, k), states(to, key, k), FieldPrevious, k.String(), whyPrevious)
			}
			members[i].forget(FieldPrevious)
		} else if to, taken := past[k]; taken {
			m.refuse(states(i, previous, k), states(to, previous, k), FieldPrevious, k.String(), "two members give up one key")
			members[i].forget(FieldPrevious)
		} else {
			past[k] = i
		}
	}
	for k, i := range past {
		if e := states(i, previous, k); e.previous || e.self {
			keys[k] = i
		}
	}
}

// forget takes a fact away.
func (m *Member) forget(f Field) {
	for _, r := range rules() {
		if r.field == f {
			r.take(&m.Facts, &Facts{})
		}
	}
	delete(m.Sources, f)
}
