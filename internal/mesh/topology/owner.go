// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"container/heap"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// claim is a range of a member. Two claims on an address are settled by better,
// which looks at nothing but what the members say.
type claim struct {
	member *member.Facts
	prefix netip.Prefix
	kind   kind
	parts  []plan.Range // what is left after the member's exclusions
}

// kind is what a claim is for, the least first.
type kind int

const (
	ofClosed kind = iota // a range of one that is gone: what nobody else has of it is lost
	ofRange
	ofOverlay // its address in the mesh
)

// better reports whether an address of both belongs to a: overlay addresses before
// ranges, the more specific before the wider, the smaller id before the greater.
func (a *claim) better(b *claim) bool {
	if a.kind != b.kind {
		return a.kind > b.kind
	}
	if a.prefix.Bits() != b.prefix.Bits() {
		return a.prefix.Bits() > b.prefix.Bits()
	}
	return a.member.ID < b.member.ID
}

// claimed are the claims of the members that hold for every node alike.
func claimed(in *Input, keys []*member.Facts) ([]*claim, []Problem) {
	var out []*claim
	var problems []Problem
	for _, m := range keys {
		refuse := func(p netip.Prefix, why string, args ...any) {
			problems = append(problems,
				Problem{Kind: Refused, Member: m.ID, Node: m.Node, Range: p, Why: fmt.Sprintf(why, args...)})
		}
		for _, a := range []netip.Addr{m.Overlay6, m.Overlay4} {
			if !a.IsValid() {
				continue
			}
			p := netip.PrefixFrom(a, a.BitLen())
			if why := Never(p); why != "" {
				refuse(p, "it is %s", why)
			} else {
				out = append(out, &claim{m, p, ofOverlay, []plan.Range{plan.RangeOf(p)}})
			}
		}
		excluded := rangesOf(m.Excluded)
		for _, p := range m.Ranges {
			if why := Never(p); why != "" {
				refuse(p, "it is %s", why)
				continue
			}
			if why := in.Local.underlay(p); why != "" && m.ID == in.Self.ID {
				refuse(p, "%s", why)
				continue
			}
			if why := in.stated(p); why != "" && m.ID == in.Self.ID {
				refuse(p, "%s", why)
			}
			out = append(out, &claim{m, p, ofRange, plan.Less([]plan.Range{plan.RangeOf(p)}, excluded)})
		}
	}
	return append(out, closed(in)...), problems
}

// closed are the claims of members that are gone. They keep nobody from anything: any other
// claim is better.
func closed(in *Input) []*claim {
	var out []*claim
	if in.Options.Bypass { // what is down goes in clear
		return nil
	}
	for _, c := range slices.Concat(in.Closed, in.Links.closed()) {
		m := &member.Facts{ID: c.ID, Node: c.Node}
		excluded := rangesOf(c.Excluded)
		for _, p := range c.Ranges {
			if Never(p) == "" {
				out = append(out, &claim{m, p, ofClosed, plan.Less([]plan.Range{plan.RangeOf(p)}, excluded)})
			}
		}
	}
	return out
}

// underlay returns the reason why this node must not announce a range, or "": its packets to
// peers would be for the mesh.
func (l Local) underlay(p netip.Prefix) string {
	for _, s := range []struct {
		addrs []netip.Addr
		what  string
	}{{l.Underlay, "the address by which this machine reaches the others"},
		{l.Gateways, "a default gateway of this machine"}} {
		for _, a := range s.addrs {
			if a = a.Unmap().WithZone(""); p.Contains(a) {
				return fmt.Sprintf("it covers %s, %s", a, s.what)
			}
		}
	}
	return ""
}

// stated returns the reason why a range contradicts the addresses that this node announces, or
// "". It is nothing that keeps packets out of the mesh.
func (in *Input) stated(p netip.Prefix) string {
	for _, a := range outside(&in.Self) {
		if p.Contains(a) && a != in.Self.Overlay4 && a != in.Self.Overlay6 {
			return fmt.Sprintf("it covers %s, by which this node says that it is reached without the mesh", a)
		}
	}
	return ""
}

// Withheld are the ranges that this node must not announce, as long as its addresses are
// what they are.
func (l Local) Withheld(ranges []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return l.underlay(p) == "" })
}

