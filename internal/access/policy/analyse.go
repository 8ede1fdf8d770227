// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// analysis finds rules that change no verdict: an allow rule that a deny rule covers, and a rule
// that another one of its action covers. A rule covers another if it matches every request that
// the other matches. Rules that only several others together cover are not found; there are no
// false positives.
//
// For each destination of a rule the tries give the rules that contain it, and only rules that
// contain all earlier destinations remain, so most rules cost one look-up.
type analysis struct {
	c      *compiler
	order  map[*rule]int
	seen   map[*rule]int // the last look-up that found it
	looks  int
	steps  int                        // remaining
	sorted map[entryList]*callersides // long lists of entries
}

// The bound of the analysis: some steps for each rule and range, so that a hostile file costs no
// more than its length. Beyond it the search ends with a warning.
const (
	stepsAtLeast = 1 << 20
	stepsEach    = 8
)

// analyse warns about rules that change no verdict.
func (c *compiler) analyse() {
	a := analysis{c: c, order: make(map[*rule]int, len(c.p.rules)), seen: map[*rule]int{}, steps: stepsAtLeast,
		sorted: map[entryList]*callersides{}}
	for i, r := range c.p.rules {
		a.order[r] = i
		a.steps += stepsEach * (1 + len(r.written.Destination))
	}
	for _, ranges := range c.lists {
		a.steps += stepsEach * len(ranges)
	}
	for i, r := range c.p.rules {
		c.index = i
		path := fmt.Sprintf("rules[%d]", i)
		by, deny := a.choose(r, a.covering(r, nil))
		switch {
		case a.steps <= 0: // an unfinished search proves nothing
			c.warn(path, "the search for rules that change nothing ended here, after %d of %d rules: "+
				"too many name the same destinations and callers", i, len(c.p.rules))
			return
		case by == nil:
		case deny:
			c.warn(path, "rule %s never counts: deny rule %s covers it", r.name, by.name)
			if c.p.shadowed == nil {
				c.p.shadowed = map[*rule]bool{}
			}
			c.p.shadowed[r] = true
		default:
			c.warn(path, "rule %s is redundant: rule %s covers it", r.name, by.name)
		}
	}
}

// choose picks the rule to name in a warning: the first deny rule that shadows an allow rule, else
// the first of the same action. Of two that cover each other only the later one is redundant.
func (a *analysis) choose(r *rule, covers []*rule) (by *rule, deny bool) {
	slices.SortFunc(covers, func(x, y *rule) int { return a.order[x] - a.order[y] })
	for _, x := range covers {
		if x.deny && !r.deny {
			return x, true
		}
	}
	for _, x := range covers {
		if a.order[x] < a.order[r] || len(a.covering(x, r)) == 0 {
			return x, false
		}
	}
	return nil, false
}

// covering lists the rules that cover r; with only set, at most that one.
func (a *analysis) covering(r, only *rule) []*rule {
	sets := []*set{a.c.p.shared}
	if r.named() { // what covers it applies to its first cluster too
		sets = append(sets, a.c.p.cluster[r.cluster[0].head])
	}
	var covers []*rule
	first := true
	narrow := func(d destination) bool {
		found := a.holding(r, d, sets)
		if first {
			first = false
			covers = slices.DeleteFunc(found, func(x *rule) bool { return only != nil && x != only || !a.wider(x, r) })
		} else {
			covers = slices.DeleteFunc(covers, func(x *rule) bool { return a.seen[x] != a.looks })
		}
		return len(covers) > 0 && a.steps > 0
	}
	for _, text := range r.written.Destination {
		d, err := parseDestination(text)
		if err != nil {
			return nil // refused earlier
		}
		if d.list == "" {
			if !narrow(d) {
				return nil
			}
			continue
		}
		for i, p := range a.c.lists[d.list] {
			if i > 0 && a.sharing(covers, r, d) {
				break
			}
			if !narrow(destination{prefix: p, ports: d.ports}) {
				return nil
			}
		}
	}
	return covers
}

