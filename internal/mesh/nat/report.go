// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Text is the report for people, one fact per line.
func (r Report) Text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("UDP", "%s", r.udpText())
	line("IPv4", "%s", r.IPv4.text("IPv4"))
	line("IPv6", "%s", r.IPv6.text("IPv6"))
	line("mapping", "%s", r.variesText())
	line("hairpin", "%s", r.hairpinText())
	line("port mapping", "%s", r.PortMapping.text())
	line("CGNAT", "%s", r.cgnatText())
	line("direct paths", "%s", r.Outlook())
	for _, s := range r.Servers {
		what := s.Why
		if s.Mapped.IsValid() {
			what = fmt.Sprintf("sees %v, %v", s.Mapped, rounded(s.RTT))
		}
		line("STUN", "%s", strings.TrimSpace(s.Server.Name+" "+s.Server.Addr.String())+": "+what)
	}
	for _, l := range r.Relays {
		what := l.Why
		if what == "" {
			what = rounded(l.Latency).String()
		}
		line("relay", "%s: %s", l.Name, what)
	}
	return b.String()
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func (r Report) udpText() string {
	switch {
	case r.UDP == Yes:
		return "works"
	case r.UDP == Unknown && len(r.Servers) == 0:
		return "not known: there is no STUN server to ask; hubs and discovery services are some"
	case r.UDP == Unknown:
		return "not known"
	case slices.ContainsFunc(r.Relays, func(l Relay) bool { return l.Why == "" }):
		return "blocked: no STUN server answers, and TCP to a hub works"
	}
	return "no STUN server answers: it is blocked, or there is no way to the internet"
}

func (f Family) text(name string) string {
	switch {
	case f.UDP == Yes && f.NAT == No:
		return "works, without NAT, as " + joined(f.Mapped) + f.filterText("a firewall lets in")
	case f.UDP == Yes:
		return "works, behind NAT, seen as " + joined(f.Mapped) + f.filterText("the NAT lets in")
	case f.UDP == No:
		return "no answer over " + name
	case f.Address == No:
		return "no address"
	}
	return "has an address, and no STUN server of " + name + " to ask"
}

func (f Family) filterText(who string) string {
	switch f.Filtering {
	case AddressPortDependent:
		return "; " + who + " only the endpoints that were written to (" + string(f.Filtering) + " filtering)"
	case AtMostAddress:
		return "; other ports of an address that was written to come in (" + string(f.Filtering) + " filtering)"
	}
	return ""
}

func joined(list []netip.AddrPort) string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

func (r Report) hairpinText() string {
	switch {
	case r.UDP == Yes && r.IPv4.NAT != Yes && r.IPv6.NAT != Yes:
		return "not needed without NAT"
	case r.Hairpin == Yes:
		return "yes: nodes behind this NAT reach each other by its outer address"
	case r.Hairpin == No:
		return "no: nodes behind this NAT reach each other by their own addresses only"
	}
	return "not known"
}

func (r Report) variesText() string {
	var parts []string
	for _, f := range []struct {
		name string
		Family
	}{{"IPv4", r.IPv4}, {"IPv6", r.IPv6}} {
		switch f.Mapping {
		case None:
			parts = append(parts, f.name+" is not translated")
		case NotKnown:
			if f.UDP == Yes {
				parts = append(parts, f.name+" is not known: servers at two addresses must answer")
			}
		case EndpointIndependent:
			parts = append(parts, f.name+" is the same for all destinations (endpoint-independent)")
		default:
			parts = append(parts, f.name+" is another one for each destination ("+string(f.Mapping)+", \"symmetric\")")
		}
	}
	if len(parts) == 0 {
		return "not known"
	}
	return strings.Join(parts, "; ")
}

func (p *PortMapping) text() string {
	if p == nil {
		return "not asked for"
	}
	var why []string
	for _, t := range p.Tried {
		if t.Why != "" {
			why = append(why, t.Method+": "+t.Why)
		}
	}
	tail := strings.Join(why, "; ")
	switch {
	case p.Method != "" && tail != "":
		return fmt.Sprintf("%s gives %v for %v (%s)", p.Method, p.External, p.Lifetime, tail)
	case p.Method != "":
		return fmt.Sprintf("%s gives %v for %v", p.Method, p.External, p.Lifetime)
	case tail != "":
		return "none (" + tail + ")"
	}
	return "none"
}

