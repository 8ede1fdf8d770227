// SPDX-License-Identifier: Apache-2.0

// Package pools decides which IPPools Calico gets for the ranges of other clusters: from none of them does it give an
// address, and what pods send there keeps its source. It does not read or write them.
package pools

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// ManagedBy is the value of the label app.kubernetes.io/managed-by of pools that Tombolo makes.
const ManagedBy = "tombolo"

// Cluster is another linked cluster, with texts of ranges. One that is none does not count.
type Cluster struct {
	Ranges   []string          // by its own addresses
	Mapped   map[string]string // in force
	Accepted []string          // what is not within these does not count
}

// Wanted are the ranges by which clusters are reached, without those that lie within another one.
func Wanted(clusters []Cluster) []string {
	var all []netip.Prefix
	for _, c := range clusters {
		var mapped []mapping.Range
		for there, here := range c.Mapped {
			if m, err := mapping.Parse("", there, here); err == nil {
				mapped = append(mapped, m)
			}
		}
		slices.SortFunc(mapped, func(a, b mapping.Range) int { // the most specific one counts
			return cmp.Compare(b.There.Bits(), a.There.Bits())
		})
		accepted := ranges(c.Accepted)
		for _, p := range ranges(c.Ranges) {
			for _, q := range outside(p, mapped) {
				if within(q, accepted) {
					all = append(all, q)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var widest []netip.Prefix
	var out []string
	for _, p := range all {
		if !within(p, widest) {
			widest, out = append(widest, p), append(out, p.String())
		}
	}
	return out
}

func ranges(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil && p == p.Masked() {
			out = append(out, p)
		}
	}
	return out
}

// outside are the ranges by which others reach one of a cluster. One that is only partly mapped keeps what is not.
func outside(p netip.Prefix, mapped []mapping.Range) []netip.Prefix {
	for _, m := range mapped {
		if q, ok := m.Out(p); ok {
			return []netip.Prefix{q}
		}
	}
	out := []netip.Prefix{p}
	for _, m := range mapped {
		if covers(p, m.There) {
			out = append(out, m.Here)
		}
	}
	return out
}

func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

func within(p netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return covers(r, p) })
}

// Pool is an IPPool that Calico has.
type Pool struct {
	Name, CIDR string
	ManagedBy  string // what its label says
	Disabled   bool
}

// Ours reports whether Tombolo has made it: it has the label, and the name for its range.
func (p Pool) Ours() bool {
	cidr, err := netip.ParsePrefix(p.CIDR)
	return err == nil && p.ManagedBy == ManagedBy && p.Name == name(cidr)
}

// name is what the pool for a range is called.
func name(p netip.Prefix) string {
	return "tombolo-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}

// blockSize is that of the pool for a range: Calico's own, or the whole range where it is smaller.
func blockSize(p netip.Prefix) int {
	if p.Addr().Is4() {
		return max(26, p.Bits())
	}
	return max(122, p.Bits())
}

// New is a pool that is to be made.
type New struct {
	Name, CIDR string
	BlockSize  int
}

// Changes are what makes Calico have what is wanted.
type Changes struct {
	Remove []string // by name, and first
	Make   []New
	Taken  []Pool // of somebody else, with the name of one that is wanted
}

// Decide compares. A range that a pool of somebody else covers needs none.
func Decide(wanted []string, have []Pool) (out Changes) {
	missing := map[string]netip.Prefix{}
	for _, p := range ranges(wanted) {
		missing[name(p)] = p
	}
	var others []netip.Prefix
	for _, p := range have {
		_, right := missing[p.Name]
		switch cidr, err := netip.ParsePrefix(p.CIDR); {
		case !p.Ours():
			if err == nil {
				others = append(others, cidr)
			}
		case right && p.Disabled:
			delete(missing, p.Name)
		default:
			out.Remove = append(out.Remove, p.Name)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(missing)) {
		p := missing[n]
		if within(p, others) {
			continue
		}
		taken := slices.IndexFunc(have, func(h Pool) bool { return h.Name == n && !h.Ours() })
		if taken >= 0 {
			out.Taken = append(out.Taken, have[taken])
		} else {
			out.Make = append(out.Make, New{n, p.String(), blockSize(p)})
		}
	}
	return out
}
