// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Port is a listener that leads to a port of the hub.
type Port struct {
	Name   string
	Listen netip.AddrPort
	From   []netip.Prefix // nil: loopback
}

func (p Port) equal(o Port) bool {
	return p.Name == o.Name && p.Listen == o.Listen && slices.Equal(p.From, o.From)
}

func parsePorts(raw []v1alpha1.AgentPortConfig, health string, add conf.Report) (out []Port) {
	taken := map[netip.AddrPort]string{}
	if at, err := netip.ParseAddrPort(health); err == nil {
		taken[at] = "healthListen"
	}
	for i, rp := range raw {
		at := fmt.Sprintf("ports[%d]", i)
		p := Port{Name: rp.Name}
		if err := wire.CheckPort(rp.Name); err != nil {
			add(at+".name", "%v", err)
		}
		var err error
		p.Listen, err = netip.ParseAddrPort(rp.Listen)
		switch other, twice := taken[p.Listen]; {
		case err != nil || p.Listen.Addr().Zone() != "":
			add(at+".listen", "%q is not ADDRESS:PORT, such as 127.0.0.1:5000", rp.Listen)
		case twice && p.Listen.Port() != 0: // for 0 the kernel chooses
			add(at+".listen", "%s listens at %s already", other, rp.Listen)
		case !p.Listen.Addr().Unmap().IsLoopback() && len(rp.From) == 0:
			add(at+".from", "it is missing: beyond loopback, say which sources may connect to %s", rp.Listen)
		}
		taken[p.Listen] = at
		if rp.From != nil && len(rp.From) == 0 {
			add(at+".from", "the list is empty: leave it out for loopback")
		}
		for j, text := range rp.From {
			r, err := parseSource(text)
			if err != nil {
				add(fmt.Sprintf("%s.from[%d]", at, j), "%v", err)
			}
			p.From = append(p.From, r)
		}
		out = append(out, p)
	}
	return out
}

// parseSource reads a CIDR or an address.
func parseSource(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("%q is neither a CIDR nor an address", text)
	case p != p.Masked():
		return p, fmt.Errorf("%q has host bits set; did you mean %s?", text, p.Masked())
	}
	return p, nil
}

// admits reports whether a source may connect.
func (p Port) admits(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	if p.From == nil {
		return from.IsLoopback()
	}
	return slices.ContainsFunc(p.From, func(r netip.Prefix) bool { return r.Contains(from) })
}
