// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// result makes members of the groups: what two claim is settled, endpoints are
// united, and each fact gets its sources.
func (m *merging) result() Result {
	m.groups = slices.DeleteFunc(m.groups, func(g *group) bool { return g.dead })
	for _, g := range m.groups {
		if g.self {
			g.entries = append(g.entries, m.mine...)
			slices.SortStableFunc(g.entries, func(a, b *entry) int { return cmp.Or(compareBool(b.self, a.self), compareEntries(a, b)) })
		}
	}
	for _, r := range unique() {
		m.settle(r)
	}
	keys := map[Key]int{}
	members := make([]Member, len(m.groups))
	for i, g := range m.groups {
		members[i] = g.member()
		if k := members[i].Key; k != (Key{}) {
			keys[k] = i
		}
	}
	var out Result
	for i, g := range m.groups {
		for s := range g.words() {
			for _, o := range s.Observed {
				if to, ok := keys[o.Key]; ok && to != i {
					members[to].where(Where{Addr: o.Addr, Kind: KindObserved, Observers: []string{members[i].ID}}, s.Source)
				}
			}
		}
	}
	for i, g := range m.groups {
		members[i].trim(m.rules.Endpoints)
		if g.self {
			out.Self = members[i]
			continue
		}
		out.Members = append(out.Members, members[i])
	}
	slices.SortFunc(out.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID), cmp.Compare(b.Tier, a.Tier))
	})
	slices.SortFunc(m.conflicts, func(a, b Conflict) int {
		return cmp.Or(strings.Compare(string(a.Field), string(b.Field)), strings.Compare(a.Value, b.Value),
			strings.Compare(a.Refused.ID, b.Refused.ID), cmp.Compare(b.Refused.Tier, a.Refused.Tier), strings.Compare(a.Kept.ID, b.Kept.ID))
	})
	out.Conflicts = m.conflicts
	return out
}

// settle gives a value that several members claim to one of them: to this node if
// it is an address of its own, else to the highest tier, else to the smallest id.
func (m *merging) settle(r rule) {
	type claim struct {
		group *group
		entry *entry
	}
	byValue := map[string][]claim{}
	for _, g := range m.groups {
		i := slices.IndexFunc(g.entries, func(e *entry) bool { return r.stated(&e.head) })
		if i >= 0 {
			value := r.text(&g.entries[i].head)
			byValue[value] = append(byValue[value], claim{g, g.entries[i]})
		}
	}
	address := r.field == FieldOverlay4 || r.field == FieldOverlay6
	for value, claims := range byValue {
		slices.SortFunc(claims, func(a, b claim) int {
			mine := 0
			if address {
				mine = compareBool(b.group.self, a.group.self)
			}
			return cmp.Or(mine, compareEntries(a.entry, b.entry))
		})
		for _, c := range claims[1:] {
			c.group.lost = append(c.group.lost, r.field)
			m.refuse(c.entry, claims[0].entry, r.field, value, "two members claim it: the higher tier has it, then the smaller id")
		}
	}
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

func (g *group) member() Member {
	first := g.entries[0]
	out := Member{Facts: Facts{ID: first.id}, Tier: first.tier, Sources: map[Field][]Source{}}
	forever := false
	for s := range g.words() {
		out.Sources[FieldID] = append(out.Sources[FieldID], s.Source)
		out.Entries = append(out.Entries, Entry{s.Source, s.Facts.ID, s.Version, s.Until, s.Heard})
		forever = forever || s.Until.IsZero()
		out.Until = later(out.Until, s.Until)
		for _, w := range s.Facts.Endpoints {
			out.where(w, s.Source)
		}
	}
	if forever {
		out.Until = time.Time{}
	}
	out.Entries = slices.Compact(out.Entries)
	for _, r := range rules() {
		if slices.Contains(g.lost, r.field) {
			continue
		}
		for s := range g.words() {
			switch {
			case !r.stated(&s.Facts):
				continue
			case len(out.Sources[r.field]) == 0:
				r.take(&out.Facts, &s.Facts)
			case !r.equal(&out.Facts, &s.Facts):
				continue
			}
			out.Sources[r.field] = append(out.Sources[r.field], s.Source)
		}
	}
	for f, s := range out.Sources {
		out.Sources[f] = sourcesOf(s)
	}
	return out
}

// where adds an endpoint, or a source of it.
func (m *Member) where(w Where, from Source) {
	i := slices.IndexFunc(m.Endpoints, func(h Where) bool { return h.Addr == w.Addr })
	if i < 0 {
		m.Endpoints = append(m.Endpoints, Where{Addr: w.Addr, Kind: w.Kind, Sources: []Source{from}, Observers: slices.Clone(w.Observers)})
		return
	}
	have := &m.Endpoints[i]
	if from.Tier == have.Sources[0].Tier && kindRank(w.Kind) < kindRank(have.Kind) {
		have.Kind = w.Kind
	}
	have.Sources = append(have.Sources, from)
	have.Observers = append(have.Observers, w.Observers...)
}

// trim brings the endpoints into order, and keeps the best of them: those that
// the highest tiers name, so that a flood in a lower one displaces none of these.
func (m *Member) trim(most int) {
	for i := range m.Endpoints {
		w := &m.Endpoints[i]
		w.Sources = sourcesOf(w.Sources)
		slices.Sort(w.Observers)
		w.Observers = slices.Compact(w.Observers)
	}
	slices.SortFunc(m.Endpoints, func(a, b Where) int {
		return cmp.Or(cmp.Compare(b.Sources[0].Tier, a.Sources[0].Tier), cmp.Compare(kindRank(a.Kind), kindRank(b.Kind)), a.Addr.Compare(b.Addr))
	})
	m.Endpoints = m.Endpoints[:min(len(m.Endpoints), most)]
}

func kindRank(kind string) int {
	if i := slices.Index([]string{KindOwn, KindStatic, KindMapped, KindObserved}, kind); i >= 0 {
		return i
	}
	return 4 // one that a newer member knows
}
