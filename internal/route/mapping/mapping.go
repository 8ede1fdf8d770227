// SPDX-License-Identifier: Apache-2.0

// Package mapping has the ranges of clusters and the ranges of the same size by which they are reached here: two
// clusters may have the same ranges, but no two may be reached by the same. It does not route.
package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Range is a range of a cluster, and the range by which it is reached here.
type Range struct {
	Cluster     string
	There, Here netip.Prefix
}

func (r Range) String() string {
	if r.There == r.Here {
		return fmt.Sprintf("%s of cluster %s", r.There, r.Cluster)
	}
	return fmt.Sprintf("%s of cluster %s as %s", r.There, r.Cluster, r.Here)
}

// Mapped reports whether it is reached by other addresses than its own.
func (r Range) Mapped() bool { return r.There != r.Here }

// Out is by which range a part of There, or all of it, is reached here; false: it is no part of it.
func (r Range) Out(part netip.Prefix) (netip.Prefix, bool) {
	if !r.There.Contains(part.Addr()) || part.Bits() < r.There.Bits() {
		return part, false
	}
	return netip.PrefixFrom(move(part.Addr(), r.Here), part.Bits()), true
}

// Parse reads a range, and the range by which it is reached; empty: the same.
func Parse(cluster, there, here string) (r Range, err error) {
	r.Cluster = cluster
	if r.There, err = parse(there); err != nil {
		return r, err
	}
	if r.Here = r.There; here == "" {
		return r, nil
	}
	if r.Here, err = parse(here); err != nil {
		return r, err
	}
	if r.There.Addr().Is4() != r.Here.Addr().Is4() {
		return r, fmt.Errorf("%s and %s are of different families", r.There, r.Here)
	}
	switch there, here := r.There.Bits(), r.Here.Bits(); {
	case here > there:
		return r, fmt.Errorf("%s is smaller than %s: a range is mapped to one of the same size, /%d", r.Here, r.There, there)
	case here < there:
		return r, fmt.Errorf("%s is larger than %s: a range is mapped to one of the same size, /%d", r.Here, r.There, there)
	}
	return r, nil
}

// All are the ranges of a cluster, the most specific ones first.
//
//	pairs: the ranges there, and those by which they are known here
func All(cluster string, pairs map[string]string) (out []Range, err error) {
	for there, here := range pairs {
		r, err := Parse(cluster, there, here)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Range) int {
		return cmp.Or(cmp.Compare(b.There.Bits(), a.There.Bits()), a.There.Compare(b.There))
	})
	return out, nil
}

// ParseMap reads THERE=HERE.
func ParseMap(cluster, text string) (Range, error) {
	there, here, ok := strings.Cut(text, "=")
	if !ok || here == "" {
		return Range{}, fmt.Errorf("%q is not RANGE=RANGE", text)
	}
	return Parse(cluster, there, here)
}

func parse(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("%q is not a CIDR, such as 10.244.0.0/16", text)
	case p != p.Masked():
		return p, fmt.Errorf("%s has host bits set: write %s", p, p.Masked())
	case p.Bits() == 0:
		return p, fmt.Errorf("%s is everything: write the ranges of the cluster", p)
	case p.Addr().IsMulticast(), p.Addr().IsLoopback(), p.Addr().IsLinkLocalUnicast():
		return p, fmt.Errorf("%s cannot be routed: it is multicast, loopback or link-local", p)
	}
	return p, nil
}

// Overlap is a pair of ranges that cannot both be routed, by their indices.
type Overlap struct {
	First, Second int
	Why           string
}

// Table finds the range of an address.
type Table struct{ byHere []Range }

// New makes a table. With overlaps, which it lists by pairs, the table is empty.
func New(ranges []Range) (Table, []Overlap) {
	var out []Overlap
	for i, b := range ranges {
		for j, a := range ranges[:i] {
			switch {
			case a.Here.Overlaps(b.Here):
				out = append(out, Overlap{j, i, fmt.Sprintf("%s and %s overlap here: map one of them elsewhere", a, b)})
			case a.Cluster == b.Cluster && a.There.Overlaps(b.There):
				out = append(out, Overlap{j, i, fmt.Sprintf("%s and %s are the same addresses there", a, b)})
			}
		}
	}
	if len(out) > 0 {
		return Table{}, out
	}
	t := Table{slices.Clone(ranges)}
	slices.SortFunc(t.byHere, func(a, b Range) int { return a.Here.Addr().Compare(b.Here.Addr()) })
	return t, nil
}

// Ranges are those of the table, by the addresses here.
func (t Table) Ranges() []Range { return t.byHere }

// There finds the cluster of an address, and the address there.
func (t Table) There(here netip.Addr) (r Range, there netip.Addr, ok bool) {
	here = here.Unmap().WithZone("")
	i, found := slices.BinarySearchFunc(t.byHere, here,
		func(r Range, a netip.Addr) int { return r.Here.Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !t.byHere[i].Here.Contains(here) {
		return Range{}, netip.Addr{}, false
	}
	r = t.byHere[i]
	return r, move(here, r.There), true
}

// Here is the address by which that of a cluster is reached.
func (t Table) Here(cluster string, there netip.Addr) (here netip.Addr, ok bool) {
	there = there.Unmap().WithZone("")
	for _, r := range t.byHere {
		if r.Cluster == cluster && r.There.Contains(there) {
			return move(there, r.Here), true
		}
	}
	return netip.Addr{}, false
}

// move keeps the host bits of an address and takes the others from a range of its family.
func move(a netip.Addr, to netip.Prefix) netip.Addr {
	bytes, network := a.AsSlice(), to.Addr().AsSlice()
	for i := range bytes {
		mask := byte(0xff) // of the network
		if bits := to.Bits() - 8*i; bits <= 0 {
			mask = 0
		} else if bits < 8 {
			mask = 0xff << (8 - bits)
		}
		bytes[i] = network[i]&mask | bytes[i]&^mask
	}
	out, _ := netip.AddrFromSlice(bytes)
	return out
}
