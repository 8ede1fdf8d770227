// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// claim is a key as one tier states it.
type claim struct {
	tier Tier
	key  member.Key
}

// claimKeys leaves one entry of a tier for each key: the one that the key has signed
// for; of several such, which is one node under two ids, the newest; of several for
// which none is signed, the one with the smallest id.
func (m *merging) claimKeys() []*entry {
	claims := map[claim][]*entry{}
	for _, e := range m.entries {
		if !e.dead && e.head.Key != (member.Key{}) {
			claims[claim{e.tier, e.head.Key}] = append(claims[claim{e.tier, e.head.Key}], e)
		}
	}
	lost := map[*entry]bool{}
	for _, rivals := range claims {
		slices.SortFunc(rivals, func(a, b *entry) int {
			version := 0
			if a.proven && b.proven {
				version = cmp.Compare(b.said[0].Version, a.said[0].Version)
			}
			return cmp.Or(compareBool(b.self, a.self), compareBool(b.proven, a.proven), version, compareEntries(a, b))
		})
		has := rivals[0]
		for _, e := range rivals[1:] {
			lost[e] = true
			m.refuse(e, has, FieldKey, e.head.Key.String(), whyKey(has, e))
		}
	}
	return slices.DeleteFunc(slices.Clone(m.entries), func(e *entry) bool { return lost[e] })
}

func whyKey(has, claims *entry) string {
	switch {
	case claims.proven:
		return "one key, two members: the holder of the key has signed for both, and the newest word has it"
	case has.proven:
		return "one key, two members: the holder of the key has signed for the other one"
	}
	return "one key, two members: nobody proves the key, and the smaller id has it"
}

// silences reports whether the removal of a node speaks of an entry of a lower tier: of one
// with a key, if the node had proven that key; of one without, if their names agree. One that is
// long ago speaks of the older protocol's words that are from before it alone, as they
// may be held or come back; what its member has said since is news.
func (g *group) silences(e *entry) bool {
	dead := g.entries[0]
	if past := dead.said[0].Past; !past.IsZero() &&
		(e.tier != TierOlder || slices.ContainsFunc(e.said, func(s *Said) bool { return s.Heard.After(past) })) {
		return false
	}
	if e.head.Key != (member.Key{}) {
		return dead.proven && e.head.Key == dead.head.Key
	}
	agree := func(a, b string) bool { return a == "" || b == "" || a == b }
	return agree(e.head.Node, dead.head.Node) && agree(e.head.Nodename, dead.head.Nodename)
}
