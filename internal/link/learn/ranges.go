// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

const (
	// mostList bounds the ranges that one field of an object has.
	mostList = 64
	// mostListText bounds a list of ranges as a text.
	mostListText = 4 << 10
	// mostPods and mostServices bound the ranges of a cluster: each one is routed by every other cluster.
	mostPods, mostServices = 256, 64
)

// special are the ranges that neither pods nor services have: whoever says so errs, or wants packets that are not
// theirs.
func special() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"),
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
	}
}

// parseRange reads a CIDR. Bits of a host are ignored, as all that write these objects do. It gives the reason if the
// text is no range that a cluster can have.
func parseRange(text string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, "is no CIDR"
	}
	p = p.Masked()
	for _, s := range special() {
		if p.Overlaps(s) || p.Bits() == 0 {
			return netip.Prefix{}, "has addresses that no cluster can have"
		}
	}
	return p, ""
}

// parse reads the ranges of a field, and says which are none.
func (l *learner) parse(from string, texts []string) (out []netip.Prefix) {
	if len(texts) > mostList {
		l.problems.add(RangeInvalid, "", "%s: it has %d ranges, and at most %d are read", from, len(texts), mostList)
		texts = texts[:mostList]
	}
	for _, text := range texts {
		p, why := parseRange(text)
		if why != "" {
			l.problems.add(RangeInvalid, "", "%s: %q %s", from, shown(text), why)
			continue
		}
		out = append(out, p)
	}
	return out
}

// split reads a list with commas or spaces.
func split(text string) []string {
	return strings.FieldsFunc(text[:min(len(text), mostListText)], func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r'
	})
}

// distinct are ranges in order, without those that another one contains.
func distinct(in []Learned) (out []Learned) {
	slices.SortFunc(in, func(a, b Learned) int {
		return cmp.Or(compare(a.Prefix, b.Prefix), cmp.Compare(a.From, b.From))
	})
	for _, one := range in {
		if n := len(out); n == 0 || !contains(out[n-1].Prefix, one.Prefix) {
			out = append(out, one)
		}
	}
	return out
}

// merge are the fewest ranges with exactly the addresses of others.
func merge(in []netip.Prefix) (out []netip.Prefix) {
	in = slices.Clone(in)
	slices.SortFunc(in, compare)
	for _, p := range in {
		if n := len(out); n > 0 && contains(out[n-1], p) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1; n = len(out) {
			a, b := out[n-2], out[n-1]
			if a.Bits() != b.Bits() || a.Bits() == 0 || parent(a) != parent(b) {
				break
			}
			out = append(out[:n-2], parent(a))
		}
	}
	return out
}

func parent(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() }

// contains reports whether all addresses of b are in a.
func contains(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

// compare orders by family, first address and size, the larger range first.
func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// within reports whether one of the ranges, which are in order and disjoint, has all addresses of p.
func within(ranges []Learned, p netip.Prefix) bool {
	at, _ := slices.BinarySearchFunc(ranges, p, func(r Learned, p netip.Prefix) int {
		if r.Prefix.Addr().Compare(p.Addr()) <= 0 {
			return -1
		}
		return 1
	})
	return at > 0 && contains(ranges[at-1].Prefix, p)
}
