// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// result makes members of the groups: what two claim is settled, endpoints are
// united, and each fact gets its sources.
func (m *merging) result() Result {
	m.groups = slices.DeleteFunc(m.groups, func(g *group) bool { return g.dead })
	for _, g := range m.groups {
		if g.self {
			g.entries = append(g.entries, m.mine...)
			slices.SortStableFunc(g.entries, func(a, b *entry) int {
				return cmp.Or(compareBool(b.self, a.self), compareEntries(a, b))
			})
		}
	}
	for _, r := range unique() {
		m.settle(r)
	}
	keys := map[member.Key]int{}
	members := make([]draft, len(m.groups))
	all := rules()
	for i, g := range m.groups {
		members[i] = g.member(all)
		if k := members[i].Key; k != (member.Key{}) {
			keys[k] = i
		}
	}
	var out Result
	for i, g := range m.groups {
		for s := range g.words() {
			for _, o := range s.Facts.Observed {
				if to, ok := keys[o.Key]; ok && to != i {
					seen := member.Endpoint{Addr: o.Addr, Kind: member.KindObserved}
					members[to].where(seen, Origin{[]Source{s.Source}, []string{members[i].ID}})
				}
			}
		}
	}
	for i, g := range m.groups {
		members[i].trim(m.rules.Endpoints)
		if g.self {
			out.Self, out.Stated = members[i].Member, g.stated()
			continue
		}
		out.Members = append(out.Members, members[i].Member)
	}
	slices.SortFunc(out.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID), cmp.Compare(b.Tier, a.Tier))
	})
	slices.SortFunc(m.conflicts, func(a, b Conflict) int {
		return cmp.Or(strings.Compare(string(a.Field), string(b.Field)), strings.Compare(a.Value, b.Value),
			strings.Compare(a.Refused.ID, b.Refused.ID), cmp.Compare(b.Refused.Tier, a.Refused.Tier),
			strings.Compare(a.Kept.ID, b.Kept.ID))
	})
	out.Conflicts = m.conflicts
	for _, e := range m.entries {
		if e.dead {
			out.Removed = append(out.Removed, e.id)
		}
	}
	return out
}

// settle gives a value that several members claim to one of them: an address to the member
// from whose id it follows, else to the highest tier, else to the smallest id.
func (m *merging) settle(r rule) {
	type claim struct {
		group   *group
		entry   *entry
		derived bool
	}
	byValue := map[string][]claim{}
	for _, g := range m.groups {
		i := slices.IndexFunc(g.entries, func(e *entry) bool { return r.stated(&e.head) })
		if i >= 0 {
			e := g.entries[i]
			value := r.text(&e.head)
			byValue[value] = append(byValue[value], claim{g, e, r.field == FieldOverlay6 && e.derived6()})
		}
	}
	const why = "two members claim it: the one from whose id it follows has it, then the higher tier, then the smaller id"
	for value, claims := range byValue {
		slices.SortFunc(claims, func(a, b claim) int {
			return cmp.Or(compareBool(b.derived, a.derived), compareEntries(a.entry, b.entry))
		})
		for _, c := range claims[1:] {
			c.group.lost = append(c.group.lost, r.field)
			m.refuse(c.entry, claims[0].entry, r.field, value, why)
		}
	}
}

// derived6 reports whether the overlay address of a signed entry follows from its id. Nobody
// else can have such an id.
func (e *entry) derived6() bool {
	return e.tier == TierNative && member.Derives6(e.id, e.head.Overlay6)
}

