// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

// reading collects facts from text. report gets every problem with the name of
// the field; what is wrong is left out, and whoever reads takes nothing then.
type reading struct {
	report func(path, format string, args ...any)
}

func (r reading) text(path, s string) string {
	if len(s) > limit.RosterText {
		r.report(path, "%d bytes, at most %d are allowed", len(s), limit.RosterText)
		return ""
	}
	if !untrusted.Printable(s) {
		r.report(path, "%q has a character that cannot be printed", short(s))
		return ""
	}
	return s
}

func (r reading) key(path, s string) member.Key {
	if s == "" {
		return member.Key{}
	}
	k, err := member.ParseKey(s)
	if err != nil {
		r.report(path, "%v", err)
	}
	return k
}

func (r reading) pin(path, s string) member.Pin {
	if s == "" {
		return member.Pin{}
	}
	p, err := member.ParsePin(s)
	if err != nil {
		r.report(path, "%v", err)
	}
	return p
}

func (r reading) engine(path, s string) member.Engine {
	e := member.Engine(s)
	if !slices.Contains([]member.Engine{"", member.WireGuard, member.IPsec}, e) {
		r.report(path, "%q is no engine: wireguard and ipsec are", short(s))
		return ""
	}
	return e
}

// address reads one without zone, which means something on one machine only, and
// in its one form: an IPv4 address is none of IPv6.
func (r reading) address(path, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		r.report(path, "%q is no address", short(s))
		return netip.Addr{}
	}
	if why := useless(a); why != "" {
		r.report(path, "%s is %s: nobody can reach it", a, why)
		return netip.Addr{}
	}
	return a
}

// overlay reads an address of the mesh.
func (r reading) overlay(path, s string, six bool) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	a := r.address(path, s)
	if a.IsValid() && a.Is6() != six {
		r.report(path, "%s is of the other family", a)
		return netip.Addr{}
	}
	return a
}

// useless says why no other node can reach an address.
func useless(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast address"
	}
	return ""
}

func (r reading) endpoint(path, s string) member.Endpoint {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" || a.Addr().Is4In6() {
		r.report(path, "%q is no endpoint: ip:port is expected, [ip]:port for IPv6", short(s))
		return member.Endpoint{}
	}
	if why := useless(a.Addr()); why != "" {
		r.report(path, "%s is %s: nobody can reach it", a.Addr(), why)
	}
	return member.Endpoint{Addr: a}
}

func (r reading) prefix(path, s string) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		r.report(path, "%q is no range: a CIDR is expected", short(s))
	case p != p.Masked():
		r.report(path, "%s has bits beyond its length; %s is meant?", p, p.Masked())
	default:
		return p
	}
	return netip.Prefix{}
}

func (r reading) role(path, s string) member.Role {
	role := member.Role(s)
	if !slices.Contains([]member.Role{member.RoleNone, member.RoleControlPlane, member.RoleWorker}, role) {
		r.report(path, "%q is no role: controlplane and worker are", short(s))
		return member.RoleNone
	}
	return role
}

// each reads the items of a list at path[0], path[1]...
func each[T any](r reading, path string, in []string, read func(path, s string) T) []T {
	if len(in) > rosterFacts {
		r.report(path, "%d items, at most %d are allowed", len(in), rosterFacts)
		return nil
	}
	var out []T
	for i, s := range in {
		out = append(out, read(fmt.Sprintf("%s[%d]", path, i), s))
	}
	return out
}
