// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Happening is what became of a member.
type Happening string

// The happenings.
const (
	Joined     Happening = "joined"
	Altered    Happening = "changed"
	Left       Happening = "left"
	Conflicted Happening = "conflict"
	Settled    Happening = "settled" // a conflict is over
)

// Event is one line of `tombolo discovery watch`.
type Event struct {
	What     Happening `json:"what"`
	Member   *Member   `json:"member,omitempty"`   // as it is now; with left as it was
	Fields   []Field   `json:"fields,omitempty"`   // with changed: the facts that are others now
	Conflict *Conflict `json:"conflict,omitempty"` // with conflict and settled
}

// Events is what happened between two results. A lease that was renewed, and a
// source more or less for the same value, are no events.
func Events(before, after Result) []Event {
	var out []Event
	old := indexOf(before.Members)
	all := rules()
	for i := range after.Members {
		m := &after.Members[i]
		was := old.take(m)
		if was == nil {
			out = append(out, Event{What: Joined, Member: m})
			continue
		}
		if fields := differences(all, was, m); len(fields) > 0 {
			out = append(out, Event{What: Altered, Member: m, Fields: fields})
		}
	}
	for i := range before.Members {
		if m := &before.Members[i]; !old.taken[m] {
			out = append(out, Event{What: Left, Member: m})
		}
	}
	had, have := conflictsOf(before), conflictsOf(after)
	for i := range after.Conflicts {
		if c := &after.Conflicts[i]; !had[c.name()] {
			out = append(out, Event{What: Conflicted, Conflict: c})
		}
	}
	for i := range before.Conflicts {
		if c := &before.Conflicts[i]; !have[c.name()] {
			out = append(out, Event{What: Settled, Conflict: c})
		}
	}
	return out
}

// index finds members, each once.
type index struct {
	keys  map[member.Key]*Member
	ids   map[named][]*Member
	taken map[*Member]bool
}

// named is what a tier calls a member.
type named struct {
	tier Tier
	id   string
}

func indexOf(in []Member) index {
	out := index{make(map[member.Key]*Member, len(in)), make(map[named][]*Member, len(in)),
		make(map[*Member]bool, len(in))}
	for i := range in {
		m := &in[i]
		if m.Key != (member.Key{}) {
			out.keys[m.Key] = m // no two members of a result have one
		}
		at := named{m.Tier, m.ID}
		out.ids[at] = append(out.ids[at], m)
	}
	return out
}

// take gives the same member: by its key, else by its id or the one that it
// succeeds, so that a new key is a change of the member and not another one.
func (x index) take(m *Member) *Member {
	if was := x.keys[m.Key]; was != nil && !x.taken[was] {
		x.taken[was] = true
		return was
	}
	if was := x.named(named{m.Tier, m.ID}); was != nil {
		return was
	}
	for _, e := range m.Entries {
		if e.Succeeds == "" {
			continue
		}
		if was := x.named(named{e.Source.Tier, e.Succeeds}); was != nil {
			return was
		}
	}
	return nil
}

func (x index) named(at named) *Member {
	for i, was := range x.ids[at] {
		if !x.taken[was] {
			x.taken[was], x.ids[at] = true, x.ids[at][i+1:]
			return was
		}
	}
	return nil
}

// conflictName is what makes two conflicts the same: not from whom it was heard,
// which changes with every service that comes and goes.
type conflictName struct {
	field         Field
	value         string
	kept, refused named
}

func (c *Conflict) name() conflictName {
	return conflictName{c.Field, c.Value, named{c.Kept.Tier, c.Kept.ID}, named{c.Refused.Tier, c.Refused.ID}}
}

func conflictsOf(r Result) map[conflictName]bool {
	out := make(map[conflictName]bool, len(r.Conflicts))
	for i := range r.Conflicts {
		out[r.Conflicts[i].name()] = true
	}
	return out
}

func differences(all []rule, a, b *Member) []Field {
	var out []Field
	if a.ID != b.ID {
		out = append(out, FieldID)
	}
	if a.Stale != b.Stale {
		out = append(out, FieldStale)
	}
	for _, r := range all {
		if !r.equal(&a.Facts, &b.Facts) {
			out = append(out, r.field)
		}
	}
	if !slices.Equal(places(a), places(b)) {
		out = append(out, FieldEndpoints)
	}
	return out
}

// places are the endpoints of a member without who named them.
func places(m *Member) []string {
	out := make([]string, 0, len(m.Endpoints))
	for _, w := range m.Endpoints {
		out = append(out, w.Addr.String()+" "+string(w.Kind))
	}
	slices.Sort(out)
	return out
}