// Taken are the ranges of this node that another member has, to the address, and that this
// node did not have before. Where one is within the other both have their part: that is for
// the plan to settle.
func Taken(in Input, before []netip.Prefix) []Problem {
	var out []Problem
	for _, m := range others(&in) {
		if m.Key.IsZero() || m.Key == in.Self.Key {
			continue
		}
		for _, p := range in.Self.Ranges {
			if slices.Contains(m.Ranges, p) && !slices.Contains(before, p) && !slices.Contains(m.Excluded, p) {
				out = append(out, Problem{Kind: Overlap, Member: in.Self.ID, Node: in.Self.Node, Range: p, Other: m.ID,
					Why: called(m.Node, m.ID) + " has it already"})
			}
		}
	}
	return out
}

func rangesOf(prefixes []netip.Prefix) []plan.Range {
	var out []plan.Range
	for _, p := range prefixes {
		if p.IsValid() {
			out = append(out, plan.RangeOf(p))
		}
	}
	return plan.Unite(out)
}

// piece is a part of a claim that nobody has a better claim on.
type piece struct {
	plan.Range
	claim *claim
}

// owned settles all claims: it sweeps over the places where one begins or ends, and
// between two of them the best that is open has the addresses. A range of a whole linked cluster contains those of its
// nodes, which is no problem.
func owned(claims []*claim, linked []netip.Prefix) ([]piece, []Problem) {
	var begins []piece
	for _, c := range claims {
		for _, r := range c.parts {
			begins = append(begins, piece{r, c})
		}
	}
	slices.SortStableFunc(begins, func(a, b piece) int { return a.From.Compare(b.From) })
	s := sweep{told: map[[2]*claim]bool{}, linked: map[netip.Prefix]bool{}}
	for _, p := range linked {
		s.linked[p] = true
	}
	for len(begins) > 0 || len(s.open) > 0 {
		if len(s.open) == 0 {
			s.at = begins[0].From
		}
		for len(begins) > 0 && begins[0].From == s.at {
			s.begin(begins[0])
			begins = begins[1:]
		}
		next := s.open[0].To // the last address before something changes
		if len(begins) > 0 && begins[0].From.Compare(next) <= 0 {
			next = begins[0].From.Prev()
		}
		s.give(plan.Range{From: s.at, To: next}, s.open[0].claim)
		s.at = next.Next()
		for len(s.open) > 0 && (!s.at.IsValid() || s.open[0].To.Compare(s.at) < 0) {
			heap.Pop(&s.open)
		}
		if !s.at.IsValid() && len(begins) > 0 { // IPv4 is over
			s.open, s.at = nil, begins[0].From
		}
	}
	return s.pieces, s.problems
}

type sweep struct {
	at       netip.Addr
	open     heaped // the best first
	pieces   []piece
	problems []Problem
	told     map[[2]*claim]bool
	linked   map[netip.Prefix]bool
}

func (s *sweep) begin(p piece) {
	if len(s.open) > 0 && s.open[0].claim.member != p.claim.member && min(s.open[0].claim.kind, p.claim.kind) > ofClosed {
		s.tell(s.open[0].claim, p.claim)
	}
	heap.Push(&s.open, p)
}

func (s *sweep) tell(a, b *claim) {
	if b.better(a) {
		a, b = b, a
	}
	if s.linked[a.prefix] && s.linked[b.prefix] && a.prefix.Bits() > b.prefix.Bits() {
		return
	}
	if pair := [2]*claim{a, b}; !s.told[pair] {
		s.told[pair] = true
		s.problems = append(s.problems,
			Problem{Kind: Overlap, Member: b.member.ID, Node: b.member.Node, Range: b.prefix, Other: a.member.ID,
				Why: fmt.Sprintf("%s of %s counts before it", a.prefix, called(a.member.Node, a.member.ID))})
	}
}

// give joins what was cut for a claim that did not win.
func (s *sweep) give(r plan.Range, c *claim) {
	if n := len(s.pieces); n > 0 && s.pieces[n-1].claim == c && s.pieces[n-1].To.Next() == r.From {
		s.pieces[n-1].To = r.To
		return
	}
	s.pieces = append(s.pieces, piece{r, c})
}

type heaped []piece

func (h heaped) Len() int           { return len(h) }
func (h heaped) Less(i, k int) bool { return h[i].claim.better(h[k].claim) }
func (h heaped) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *heaped) Push(x any)        { *h = append(*h, x.(piece)) }
func (h *heaped) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
