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
)

// Pool is what is read of an IPPool.
type Pool struct {
	Name     string
	CIDR     netip.Prefix // not valid: it cannot be read
	Disabled bool         // no pod gets an address of it
	Ours     bool         // by Ours
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
// refuses a pool that is smaller than one.
func BlockSize(cidr netip.Prefix) int { return max(cidr.Addr().BitLen()-6, cidr.Bits()) }

// Plan is what has to be done so that Calico knows ranges.
type Plan struct {
	Create []netip.Prefix
	Remove []string // names
	Err    error    // why there is none for a range
}

// Compare plans. A range within a pool of somebody else needs none of ours.
func Compare(want []netip.Prefix, have []Pool) (out Plan) {
	missing, taken := map[netip.Prefix]bool{}, map[string]bool{}
	for _, p := range want {
		missing[p] = true
	}
	for _, h := range have {
		if h.Ours {
			continue
		}
		taken[h.Name] = true
		maps.DeleteFunc(missing, func(p netip.Prefix, _ bool) bool { return h.CIDR.IsValid() && within(p, h.CIDR) })
	}
	for _, h := range have {
		switch {
		case h.Ours && h.Disabled && missing[h.CIDR]:
			delete(missing, h.CIDR)
		case h.Ours:
			out.Remove = append(out.Remove, h.Name)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(missing), netip.Prefix.Compare) {
		if name := Name(p.String()); taken[name] {
			out.Err = fault.Newf(fault.CodeLinkRefused, "IPPool %s", name).
				Whyf("it is not tombolo's, and it does not cover %s, a range of another cluster", p).
				Hint("give it another name, or have it cover %s: until then Calico may change the source of what pods send there", p)
			continue
		}
		out.Create = append(out.Create, p)
	}
	return out
}

func within(p, of netip.Prefix) bool { return of.Bits() <= p.Bits() && of.Contains(p.Addr()) }