// words gives all that is said in a group, in the order in which it counts.
func (g *group) words() func(yield func(*Said) bool) {
	return func(yield func(*Said) bool) {
		for _, e := range g.entries {
			for _, s := range e.said {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// draft is a member while endpoints are added to it.
type draft struct {
	Member
	reach []known
	at    map[netip.AddrPort]int // where an endpoint stands in reach, once there are many
}

// known is an endpoint with its origin.
type known struct {
	member.Endpoint
	Origin
}

func (g *group) member(all []rule) draft {
	first := g.entries[0]
	out := draft{Member: Member{Facts: member.Facts{ID: first.id}, Tier: first.tier, Sources: map[Field][]Source{}}}
	forever := false
	out.Stale = true
	for s := range g.words() {
		out.Stale = out.Stale && s.Stale
		out.Sources[FieldID] = append(out.Sources[FieldID], s.Source)
		out.Entries = append(out.Entries, Entry{s.Source, s.Facts.ID, s.Version, s.Until, s.Heard, s.Stale, s.Proven,
			s.Replaces})
		forever = forever || s.Until.IsZero()
		out.Until = later(out.Until, s.Until)
	}
	for _, e := range g.entries {
		out.claimed(e.said)
	}
	if forever {
		out.Until = time.Time{}
	}
	out.Entries = slices.Compact(out.Entries)
	for _, r := range all {
		if slices.Contains(g.lost, r.field) {
			continue
		}
		for _, e := range g.entries {
			out.state(r, e.said)
		}
	}
	out.Proven = first.proven && first.head.Key == out.Key
	for f, s := range out.Sources {
		out.Sources[f] = sourcesOf(s)
	}
	return out
}

// state takes a fact of who states it first, and the sources of all who state the same.
func (m *draft) state(r rule, said []*Said) {
	for _, s := range said {
		switch {
		case !r.stated(&s.Facts):
			continue
		case len(m.Sources[r.field]) == 0:
			r.take(&m.Facts, &s.Facts)
		case !r.equal(&m.Facts, &s.Facts):
			continue
		}
		m.Sources[r.field] = append(m.Sources[r.field], s.Source)
	}
}

// claimed adds the endpoints that an entry names.
func (m *draft) claimed(said []*Said) {
	for _, s := range said {
		for _, w := range s.Facts.Endpoints {
			m.where(w, Origin{Sources: []Source{s.Source}})
		}
	}
}

// where adds an endpoint, or another origin of it.
func (m *draft) where(e member.Endpoint, from Origin) {
	i := m.find(e.Addr)
	if i < 0 {
		if m.at != nil {
			m.at[e.Addr] = len(m.reach)
		}
		m.reach = append(m.reach, known{e, from})
		return
	}
	have := &m.reach[i]
	if from.Sources[0].Tier == have.Sources[0].Tier && kindRank(e.Kind) < kindRank(have.Kind) {
		have.Kind = e.Kind
	}
	have.Sources = append(have.Sources, from.Sources...)
	have.Observers = append(have.Observers, from.Observers...)
}

// find gives the place of an endpoint. Thousands of members may each have seen one member at places of their own: then
// an index is kept.
func (m *draft) find(a netip.AddrPort) int {
	const few = 16
	if len(m.reach) < few {
		return slices.IndexFunc(m.reach, func(k known) bool { return k.Addr == a })
	}
	if m.at == nil {
		m.at = make(map[netip.AddrPort]int, 2*few)
		for i, k := range m.reach {
			m.at[k.Addr] = i
		}
	}
	if i, there := m.at[a]; there {
		return i
	}
	return -1
}

// trim brings the endpoints into order and keeps the best: those that the highest tiers name, so that a flood in a
// lower one displaces none of them.
func (m *draft) trim(most int) {
	for i := range m.reach {
		k := &m.reach[i]
		k.Sources = sourcesOf(k.Sources)
		slices.Sort(k.Observers)
		k.Observers = slices.Compact(k.Observers)
	}
	slices.SortFunc(m.reach, func(a, b known) int {
		return cmp.Or(cmp.Compare(b.Sources[0].Tier, a.Sources[0].Tier),
			cmp.Compare(kindRank(a.Kind), kindRank(b.Kind)), a.Addr.Compare(b.Addr))
	})
	for _, k := range m.reach[:min(len(m.reach), most)] {
		m.Endpoints, m.Origins = append(m.Endpoints, k.Endpoint), append(m.Origins, k.Origin)
	}
}

func kindRank(kind member.Kind) int {
	if i := slices.Index([]member.Kind{member.KindOwn, member.KindStatic, member.KindMapped, member.KindObserved},
		kind); i >= 0 {
		return i
	}
	return 4 // one that a newer member knows
}
