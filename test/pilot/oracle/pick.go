// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// listen finds the listener that takes a connection; nil: none does.
func listen(all []built, q Question) (*built, error) {
	var found []*built
	for i, b := range all {
		addresses := []uint32{b.told.Port}
		for _, a := range b.listener.AdditionalAddresses {
			addresses = append(addresses, a.GetAddress().GetSocketAddress().GetPortValue())
		}
		if q.Listener == b.told.Name || q.Listener == "" && slices.Contains(addresses, q.Port) {
			found = append(found, &all[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%d listeners have port %d", len(found), q.Port)
}

// pick finds the filter chain as Envoy does: by the port, then the address, then the server name, then the transport
// protocol, then the application protocol. Each step takes the narrowest value that fits, and never goes back. -1: no chain fits.
func pick(l *listenerv3.Listener, q Question) (int, error) {
	to, err := destination(q)
	if err != nil {
		return -1, err
	}
	var fit []int
	for i, c := range l.FilterChains {
		m := c.GetFilterChainMatch()
		if len(m.GetSourcePrefixRanges())+len(m.GetSourcePorts())+
			len(m.GetDirectSourcePrefixRanges()) > 0 || m.GetSourceType() != 0 || m.GetSuffixLen() != nil {
			return -1, fmt.Errorf("chain %d of %s has a match that is not known here", i, l.Name)
		}
		if len(m.GetServerNames()) > 0 && !slices.ContainsFunc(l.ListenerFilters, func(f *listenerv3.ListenerFilter) bool {
			return f.Name == "envoy.filters.listener.tls_inspector"
		}) {
			return -1, fmt.Errorf("%s has chains with server names, and nobody reads them", l.Name)
		}
		fit = append(fit, i)
	}
	match := func(i int) *listenerv3.FilterChainMatch { return l.FilterChains[i].GetFilterChainMatch() }
	transport := "raw_buffer"
	if q.TLS || q.SNI != "" {
		transport = "tls"
	}
	fit = narrow(fit, func(i int) int {
		if p := match(i).GetDestinationPort(); p != nil {
			return rank(p.Value == uint32(to.Port()), 1)
		}
		return 0
	})
	fit = narrow(fit, func(i int) int {
		ranges := match(i).GetPrefixRanges()
		best := rank(len(ranges) == 0, 0)
		for _, r := range ranges {
			p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", r.AddressPrefix, r.GetPrefixLen().GetValue()))
			if err == nil && p.Contains(to.Addr()) {
				best = max(best, 1+p.Bits())
			}
		}
		return best
	})
	fit = narrow(fit, func(i int) int { return byName(match(i).GetServerNames(), strings.ToLower(q.SNI)) })
	fit = narrow(fit, func(i int) int {
		if p := match(i).GetTransportProtocol(); p != "" {
			return rank(p == transport, 1)
		}
		return 0
	})
	fit = narrow(fit, func(i int) int { // nobody asks by one
		return rank(len(match(i).GetApplicationProtocols()) == 0, 0)
	})
	switch len(fit) {
	case 0:
		return -1, nil
	case 1:
		return fit[0], nil
	}
	return -1, fmt.Errorf("%d chains of %s fit", len(fit), l.Name)
}

// destination is where a connection goes, as Envoy sees it.
func destination(q Question) (netip.AddrPort, error) {
	if q.To == "" {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{240, 0, 0, 3}), uint16(q.Port)), nil
	}
	return netip.ParseAddrPort(q.To)
}

func rank(fits bool, as int) int {
	if fits {
		return as
	}
	return -1
}

// narrow keeps the chains of the highest rank; below zero they do not fit.
func narrow(chains []int, rank func(int) int) (out []int) {
	best := 0
	for _, c := range chains {
		switch r := rank(c); {
		case r > best:
			best, out = r, []int{c}
		case r == best:
			out = append(out, c)
		}
	}
	return out
}

// byName is how well server names fit: exactly, by the longest end, or all.
func byName(names []string, sni string) int {
	if len(names) == 0 {
		return 0
	}
	best := -1
	for _, n := range names {
		n = strings.ToLower(n)
		switch {
		case n == sni:
			return 1 << 20
		case strings.HasPrefix(n, "*.") && strings.HasSuffix(sni, n[1:]):
			best = max(best, len(n))
		}
	}
	return best
}
