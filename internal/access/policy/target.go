// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"

	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

// Target is a parsed host:port: either an address or a name, never both.
type Target struct {
	Name string     // normalised, empty if Addr is valid
	Addr netip.Addr // unmapped, without zone
	Port uint16
}

func (t Target) String() string {
	if t.Name != "" {
		return net.JoinHostPort(t.Name, strconv.Itoa(int(t.Port)))
	}
	return netip.AddrPortFrom(t.Addr, t.Port).String()
}

// ParseTarget reads host:port strictly: a decimal port from 1 to 65535, an
// address in its usual form (brackets for IPv6, no zone), or a name. Odd
// spellings of addresses (0x7f.1, 127.1) are names with numeric last labels and refused.
func ParseTarget(s string) (Target, error) {
	if len(s) > limit.AuthorityLength {
		return Target{}, fmt.Errorf("the destination has %d characters, at most %d are accepted", len(s),
			limit.AuthorityLength)
	}
	if strings.Contains(s, "@") { // not quoted: a password may stand before it
		return Target{}, errors.New("the destination has an @; host:port is expected, without a user")
	}
	host, portText, err := net.SplitHostPort(s)
	if err != nil {
		return Target{}, fmt.Errorf("destination %q is not host:port", s)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || portText != strconv.FormatUint(port, 10) {
		return Target{}, fmt.Errorf("destination %q has no port from 1 to 65535", s)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return Target{}, fmt.Errorf("destination %q has a zone; zones mean nothing on another machine", s)
		}
		return Target{Addr: addr.Unmap(), Port: uint16(port)}, nil
	}
	name, err := hostname.Parse(host)
	if err != nil {
		return Target{}, fmt.Errorf("destination %q: %w", s, err)
	}
	return Target{Name: name, Port: uint16(port)}, nil
}

type special struct {
	within netip.Prefix
	what   string
}

// specials lists the addresses that a wide rule must not open, narrowest first: the first
// that contains an address is its class.
var specials = func() [19]special {
	s := func(prefix, what string) special { return special{netip.MustParsePrefix(prefix), what} }
	return [...]special{
		s("169.254.169.254/32", "a cloud metadata service"), // AWS, Azure, GCP, OpenStack
		s("169.254.170.2/32", "a cloud metadata service"),   // AWS ECS task credentials
		s("169.254.170.23/32", "a cloud metadata service"),  // AWS EKS pod identity
		s("100.100.100.200/32", "a cloud metadata service"), // Alibaba Cloud
		s("168.63.129.16/32", "a cloud metadata service"),   // Azure wire server
		s("192.0.0.192/32", "a cloud metadata service"),     // Oracle Cloud
		s("fd00:ec2::254/128", "a cloud metadata service"),  // AWS
		s("fd00:ec2::23/128", "a cloud metadata service"),   // AWS EKS pod identity
		s("fd00:42::42/128", "a cloud metadata service"),    // Scaleway
		s("fd20:ce::254/128", "a cloud metadata service"),   // GCP
		s("127.0.0.0/8", "a loopback address"),              // RFC 1122 section 3.2.1.3
		s("::1/128", "a loopback address"),
		s("169.254.0.0/16", "a link-local address"), // RFC 3927
		s("fe80::/10", "a link-local address"),      // RFC 4291 section 2.5.6
		s("0.0.0.0/8", "an address of this network"),
		s("::/128", "the unspecified address"),
		s("224.0.0.0/4", "a multicast address"),
		s("ff00::/8", "a multicast address"),
		s("255.255.255.255/32", "the broadcast address"),
	}
}()

// Special says which class of special addresses an address is in, empty for none.
func Special(addr netip.Addr) string { return classify(addr.Unmap().WithZone("")).what }

// classify returns the special class of an address, also for an IPv4 address embedded in an
// IPv6 one: a NAT64, 6to4 or Teredo gateway on the path would deliver to it.
func classify(addr netip.Addr) special {
	for _, s := range specials {
		if s.within.Contains(addr) {
			return s
		}
	}
	for _, inner := range embedded(addr) {
		for _, s := range specials {
			if s.within.Contains(inner) {
				return special{netip.PrefixFrom(addr, 128), s.what + " in an IPv6 form (" + inner.String() + ")"}
			}
		}
	}
	return special{}
}

// embedders are the IPv6 ranges whose addresses embed an IPv4 address.
var embedders = struct{ nat64, nat64Local, translated, compatible, sixToFour, teredo netip.Prefix }{
	nat64:      netip.MustParsePrefix("64:ff9b::/96"),
	nat64Local: netip.MustParsePrefix("64:ff9b:1::/48"),
	translated: netip.MustParsePrefix("::ffff:0:0:0/96"),
	compatible: netip.MustParsePrefix("::/96"),
	sixToFour:  netip.MustParsePrefix("2002::/16"),
	teredo:     netip.MustParsePrefix("2001::/32"),
}

// embedded extracts the IPv4 addresses that an IPv6 address may stand for: NAT64
// (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214
// section 6.1), IPv4-translated (RFC 2765) and IPv4-compatible (RFC 4291) ones.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	if b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // an interface of ISATAP, behind any prefix
		return []netip.Addr{last}
	}
	switch {
	case embedders.nat64.Contains(addr), embedders.translated.Contains(addr), embedders.compatible.Contains(addr):
		return []netip.Addr{last}
	case embedders.nat64Local.Contains(addr):
		return translated(b, last)
	case embedders.sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case embedders.teredo.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	}
	return nil
}

// translated reads an address of the NAT64 prefix for local use, whose length only its owner knows,
// with each length of RFC 6052 section 2.2. A result in 0.0.0.0/8 means a wrong length, unless all
// of them give that.
func translated(b [16]byte, last netip.Addr) []netip.Addr {
	out := []netip.Addr{
		last,
		netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
		netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),
		netip.AddrFrom4([4]byte(b[9:13])),
	}
	out = slices.DeleteFunc(out, func(a netip.Addr) bool { return a.As4()[0] == 0 })
	if len(out) == 0 {
		return []netip.Addr{last}
	}
	return out
}