// sharing reports whether all covering rules use the list that d names, so that its ranges need
// no individual look-up.
func (a *analysis) sharing(covers []*rule, r *rule, d destination) bool {
	for _, x := range covers {
		a.steps--
		if !slices.ContainsFunc(x.written.Destination, func(text string) bool {
			a.steps--
			if !strings.Contains(text, d.list) {
				return false
			}
			o, err := parseDestination(text)
			return err == nil && o.list == d.list && o.ports.cover(d.ports) && (r.deny || x.deny || o.ports.keep(d.ports))
		}) {
			return false
		}
	}
	return true
}

// holding lists the deny rules, and those of r's action, with a destination that contains all of
// d, and marks them as seen by this look-up.
func (a *analysis) holding(r *rule, d destination, sets []*set) (out []*rule) {
	a.looks++
	special, isSpecial := reserved(d.prefix)
	take := func(entries []entry, p netip.Prefix) {
		for _, e := range entries {
			a.steps--
			x := e.rule
			if x == r || r.deny && !x.deny || a.seen[x] == a.looks || !e.ports.cover(d.ports) {
				continue
			}
			if !x.deny && d.prefix.IsValid() {
				if isSpecial && (!p.IsValid() || p.Bits() < special.Bits() || !special.Contains(p.Addr())) {
					continue // r opens a special address, for which x is too wide
				}
				if d.prefix.IsSingleIP() && (p != d.prefix || !e.ports.keep(d.ports)) && d.ports.exact() {
					continue // r opens one of the dialler's listeners, x does not
				}
			}
			a.seen[x] = a.looks
			out = append(out, x)
		}
	}
	for _, s := range sets {
		if s == nil {
			continue
		}
		a.steps--
		take(a.maybe(s.any, r), netip.Prefix{})
		if d.name != "" {
			for name := d.name; name != ""; name = parent(name) {
				take(a.maybe(s.names[name], r), netip.Prefix{})
			}
		}
		if d.prefix.IsValid() {
			for p, g := range s.ranges.Supernets(d.prefix) {
				take(a.maybe(s.groups[g], r), p)
			}
		}
	}
	return out
}

// callersides are the entries for one destination, by the callers of their rules.
type callersides struct {
	one  map[string][]entry // rules that name this caller
	rest []entry            // rules for any caller, or with a star
}

// entryList identifies a list: groups that grew from each other share an array.
type entryList struct {
	first *entry
	n     int
}

func sortCallers(entries []entry) *callersides {
	by := &callersides{one: map[string][]entry{}}
	for _, e := range entries {
		if len(e.rule.caller) == 0 || slices.ContainsFunc(e.rule.caller, func(p pattern) bool { return p.wild }) {
			by.rest = append(by.rest, e)
			continue
		}
		for _, p := range e.rule.caller {
			by.one[p.head] = append(by.one[p.head], e)
		}
	}
	return by
}

// manyEntries is the length from which a list is sorted: thousands of rules may name one
// destination, each for another caller.
const manyEntries = 32

// maybe drops entries whose rules cannot match all callers of r: a rule wider than r names r's
// first caller, has a star, or names no caller.
func (a *analysis) maybe(entries []entry, r *rule) (out []entry) {
	if len(entries) < manyEntries {
		return entries
	}
	key := entryList{&entries[0], len(entries)}
	by := a.sorted[key]
	if by == nil {
		by = sortCallers(entries)
		a.steps -= len(entries)
		a.sorted[key] = by
	}
	if len(r.caller) == 0 || r.caller[0].wild {
		return by.rest
	}
	if named := by.one[r.caller[0].head]; len(named) > 0 {
		return slices.Concat(named, by.rest)
	}
	return by.rest
}

// parent is the next wider key of a set's names: .b.c for a.b.c, .c for .b.c.
func parent(name string) string {
	if i := strings.IndexByte(name[1:], '.'); i >= 0 {
		return name[1+i:]
	}
	return ""
}