func (r Report) cgnatText() string {
	switch r.CGNAT {
	case Yes:
		return "suspected: " + r.CGNATWhy
	case No:
		return "no: " + r.CGNATWhy
	}
	return "not known"
}

// Outlook says to which peers direct paths will be possible.
func (r Report) Outlook() string {
	mapped := r.PortMapping != nil && r.PortMapping.Method != "" && r.CGNAT != Yes
	switch {
	case r.UDP == No:
		return "none: all traffic goes through a relay"
	case r.UDP == Unknown:
		return "not known"
	case mapped:
		return "with every node that has UDP: the router maps a port"
	case r.IPv4.open() || r.IPv4.UDP != Yes && r.IPv6.open():
		return "with every node that has UDP and the same IP version"
	case r.IPv4.UDP == Yes && varies(r.IPv4.Mapping) == Yes:
		return "with those who let in every port of an address that they wrote to, and over IPv6; " +
			"not with usual home routers, nor with NATs like this one"
	case r.IPv4.UDP == Yes && varies(r.IPv4.Mapping) == No:
		return "with everybody but those whose mapping is another one for each destination"
	case r.IPv4.UDP == Yes:
		return "not known"
	}
	return "over IPv6 only"
}

// open reports whether packets come in from every port of an address to which one was sent, at an
// endpoint that others can know: so even from a NAT with another port for each destination.
func (f Family) open() bool {
	return f.UDP == Yes && varies(f.Mapping) == No && f.Filtering == AtMostAddress
}

type reportJSON struct {
	UDP         Tri              `json:"udp"`
	IPv4        Family           `json:"ipv4"`
	IPv6        Family           `json:"ipv6"`
	Varies      Tri              `json:"mappingVariesByDestination"`
	Hairpin     Tri              `json:"hairpin"`
	PortMapping *portMappingJSON `json:"portMapping,omitempty"`
	CGNAT       cgnatJSON        `json:"cgnat"`
	Outlook     string           `json:"directPaths"`
	Servers     []serverJSON     `json:"servers"`
	Relays      []relayJSON      `json:"relays"`
}

type portMappingJSON struct {
	PortMapping
	Seconds int64 `json:"lifetimeSeconds,omitempty"`
}

type cgnatJSON struct {
	Suspected Tri    `json:"suspected"`
	Why       string `json:"why,omitempty"`
}

type serverJSON struct {
	Name   string         `json:"name,omitempty"`
	Addr   netip.AddrPort `json:"address"`
	Mapped netip.AddrPort `json:"mapped,omitzero"`
	Millis *float64       `json:"latencyMillis,omitempty"`
	Why    string         `json:"why,omitempty"`
}

type relayJSON struct {
	Name   string   `json:"name"`
	Millis *float64 `json:"latencyMillis,omitempty"`
	Why    string   `json:"why,omitempty"`
}

func millis(d time.Duration) *float64 {
	ms := float64(rounded(d).Microseconds()) / 1000
	return &ms
}

// MarshalJSON is the report for programs.
func (r Report) MarshalJSON() ([]byte, error) {
	out := reportJSON{
		UDP: r.UDP, IPv4: r.IPv4, IPv6: r.IPv6, Varies: r.Varies, Hairpin: r.Hairpin, CGNAT: cgnatJSON{r.CGNAT, r.CGNATWhy},
		Outlook: r.Outlook(), Servers: []serverJSON{}, Relays: []relayJSON{},
	}
	if r.PortMapping != nil {
		out.PortMapping = &portMappingJSON{*r.PortMapping, int64(r.PortMapping.Lifetime / time.Second)}
	}
	for _, s := range r.Servers {
		j := serverJSON{Name: s.Server.Name, Addr: s.Server.Addr, Mapped: s.Mapped, Why: s.Why}
		if s.Mapped.IsValid() {
			j.Millis = millis(s.RTT)
		}
		out.Servers = append(out.Servers, j)
	}
	for _, l := range r.Relays {
		j := relayJSON{Name: l.Name, Why: l.Why}
		if l.Why == "" {
			j.Millis = millis(l.Latency)
		}
		out.Relays = append(out.Relays, j)
	}
	return json.Marshal(out)
}
