// SPDX-License-Identifier: Apache-2.0

// Package pools decides which IPPools Calico is given for the ranges of other clusters: Calico keeps the source of
// what pods send to an address of any pool. It does not read or write objects.
package pools

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// Pool is what is read of an IPPool.
type Pool struct {
	Name     string
	CIDR     string
	Disabled bool // no pod gets an address of it
	Ours     bool // by Ours
}

// Labels are those of the pools that a member's controller makes.
func Labels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "tombolo", "app.kubernetes.io/part-of": "tombolo"}
}

// Name is what the pool for a range is called.
func Name(cidr string) string {
	return "tombolo-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr)
}

// Ours reports whether a member's controller has made a pool: it has the labels, and the name for its range.
func Ours(name, cidr string, labels map[string]string) bool {
	for k, v := range Labels() {
		if labels[k] != v {
			return false
		}
	}
	return name == Name(cidr)
}

// BlockSize is that of a pool (bits of a prefix). Calico has blocks of 64 addresses unless the pool says otherwise, and
// refuses a pool that is smaller than one. 0: the range cannot be read.
func BlockSize(cidr string) int {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return 0
	}
	return max(p.Addr().BitLen()-6, p.Bits())
}

// Cluster is another cluster that is accepted, with ranges as its objects have them.
type Cluster struct {
	Name     string
	Ranges   []string          // of its pods and Services, by its own addresses
	Maps     map[string]string // as accepted
	Accepted []string
}

// Ranges are those of other clusters as this one reaches them, in order.
func Ranges(others []Cluster) (out []string) {
	for _, c := range others {
		mapped, err := mapping.All(c.Name, c.Maps)
		if err != nil {
			continue // nodes do not reach it either
		}
		for _, text := range c.Ranges {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			for _, m := range mapped {
				if as, ok := m.Out(p); ok {
					p = as
					break
				}
			}
			accepted := slices.ContainsFunc(c.Accepted, func(of string) bool { return within(p, of) })
			if accepted && !slices.Contains(out, p.String()) {
				out = append(out, p.String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// Plan is what has to be done so that Calico knows ranges.
type Plan struct {
	Create []string // ranges
	Remove []string // names
	Err    error    // why there is none for a range
}

// Compare plans. A range within a pool of somebody else needs none of ours.
func Compare(want []string, have []Pool) (out Plan) {
	missing, taken := map[string]bool{}, map[string]bool{}
	for _, cidr := range want {
		missing[cidr] = true
	}
	for _, h := range have {
		if h.Ours {
			continue
		}
		taken[h.Name] = true
		maps.DeleteFunc(missing, func(cidr string, _ bool) bool {
			p, err := netip.ParsePrefix(cidr)
			return err == nil && within(p, h.CIDR)
		})
	}
	for _, h := range have {
		switch {
		case h.Ours && h.Disabled && missing[h.CIDR]:
			delete(missing, h.CIDR)
		case h.Ours:
			out.Remove = append(out.Remove, h.Name)
		}
	}
	for _, cidr := range slices.Sorted(maps.Keys(missing)) {
		if name := Name(cidr); taken[name] {
			out.Err = fault.Newf(fault.CodeLinkRefused, "IPPool %s", name).
				Whyf("it is not tombolo's, and it does not cover %s, a range of another cluster", cidr).
				Hint("give it another name, or have it cover %s: until then Calico may change the source of what pods "+
					"send there", cidr)
			continue
		}
		out.Create = append(out.Create, cidr)
	}
	return out
}

// within reports whether a range is a part of another one, or all of it.
func within(p netip.Prefix, of string) bool {
	o, err := netip.ParsePrefix(of)
	return err == nil && o.Bits() <= p.Bits() && o.Contains(p.Addr())
}
