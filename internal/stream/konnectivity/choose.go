// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Strategy is a way to choose the agent of a dial.
type Strategy string

// The strategies. The reference names destCIDR in its text and its agents announce ranges,
// but it cannot choose by them.
const (
	ByDefault      Strategy = "default"
	ByDestHost     Strategy = "destHost"
	ByDefaultRoute Strategy = "defaultRoute"
	ByDestCIDR     Strategy = "destCIDR"
)

// ParseStrategies reads a list such as destHost,default.
func ParseStrategies(list string) (out []Strategy, err error) {
	for word := range strings.SplitSeq(list, ",") {
		s := Strategy(strings.TrimSpace(word))
		switch {
		case s == "" || slices.Contains(out, s): // the reference takes that
			continue
		case !slices.Contains([]Strategy{ByDefault, ByDestHost, ByDefaultRoute, ByDestCIDR}, s):
			return nil, fault.Newf(fault.CodeUsage, "there is no proxy strategy %q", word).
				Hint("--proxy-strategies takes default, destHost, destCIDR and defaultRoute")
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.CodeUsage, "--proxy-strategies names none").
			Hint("it takes default, destHost, destCIDR and defaultRoute")
	}
	return out, nil
}

// Identifiers are what an agent says it is near to.
type Identifiers struct {
	Hosts        []string // names and addresses
	Ranges       []netip.Prefix
	DefaultRoute bool
}

// ParseIdentifiers reads what an agent sends, such as host=node1&ipv4=10.0.0.1. Kinds that
// this version does not know are no error, and neither is a range that is none.
func ParseIdentifiers(text string) (Identifiers, error) {
	var out Identifiers
	values, err := url.ParseQuery(text)
	if err != nil {
		return out, fault.New(fault.CodeRequest, "the agent's identifiers cannot be read").
			Hint("write them as host=NAME&ipv4=ADDRESS&cidr=RANGE&default-route=true")
	}
	out.Hosts = slices.Concat(values["ipv4"], values["ipv6"], values["host"])
	for _, c := range values["cidr"] {
		if p, err := netip.ParsePrefix(c); err == nil {
			out.Ranges = append(out.Ranges, p.Masked())
		}
	}
	if n := len(out.Hosts) + len(out.Ranges); n > mostNear {
		return Identifiers{}, fault.New(fault.CodeRequest, "the agent has too many identifiers").
			Whyf("they name %d hosts and ranges, and at most %d are kept", n, mostNear).
			Hint("give the agent wider ranges, or run one agent for each node")
	}
	if is, err := strconv.ParseBool(values.Get("default-route")); err == nil {
		out.DefaultRoute = is
	}
	return out, nil
}

// fits says whether an agent suits a host by a strategy.
func (i Identifiers) fits(s Strategy, host string) bool {
	switch s {
	case ByDefaultRoute:
		return i.DefaultRoute
	case ByDestHost:
		return slices.Contains(i.Hosts, host)
	case ByDestCIDR:
		addr, err := netip.ParseAddr(host)
		return err == nil && slices.ContainsFunc(i.Ranges, func(r netip.Prefix) bool { return r.Contains(addr.Unmap()) })
	}
	return true
}

// serves says whether an agent can be chosen by a strategy for some host.
func (i Identifiers) serves(s Strategy) bool {
	switch s {
	case ByDestHost:
		return len(i.Hosts) > 0
	case ByDestCIDR:
		return len(i.Ranges) > 0
	case ByDefaultRoute:
		return i.DefaultRoute
	}
	return true
}

// tunnelFacts are what a choice knows of a tunnel.
type tunnelFacts struct {
	draining bool
	native   bool // it is a session of ours
	settled  bool // its agent keeps it
	shared   bool // agents with other ids have the same credential
}

// stands says whether t stands for its agent in place of a tunnel that is older. An agent that lost a tunnel has a new
// one while the old one seems to live; but until it is settled a new one may be closed at once, as that of an agent
// that looks for further servers is. Where agents share a credential, each could take the dials of another one so:
// there the older one stays.
func (t tunnelFacts) stands(older tunnelFacts) bool {
	switch {
	case t.draining != older.draining:
		return older.draining
	case t.shared:
		return false
	case t.native != older.native:
		return t.native
	}
	return t.settled
}

// standing is the tunnel of an agent, of those that suit a host, through which it is dialled. They are in the order of
// their arrival.
func standing(all []*tunnel, s Strategy, host string, now time.Time) (chosen *tunnel) {
	var of tunnelFacts
	for _, t := range all {
		if !t.ready.Load() || !t.who.near.fits(s, host) {
			continue
		}
		facts := tunnelFacts{draining: t.draining.Load(), native: t.session != nil,
			settled: t.session != nil || now.Sub(t.since) >= settles, shared: t.shared.Load()}
		if chosen == nil || facts.stands(of) {
			chosen, of = t, facts
		}
	}
	return chosen
}

// chooseLocked picks the tunnel for a host, by the first strategy that has an agent for it. random is below n.
func (a *Agents) chooseLocked(host string, now time.Time, random func(n int) int) *tunnel {
	for _, s := range a.Strategies {
		if best := a.near.find(s, host); len(best) > 0 {
			return standing(a.ids[best[random(len(best))]], s, host, now)
		}
	}
	return nil
}