// reserved is the special range within which a rule must lie to open what a rule for p opens; the
// zero Prefix if p opens nothing special.
func reserved(p netip.Prefix) (netip.Prefix, bool) {
	if !p.IsValid() {
		return p, false
	}
	if p.IsSingleIP() {
		s := classify(p.Addr())
		return s.within, s.what != ""
	}
	for _, s := range specials {
		if s.within.Bits() <= p.Bits() && s.within.Contains(p.Addr()) {
			return s.within, true
		}
	}
	return netip.Prefix{}, false
}

// wider reports whether x matches every caller that r matches.
func (a *analysis) wider(x, r *rule) bool {
	if r.caller == nil && x.caller != nil && !x.deny {
		return false // r allows an unknown caller, x does not
	}
	if r.back && !x.back {
		return false
	}
	return a.patterns(x.caller, r.caller) && a.patterns(x.egress, r.egress) && a.patterns(x.flow, r.flow) &&
		a.patterns(x.cluster, r.cluster) && users(x.uid, r.uid) && a.sources(x, r)
}

// users reports whether wide contains all of narrow; nil is any.
func users(wide, narrow []uint32) bool {
	return wide == nil || narrow != nil &&
		!slices.ContainsFunc(narrow, func(u uint32) bool { return !slices.Contains(wide, u) })
}

func (a *analysis) patterns(wide, narrow patterns) bool {
	if wide == nil || slices.Equal(wide, narrow) {
		return true
	}
	if narrow == nil {
		narrow = patterns{{wild: true}}
	}
	for _, n := range narrow {
		if a.steps -= len(wide); a.steps <= 0 || !slices.ContainsFunc(wide, func(w pattern) bool { return w.covers(n) }) {
			return false
		}
	}
	return true
}

func (p pattern) covers(n pattern) bool {
	if !n.wild {
		return p.matches(n.head)
	}
	return p.wild && strings.HasPrefix(n.head, p.head) && strings.HasSuffix(n.tail, p.tail)
}

// sources reports whether x matches every source that r matches. A deny rule with sources also
// matches an unknown one, an allow rule does not, so comparing the ranges is enough.
func (a *analysis) sources(x, r *rule) bool {
	if x.source.any() || r.source.any() {
		return x.source.any()
	}
	for _, text := range r.written.Source {
		name, isList := strings.CutPrefix(text, "@")
		if !isList {
			if p, err := parseRange(text); err != nil || !a.source(x, p) {
				return false
			}
			continue
		}
		if a.steps -= len(x.written.Source); slices.Contains(x.written.Source, text) {
			continue
		}
		if slices.ContainsFunc(a.c.lists[name], func(p netip.Prefix) bool { return !a.source(x, p) }) {
			return false
		}
	}
	return true
}

func (a *analysis) source(x *rule, p netip.Prefix) bool {
	if a.steps--; a.steps <= 0 {
		return false
	}
	if x.source.many != nil {
		return x.source.many.LookupPrefix(p)
	}
	return slices.ContainsFunc(x.source.few,
		func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}

// cover reports whether ps contains each port of others.
func (ps ports) cover(others ports) bool {
	if len(ps) == 0 {
		return true
	}
	if len(others) == 0 {
		others = ports{{1, 65535}}
	}
	for _, o := range others {
		if !slices.ContainsFunc(ps, func(p portRange) bool { return p.first <= o.first && o.last <= p.last }) {
			return false
		}
	}
	return true
}

// exact reports whether ps names a single port, which opens one of the dialler's own listeners.
func (ps ports) exact() bool {
	return slices.ContainsFunc(ps, func(p portRange) bool { return p.first == p.last })
}

// keep reports whether ps names singly each port that others name singly.
func (ps ports) keep(others ports) bool {
	return !slices.ContainsFunc(others, func(o portRange) bool { return o.first == o.last && !slices.Contains(ps, o) })
}
