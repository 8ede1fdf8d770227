// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Kind is how an endpoint is known, for people: announced endpoints have no
// kind of their own for a router's.
type Kind string

// The kinds.
const (
	Static     Kind = "static"
	Own        Kind = "own"
	Mapped     Kind = "mapped"  // as a STUN server sees it
	PortMapped Kind = "portmap" // the router hands it on
)

// announced is the kind that other members learn.
func (k Kind) announced() member.Kind {
	switch k {
	case Static:
		return member.KindStatic
	case Own:
		return member.KindOwn
	}
	return member.KindMapped
}

// Endpoint is where this node can be reached, as far as it knows.
type Endpoint struct {
	At   netip.AddrPort `json:"at"`
	Kind Kind           `json:"kind"`
}

// Refusal is an address or endpoint that is not announced, and why.
type Refusal struct {
	At        string `json:"at"`
	Interface string `json:"interface,omitempty"`
	Why       string `json:"why"`
}

// sight is all that a list comes of.
type sight struct {
	port    uint16
	static  []netip.AddrPort
	own     []netip.Addr
	mapped  []nat.Mapped
	router  netip.AddrPort // not valid: it maps nothing
	overlay []netip.Prefix
	has     func(netip.Addr) bool // the socket has the family
}

// list is in the order of the protocol: static, own, mapped by a NAT, mapped by the
// router. What is mapped is never cut off by what is not: behind a NAT it is all that
// counts. That of a NAT which has another one for each destination is in it: nobody gets
// in by its port, but those whose filter goes by addresses open it by a packet to that one.
func (s sight) list() (out []Endpoint, refused []Refusal) {
	var first, last []Endpoint
	take := func(to *[]Endpoint, at netip.AddrPort, kind Kind) {
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		same := func(e Endpoint) bool { return e.At == at }
		if slices.ContainsFunc(first, same) || slices.ContainsFunc(last, same) {
			return
		}
		if why := useless(at, s.overlay); why != "" {
			refused = append(refused, Refusal{At: at.String(), Why: string(kind) + ": " + why})
			return
		}
		*to = append(*to, Endpoint{at, kind})
	}
	for _, at := range s.static {
		take(&first, at, Static)
	}
	for _, a := range s.own[:min(len(s.own), limit.LocalAddresses)] {
		if s.has(a) {
			take(&first, netip.AddrPortFrom(a, s.port), Own)
		}
	}
	mapped := make([]netip.AddrPort, 0, len(s.mapped))
	for _, m := range s.mapped {
		mapped = append(mapped, m.Addr)
	}
	slices.SortFunc(mapped, netip.AddrPort.Compare) // the order in which they were seen is no change
	for _, at := range mapped {
		take(&last, at, Mapped)
	}
	if s.router.IsValid() {
		take(&last, s.router, PortMapped)
	}
	last = last[:min(len(last), limit.DiscoveryEndpoints)]
	first = first[:min(len(first), limit.DiscoveryEndpoints-len(last))]
	return slices.Concat(first, last), refused
}

// useless returns why others cannot reach an endpoint, or "".
func useless(at netip.AddrPort, overlay []netip.Prefix) string {
	switch a := at.Addr(); {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "no address of a machine"
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		return "link-local: of no use without the link"
	case a.IsLoopback():
		return "loopback"
	case at.Port() == 0:
		return "no port"
	case slices.ContainsFunc(overlay, func(p netip.Prefix) bool { return p.Contains(a) }):
		return "of the mesh itself"
	}
	return ""
}

// Server is a STUN server as it is configured or announced.
type Server struct {
	Name     string `json:"name"`    // of the hub, service or setting that it comes from
	HostPort string `json:"address"` // a name or an address, and a port
}

// split reads the text of a server: an address or a name, and the port.
func (s Server) split() (host string, addr netip.Addr, port uint16, why string) {
	host, text, err := net.SplitHostPort(s.HostPort)
	if err != nil || host == "" {
		return "", addr, 0, "it is not HOST:PORT"
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", addr, 0, "the port is none from 1 to 65535"
	}
	addr, err = netip.ParseAddr(host)
	if err != nil {
		return host, netip.Addr{}, uint16(n), ""
	}
	return host, addr.Unmap(), uint16(n), ""
}

// found is what a name means.
type found struct {
	addrs   []netip.Addr // the last that were known
	why     string       // the last try failed
	failing time.Time    // since when
}

// arrange makes the list of servers that are asked: the first address of each family of
// each server, then the second ones, so that a name with many addresses crowds out none.
// Public addresses come first: a server on the same side of the NAT sees nothing of it.
func arrange(texts []Server, names map[string]found, ok func(netip.AddrPort) bool) []nat.Server {
	type row struct {
		name   string
		v4, v6 []netip.AddrPort
	}
	var rows []row
	longest := 0
	for _, t := range texts {
		host, addr, port, why := t.split()
		if why != "" {
			continue
		}
		addrs := []netip.Addr{addr}
		if !addr.IsValid() {
			addrs = names[host].addrs
		}
		r := row{name: t.Name}
		for _, a := range addrs {
			at := netip.AddrPortFrom(a.Unmap(), port)
			switch {
			case !ok(at):
			case at.Addr().Is4():
				r.v4 = append(r.v4, at)
			default:
				r.v6 = append(r.v6, at)
			}
		}
		longest = max(longest, len(r.v4), len(r.v6))
		rows = append(rows, r)
	}
	out := []nat.Server{} // not nil: an empty list is one
	for i := range longest {
		for _, r := range rows {
			for _, list := range [][]netip.AddrPort{r.v4, r.v6} {
				same := func(s nat.Server) bool { return i < len(list) && s.Addr == list[i] }
				if i < len(list) && len(out) < limit.STUNServers && !slices.ContainsFunc(out, same) {
					out = append(out, nat.Server{Name: r.name, Addr: list[i]})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b nat.Server) int { return inner(a) - inner(b) })
	return out
}

func inner(s nat.Server) int {
	if nat.IsPublic(s.Addr.Addr()) {
		return 0
	}
	return 1
}

// gathering holds back what is new of the list for a moment, so that what comes together
// is announced once, and announces no more often than others can bear.
type gathering struct {
	told []Endpoint
	last time.Time // when it was announced
	due  time.Time // when what is new will be; zero: nothing is
}

// take gets the present list, and reports whether it is to be announced now.
func (g *gathering) take(list []Endpoint, now time.Time) (tell bool) {
	if slices.Equal(list, g.told) {
		g.due = time.Time{}
		return false
	}
	if g.due.IsZero() {
		g.due = now.Add(endpointSettle)
		if next := g.last.Add(endpointApart); next.After(g.due) {
			g.due = next
		}
	}
	if now.Before(g.due) {
		return false
	}
	g.told, g.last, g.due = list, now, time.Time{}
	return true
}
