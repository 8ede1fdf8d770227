// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Status is what is known, for people and programs.
type Status struct {
	Port        uint16      `json:"port"`
	Endpoints   []Endpoint  `json:"endpoints"` // as List
	Servers     []Asked     `json:"servers"`
	Varies      bool        `json:"mappingVariesByDestination"` // of IPv4: a "symmetric" NAT, or two networks
	PortMapping PortMapping `json:"portMapping"`
	Refused     []Refusal   `json:"refused,omitempty"`
	Problems    []Problem   `json:"problems,omitempty"`
}

// Asked is a STUN server.
type Asked struct {
	Name    string         `json:"name,omitempty"`
	Address string         `json:"address"` // HOST:PORT as it was given, where it has no other
	Used    bool           `json:"used"`    // it is asked; others stand by
	Mapped  netip.AddrPort `json:"mapped,omitzero"`
	RTT     float64        `json:"rtt,omitempty"` // seconds
	Answer  time.Time      `json:"answer,omitzero"`
	Failing time.Time      `json:"failingSince,omitzero"`
	Why     string         `json:"why,omitempty"`
}

// PortMapping is what the router does.
type PortMapping struct {
	Wanted   bool           `json:"wanted"`
	Method   string         `json:"method,omitempty"` // nat-pmp or upnp; empty: none
	External netip.AddrPort `json:"external,omitzero"`
	Until    time.Time      `json:"until,omitzero"` // it is renewed before
	Asked    time.Time      `json:"asked,omitzero"` // the last time
	Tried    []nat.Tried    `json:"tried,omitempty"`
}

// Status says what is known.
func (e *Endpoints) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Status{
		Port: e.p.Socket.Port(), Endpoints: slices.Clone(e.told), Varies: e.watch.Varies(true), Servers: []Asked{},
		PortMapping: PortMapping{Wanted: e.keeping, Method: e.mapping.Method, Asked: e.mappedAt,
			Tried: slices.Clone(e.mapping.Tried)},
		Refused: slices.Clone(e.refused),
	}
	if e.mapping.Method != "" {
		out.PortMapping.External, out.PortMapping.Until = e.mapping.External, e.mappedAt.Add(e.mapping.Lifetime)
	}
	for _, s := range e.watch.Servers() {
		a := Asked{Name: s.Name, Address: s.Addr.String(), Used: s.Used, Mapped: s.Mapped, RTT: s.RTT.Seconds(),
			Answer: s.Answer, Failing: s.Failing}
		if !s.Failing.IsZero() {
			a.Why = "no answer"
		}
		out.Servers = append(out.Servers, a)
	}
	out.Servers = append(out.Servers, e.unasked()...)
	for _, p := range e.problems {
		out.Problems = append(out.Problems, p)
	}
	slices.SortFunc(out.Problems, func(a, b Problem) int { return strings.Compare(a.What, b.What) })
	return out
}

// unasked lists the texts of servers of which nothing, or not all, can be asked, and why.
func (e *Endpoints) unasked() (out []Asked) {
	for _, t := range e.texts {
		host, addr, port, why := t.split()
		a := Asked{Name: t.Name, Address: t.HostPort, Why: why}
		f := e.found[host]
		at := netip.AddrPortFrom(addr, port)
		switch {
		case why != "":
		case addr.IsValid() && e.reaches(at):
			continue
		case addr.IsValid():
			a.Why = e.refuses(at)
		case f.why != "":
			a.Why, a.Failing = f.why, f.failing
		case f.addrs == nil:
			a.Why = "not resolved yet"
		case !slices.ContainsFunc(f.addrs, func(x netip.Addr) bool { return e.reaches(netip.AddrPortFrom(x, port)) }):
			a.Why = "no address of it can be asked"
		default:
			continue
		}
		out = append(out, a)
	}
	return out
}
