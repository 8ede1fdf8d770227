// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strconv"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Diff returns the steps from one state to another, in an order in which nothing leaks
// between two steps:
//
//	removed links are set down      no packet arrives over them
//	unreachable routes, then rules  a marked packet is lost rather than sent in clear
//	sets, then chains               packets are marked once there is a route for them
//	links, sysctls, addresses       and the other routes: packets start to flow
//	then the removals, in reverse
//
// An address that a set has before and after is in it all the time, and a chain always
// has either its old lines or its new ones.
func Diff(have, want State) []Step {
	have, want = have.Normal(), want.Normal()
	var d differ
	links := pairs(have.Links, want.Links, func(l Link) string { return l.Name })
	routes := pairs(have.Routes, want.Routes, Route.key)
	rules := pairs(have.Rules, want.Rules, func(r Rule) Rule { return r })
	addresses := pairs(have.Addresses, want.Addresses, func(a Address) Address { return a })

	for _, l := range links.gone {
		if l.Up {
			l.Up = false
			d.add(Change, l)
		}
	}
	unreachable := func(r Route) bool { return r.Link == "" }
	byLink := func(r Route) bool { return r.Link != "" }
	set(&d, routes, unreachable)
	set(&d, rules, nil)
	d.tables(have.Tables, want.Tables)
	set(&d, links, nil)
	set(&d, pairs(have.Sysctls, want.Sysctls, func(s Sysctl) string { return s.Path }), nil)
	set(&d, addresses, nil)
	set(&d, routes, byLink)

	gone(&d, rules, nil)
	gone(&d, routes, byLink)
	gone(&d, routes, unreachable)
	gone(&d, addresses, nil)
	gone(&d, links, nil)
	return d.steps
}

type differ struct{ steps []Step }

func (d *differ) add(v Verb, o Object) { d.steps = append(d.steps, Step{v, o}) }

// pairing has the objects that were added, changed and removed.
type pairing[T any] struct {
	fresh, changed, gone []T
}

func pairs[T comparable, K comparable](have, want []T, key func(T) K) pairing[T] {
	known := make(map[K]T, len(have))
	for _, h := range have {
		known[key(h)] = h
	}
	var p pairing[T]
	wanted := make(map[K]bool, len(want))
	for _, w := range want {
		if wanted[key(w)] {
			continue
		}
		wanted[key(w)] = true
		h, there := known[key(w)]
		switch {
		case !there:
			p.fresh = append(p.fresh, w)
		case h != w:
			p.changed = append(p.changed, w)
		}
	}
	for _, h := range have {
		if !wanted[key(h)] {
			p.gone = append(p.gone, h)
		}
	}
	return p
}

func set[T Object](d *differ, p pairing[T], keep func(T) bool) {
	for _, o := range p.fresh {
		if keep == nil || keep(o) {
			d.add(Add, o)
		}
	}
	for _, o := range p.changed {
		if keep == nil || keep(o) {
			d.add(Change, o)
		}
	}
}

// gone removes objects in reverse order.
func gone[T Object](d *differ, p pairing[T], keep func(T) bool) {
	for _, o := range slices.Backward(p.gone) {
		if keep == nil || keep(o) {
			d.add(Remove, o)
		}
	}
}

func (d *differ) tables(have, want []Table) {
	known := map[string]Table{}
	for _, t := range have {
		known[t.Name] = t
	}
	for _, t := range want {
		h, there := known[t.Name]
		if !there {
			d.add(Add, TableName(t.Name))
		}
		delete(known, t.Name)
		d.table(h, t)
	}
	for _, t := range have {
		if _, left := known[t.Name]; left {
			d.add(Remove, TableName(t.Name))
		}
	}
}

// table changes the content of a table: sets are added before the chains that use them
// and removed after them.
func (d *differ) table(have, want Table) {
	sets := map[string]Set{}
	for _, s := range have.Sets {
		sets[s.Name] = s
	}
	for _, w := range want.Sets {
		h, there := sets[w.Name]
		name := SetName{want.Name, w.Name, w.Family}
		if !there {
			d.add(Add, name)
		}
		delete(sets, w.Name)
		for _, e := range elements(name, h.Ranges, w.Ranges) {
			d.add(Change, e)
		}
	}
	d.chains(have, want)
	for _, h := range have.Sets {
		if _, left := sets[h.Name]; left {
			d.add(Remove, SetName{want.Name, h.Name, h.Family})
		}
	}
}

func (d *differ) chains(have, want Table) {
	known := map[string]Chain{}
	for _, c := range have.Chains {
		known[c.Name] = c
	}
	for _, based := range []bool{false, true} { // chains that are jumped to come first
		for _, w := range want.Chains {
			h, there := known[w.Name]
			switch {
			case (w.Hook != "") != based:
			case !there:
				d.add(Add, ChainIn{want.Name, w})
			case !h.Equal(w):
				d.add(Change, ChainIn{want.Name, w})
			}
		}
	}
	for _, w := range want.Chains {
		delete(known, w.Name)
	}
	for _, based := range []bool{true, false} {
		for _, h := range have.Chains {
			if _, left := known[h.Name]; left && (h.Hook != "") == based {
				d.add(Remove, ChainIn{want.Name, h.head()})
			}
		}
	}
}

// elements returns the changes of a set in pieces. Overlapping ranges are in one piece, so
// that an address that stays in the set is never out of it.
func elements(name SetName, have, want []Range) []Elements {
	var out []Elements
	piece := Elements{Set: name}
	var reach Range // covered by the piece
	flush := func() {
		if len(piece.Remove)+len(piece.Add) > 0 {
			out = append(out, piece)
		}
		piece = Elements{Set: name}
	}
	take := func(r Range, to *[]Range) {
		n := len(piece.Remove) + len(piece.Add)
		if n >= limit.PlanElements && !reach.Overlaps(r) {
			flush()
			n = 0
		}
		switch {
		case n == 0:
			reach = r
		case r.To.Compare(reach.To) > 0:
			reach.To = r.To
		}
		*to = append(*to, r)
	}
	for len(have) > 0 || len(want) > 0 {
		switch {
		case len(want) == 0, len(have) > 0 && compareRanges(have[0], want[0]) < 0:
			take(have[0], &piece.Remove)
			have = have[1:]
		case len(have) == 0, compareRanges(have[0], want[0]) > 0:
			take(want[0], &piece.Add)
			want = want[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}
	flush()
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
