// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
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
	old := slices.Clone(before.Members)
	for i := range after.Members {
		m := &after.Members[i]
		at := find(old, m)
		if at < 0 {
			out = append(out, Event{What: Joined, Member: m})
			continue
		}
		if fields := differences(&old[at], m); len(fields) > 0 {
			out = append(out, Event{What: Altered, Member: m, Fields: fields})
		}
		old = slices.Delete(old, at, at+1)
	}
	for i := range old {
		out = append(out, Event{What: Left, Member: &old[i]})
	}
	for i := range after.Conflicts {
		if !slices.ContainsFunc(before.Conflicts, after.Conflicts[i].same) {
			out = append(out, Event{What: Conflicted, Conflict: &after.Conflicts[i]})
		}
	}
	for i := range before.Conflicts {
		if !slices.ContainsFunc(after.Conflicts, before.Conflicts[i].same) {
			out = append(out, Event{What: Settled, Conflict: &before.Conflicts[i]})
		}
	}
	return out
}

// find gives the same member: by its key, else by its id, so that a new key is a
// change of the member and not another one.
func find(in []Member, m *Member) int {
	if m.Key != (Key{}) {
		if i := slices.IndexFunc(in, func(o Member) bool { return o.Key == m.Key }); i >= 0 {
			return i
		}
	}
	return slices.IndexFunc(in, func(o Member) bool { return o.Tier == m.Tier && o.ID == m.ID })
}

// same leaves aside from whom it was heard, which changes with every service that comes and goes.
func (c Conflict) same(o Conflict) bool {
	return c.Field == o.Field && c.Value == o.Value && c.Kept.ID == o.Kept.ID && c.Kept.Tier == o.Kept.Tier &&
		c.Refused.ID == o.Refused.ID && c.Refused.Tier == o.Refused.Tier
}

func differences(a, b *Member) []Field {
	var out []Field
	if a.ID != b.ID {
		out = append(out, FieldID)
	}
	for _, r := range rules() {
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
		out = append(out, w.Addr.String()+" "+w.Kind)
	}
	slices.Sort(out)
	return out
}
