// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"
)

// Range is all addresses from From to To, both included, of one family.
type Range struct{ From, To netip.Addr }

// RangeOf is the range of a prefix.
func RangeOf(p netip.Prefix) Range {
	p = p.Masked()
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return Range{p.Addr(), last}
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.From.BitLen() && r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// Overlaps reports whether two ranges have an address in common.
func (r Range) Overlaps(o Range) bool {
	return r.From.BitLen() == o.From.BitLen() && r.From.Compare(o.To) <= 0 && o.From.Compare(r.To) <= 0
}

// String is a prefix, an address, or first-last.
func (r Range) String() string {
	if p := r.Prefixes(); len(p) == 1 {
		if p[0].IsSingleIP() {
			return r.From.String()
		}
		return p[0].String()
	}
	return r.From.String() + "-" + r.To.String()
}

// Prefixes returns the smallest list of prefixes that makes up the range.
func (r Range) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for from := r.From; ; {
		bits := from.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(from, bits-1)
			if wider.Masked().Addr() != from || RangeOf(wider).To.Compare(r.To) > 0 {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(from, bits)
		out = append(out, p)
		last := RangeOf(p).To
		if last.Compare(r.To) >= 0 || !last.Next().IsValid() {
			return out
		}
		from = last.Next()
	}
}

func compareRanges(a, b Range) int {
	if c := a.From.Compare(b.From); c != 0 {
		return c
	}
	return a.To.Compare(b.To)
}

// Unite sorts ranges and merges those that overlap. Adjacent ranges stay separate, so
// that a range that is added or removed changes no element but its own.
func Unite(in []Range) []Range {
	if slices.IsSortedFunc(in, compareRanges) && apart(in) {
		return slices.Clone(in)
	}
	all := slices.Clone(in)
	slices.SortFunc(all, compareRanges)
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].Overlaps(r) {
			if r.To.Compare(out[n-1].To) > 0 {
				out[n-1].To = r.To
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// Join sorts ranges and merges those that overlap or are adjacent.
func Join(in []Range) []Range {
	out := Unite(in)
	joined := out[:0]
	for _, r := range out {
		if n := len(joined); n > 0 && joined[n-1].To.Next() == r.From {
			joined[n-1].To = r.To
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// Less returns the addresses in from that are not in out.
func Less(from, out []Range) []Range {
	from, out = Unite(from), Unite(out)
	var left []Range
	k := 0
	for _, r := range from {
		for k < len(out) && out[k].To.Compare(r.From) < 0 {
			k++
		}
		rest := true
		for i := k; i < len(out) && out[i].From.Compare(r.To) <= 0; i++ {
			if !out[i].Overlaps(r) {
				continue // of the other family
			}
			if r.From.Compare(out[i].From) < 0 {
				left = append(left, Range{r.From, out[i].From.Prev()})
			}
			if rest = out[i].To.Compare(r.To) < 0; !rest {
				break
			}
			r.From = out[i].To.Next()
		}
		if rest {
			left = append(left, r)
		}
	}
	return left
}

func apart(sorted []Range) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i-1].Overlaps(sorted[i]) {
			return false
		}
	}
	return true
}

// Find returns the range that contains an address, in a sorted list without overlaps.
func Find(ranges []Range, a netip.Addr) (Range, bool) {
	i, found := slices.BinarySearchFunc(ranges, a, func(r Range, a netip.Addr) int { return r.From.Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !ranges[i].Contains(a) {
		return Range{}, false
	}
	return ranges[i], true
}

func list(ranges []Range) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}
