// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// A higher tier is not changed by a lower one, but whoever writes it may also name the
// key and the names of a node that it has never heard of. So such a claim is looked at
// before it is placed: nobody comes later, in whatever tier, and takes what a node has
// had. What the operator of this machine writes is above that.

// has names what an entry states and only one can have.
type has struct {
	tier  Tier
	field Field
	text  string
}

// contest takes keys and names from entries that claim those of a node which a lower
// tier knew before. It gives the entries that are to be placed.
func (m *merging) contest(in []*entry) []*entry {
	keys := map[member.Key][]*entry{}
	for _, e := range m.entries { // those too that have lost the key within their tier
		if !e.dead && e.head.Key != (member.Key{}) {
			keys[e.head.Key] = append(keys[e.head.Key], e)
		}
	}
	held := map[has]*entry{}
	lost := map[*entry]bool{}
	for tier := TierOlder; tier < TierStatic; tier++ {
		stay := slices.DeleteFunc(slices.Clone(in), func(e *entry) bool { return e.tier != tier || e.dead || e.self })
		for _, e := range stay {
			lost[e] = m.yieldsKey(e, held, keys[e.head.Key]) || m.yieldsNames(e, held, keys[e.head.Key])
		}
		for _, e := range stay {
			for _, h := range e.holds() {
				if was := held[h]; !lost[e] && (was == nil || was.stale && !e.stale) {
					held[h] = e
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(in), func(e *entry) bool { return lost[e] })
}

// holds is what an entry may hold against a higher tier. Without a key it is of no
// member of the mesh, of whom there is something to take. Of what is in Kubernetes the
// API server guards the name of the Node alone: another stable name that a node writes
// for itself may be another's.
func (e *entry) holds() []has {
	if e.head.Key == (member.Key{}) {
		return nil
	}
	out := []has{{e.tier, FieldKey, e.head.Key.String()}}
	for _, n := range names(&e.head) {
		if e.tier != TierKubernetes || n.text == e.id {
			out = append(out, has{e.tier, n.field, n.text})
		}
	}
	return out
}

// yieldsKey takes the key from an entry that nobody has proven, if a lower tier has known
// another node by it. Its endpoints are tried as well: WireGuard proves who answers.
func (m *merging) yieldsKey(e *entry, held map[has]*entry, same []*entry) bool {
	if e.proven || e.head.Key == (member.Key{}) {
		return false
	}
	for tier := e.tier - 1; tier >= TierOlder; tier-- {
		o := held[has{tier, FieldKey, e.head.Key.String()}]
		if o == nil || !o.before(e) {
			continue
		}
		if slices.ContainsFunc(same, func(s *entry) bool {
			return (s.tier == TierStatic || s.tier == tier && !o.first.Before(s.first)) && sameNode(s, e)
		}) {
			return false
		}
		m.refuse(e, o, FieldKey, e.head.Key.String(), "nobody proves the key, and a lower tier has known another node by it before")
		o.rivals = append(o.rivals, e)
		return true
	}
	return false
}

// yieldsNames takes names from an entry with another key than a lower tier has known
// under them, a proven one too: a key of one's own is no right to a name. What is stale
// is what the node was before, and says nothing any more.
func (m *merging) yieldsNames(e *entry, held map[has]*entry, same []*entry) bool {
	for _, n := range names(&e.head) {
		if slices.ContainsFunc(same, func(s *entry) bool { return s.tier == TierStatic && sameNode(s, e) }) {
			return false
		}
		for tier := e.tier - 1; tier >= TierOlder; tier-- {
			o := held[has{tier, n.field, n.text}]
			if o == nil || !o.before(e) {
				continue
			}
			if o.head.Key == e.head.Key {
				break
			}
			if e.stale && !o.stale {
				m.refuse(e, o, n.field, n.text, "its lease is over, and a lower tier gives the name another key")
				return true
			}
			m.refuse(e, o, n.field, n.text, "a lower tier has known the name before, with another key")
			e.lose(n.field)
			break
		}
	}
	return false
}

// apart reports whether an entry with a name of a node is none of that node: it has a
// key of its own, and was known before the one that states the name. What the operator
// of this machine or this node itself states is not parted.
func (m *merging) apart(g *group, e *entry, by Field) bool {
	if e.head.Key == (member.Key{}) || e.head.Key == g.ids.Key {
		return false
	}
	i := slices.IndexFunc(g.entries, func(o *entry) bool {
		return slices.ContainsFunc(names(&o.head), func(n called) bool { return n.field == by })
	})
	o := g.entries[max(i, 0)]
	return o.tier < TierStatic && o.tier > e.tier && !o.self && e.before(o)
}

// before reports whether a claim in a lower tier goes before one in a higher tier: who
// was known first, but what is stale yields to what was heard after its lease.
func (e *entry) before(higher *entry) bool {
	switch {
	case higher.stale && !e.stale && e.first.After(higher.until):
		return true
	case e.stale && !higher.stale && higher.first.After(e.until):
		return false
	}
	return e.first.Before(higher.first)
}

// sameNode reports whether two entries with one key are of one node, as far as what they
// state tells: they share a name, and contradict each other in no name and no address of
// the mesh.
func sameNode(a, b *entry) bool {
	shared := false
	for _, r := range unique() {
		if !r.stated(&a.head) || !r.stated(&b.head) {
			continue
		}
		if !r.equal(&a.head, &b.head) {
			return false
		}
		shared = shared || r.field == FieldNode || r.field == FieldNodename
	}
	return shared
}

// lose takes a fact from an entry.
func (e *entry) lose(f Field) {
	e.lost = append(e.lost, f)
	for _, r := range rules() {
		if r.field == f {
			r.take(&e.head, &Facts{})
		}
	}
}

// ended is when the last lease of an entry ends or did; zero: never.
func ended(said []*Said) time.Time {
	var end time.Time
	for _, s := range said {
		if s.Until.IsZero() {
			return time.Time{}
		}
		end = later(end, s.Until)
	}
	return end
}

// earlier gives the first of two times; zero is before all.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
