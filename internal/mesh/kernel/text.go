// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// What belongs to others is shown as ip rule and ip route show it, so that it can be found there.

// ruleText names a foreign rule.
func ruleText(r netlink.Rule) string {
	words := []string{family(r.Family), "rule", fmt.Sprint(max(r.Priority, 0)) + ":"}
	if r.Invert {
		words = append(words, "not")
	}
	words = append(words, "from", "all")
	if r.Src != nil {
		words[len(words)-1] = r.Src.String()
	}
	if r.Dst != nil {
		words = append(words, "to", r.Dst.String())
	}
	if r.Mark != 0 || r.Mask != nil {
		words = append(words, "fwmark", fmt.Sprintf("%#x/%#x", r.Mark, maskOf(r)))
	}
	for _, by := range []struct{ key, link string }{{"iif", r.IifName}, {"oif", r.OifName}} {
		if by.link != "" {
			words = append(words, by.key, by.link)
		}
	}
	switch {
	case r.Goto > 0:
		words = append(words, "goto", fmt.Sprint(r.Goto))
	case r.Type >= unix.RTN_BLACKHOLE: // FR_ACT_BLACKHOLE and those behind it have the same numbers
		words = append(words, kindOf(int(r.Type)))
	case r.Table > 0:
		words = append(words, "lookup", fmt.Sprint(r.Table))
	}
	return strings.Join(words, " ")
}

// routeText names a foreign route. Links gives the names of links by their index;
// the empty one is of a link that has gone meanwhile.
func routeText(r netlink.Route, of int, links func(index int) string) string {
	to := prefix(r.Dst, of)
	words := []string{family(of), "route"}
	if kind := kindOf(r.Type); kind != "" {
		words = append(words, kind)
	}
	words = append(words, destination(to))
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
	}
	for _, h := range hops {
		if len(h.Gw) > 0 {
			words = append(words, "via", h.Gw.String())
		}
		if h.LinkIndex == 0 {
			continue
		}
		if link := links(h.LinkIndex); link != "" {
			words = append(words, "dev", link)
		}
	}
	words = append(words, "table", fmt.Sprint(r.Table))
	if r.Priority > 0 {
		words = append(words, "metric", fmt.Sprint(r.Priority))
	}
	return strings.Join(words, " ")
}

func destination(p netip.Prefix) string {
	if p.Bits() == 0 {
		return "default"
	}
	return p.String()
}

func family(of int) string {
	if of == netlink.FAMILY_V6 {
		return plan.IPv6.String()
	}
	return plan.IPv4.String()
}

// kindOf is the word for a route that is none to a neighbour; empty for one that is.
func kindOf(kind int) string {
	return map[int]string{
		unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
		unix.RTN_MULTICAST: "multicast",
		unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
		unix.RTN_THROW: "throw",
	}[kind]
}

// linkName is the name of a link by its index, empty if there is none.
func (k *Kernel) linkName(index int) string {
	link, err := k.route.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}
