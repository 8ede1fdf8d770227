// SPDX-License-Identifier: Apache-2.0

// Package policy decides who may reach what. Rules are compiled once; a decision
// is a pure function of a request and names the rule that made it. It does not
// resolve names and does not dial.
package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// Policy is compiled from one source and immutable. The zero value and nil have no rules.
type Policy struct {
	rules   []*rule
	texts   []string        // the entries of an agent's list
	shared  *set            // rules for any cluster, or with a star
	cluster map[string]*set // rules that name clusters

	guards   guards
	shadowed map[*rule]bool // allow rules that a deny rule covers
	digest   Digest
}

// Size is the number of rules.
func (p *Policy) Size() int {
	if p == nil {
		return 0
	}
	return len(p.rules)
}

// rule is the part of a Rule that a decision needs, without its destinations.
type rule struct {
	name, group                   string
	deny                          bool
	back                          bool    // it is about FlowBack
	edge                          flowSet // of flow
	cluster, caller, egress, flow patterns
	source                        sources
	uid                           []uint32 // nil: any
	written                       *Rule    // nil in an agent's list, where each entry is one
}

// set indexes rules by destination.
type set struct {
	ranges   bart.Table[group]
	groups   [][]entry
	names    map[string][]entry // exact names, and suffixes with a leading dot
	any      []entry
	byRanges []entry // all entries in ranges, those of a list once
}

// entry is a rule with the ports of one of its destinations.
type entry struct {
	rule  *rule
	ports ports
}

// group is the index of the entries that share a range.
type group uint32

// sources are the ranges of callers; nil: any.
type sources struct {
	few  []netip.Prefix
	many *bart.Lite
}

func (s sources) any() bool { return s.few == nil && s.many == nil }

func (s sources) contains(a netip.Addr) bool {
	if s.many != nil {
		return s.many.Lookup(a)
	}
	return slices.ContainsFunc(s.few, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Request is one question: may this caller reach that destination?
type Request struct {
	Cluster string
	Caller  string // unix:<cluster>/<protocol> or SPIFFE URI; empty: unknown
	Local   bool   // the caller came over a unix socket, and UID is known
	UID     uint32 // of the caller's process
	Egress  string // type of the egress selection, if known
	Flow    string // empty: FlowDial
	// Protected says that in a flow of the edge nothing passes that no rule allows, whatever rules there are.
	Protected bool
	Source    netip.Addr // the caller's address; invalid: unknown
	Name      string     // as asked, normalised by ParseTarget; empty if an address was asked for
	Addr      netip.Addr // invalid: the name is not resolved yet
	Port      uint16
	Own       []Listener // listeners of the dialler and of the hub
}

// Listener is one of the hub's or the agent's own listeners. Only a rule with exactly its address
// and port opens it.
type Listener struct {
	At netip.AddrPort
	Of string // whose it is, such as ListenerOfAgent
}

// The owners of a Listener.
const (
	ListenerOfAgent = "the agent's own listener"
	ListenerOfHub   = "a listener of the hub"
)

// at finds the listener that a request would reach. One at an unspecified address answers on every
// address of 127.0.0.0/8, not only on those that the machine has.
func (q *Request) at(addr netip.Addr) (Listener, bool) {
	for _, o := range q.Own {
		if a := o.At.Addr().Unmap(); o.At.Port() == q.Port && (a == addr || a.IsUnspecified() && addr.IsLoopback()) {
			return o, true
		}
	}
	return Listener{}, false
}

// MeetsOwn reports whether the request's address, or an IPv4 address embedded in it, is a Listener
// in Own.
func (q Request) MeetsOwn() bool {
	addr := q.Addr.Unmap().WithZone("")
	if !addr.IsValid() || len(q.Own) == 0 {
		return false
	}
	if _, own := q.at(addr); own {
		return true
	}
	return slices.ContainsFunc(embedded(addr), func(a netip.Addr) bool { _, own := q.at(a); return own })
}

// Verdict is the answer.
type Verdict struct {
	Allow bool
	Open  bool   // not allowed yet: decide again with the resolved address
	Rule  string // the name of the rule that decided, empty if none did
	Group string // of that rule

	kind    kind
	name    string
	at      netip.AddrPort
	caller  string
	cluster string // of a flow of the edge
	flow    string // of the edge
	source  netip.Addr
	special special
	own     string // owner of the listener
	rules   int
}

// kind is the reason of a verdict.
type kind uint8

const (
	kindNone kind = iota // no rule allows it
	kindNoRules
	kindNoAllow // an agent without a list
	kindNotInList
	kindNoDestination
	kindOwn
	kindSpecial
	kindDenied
	kindAllowed
	kindOpen
	kindUnprotected
)

// Why returns the reason in one sentence.
func (v Verdict) Why() string {
	if v.flow != "" {
		return v.whyEdge()
	}
	what := describe(v.name, v.at)
	switch v.kind {
	case kindNoDestination:
		return "the destination has no address or no port"
	case kindNoRules:
		return "there is no rule, so nothing is allowed"
	case kindNoAllow:
		return "no destination is allowed: the agent was started without --allow"
	case kindNotInList:
		return fmt.Sprintf("%s is in none of the %d allowed ranges", what, v.rules)
	case kindOwn:
		return fmt.Sprintf("%s is %s; only a rule with exactly this address and port opens it", what, v.own)
	case kindSpecial:
		return fmt.Sprintf("%s is %s; only a rule inside %s opens it", what, v.special.what, v.special.within)
	case kindDenied:
		return fmt.Sprintf("%s is denied by rule %q", what, v.Rule)
	case kindAllowed:
		return fmt.Sprintf("allowed by %q", v.Rule)
	case kindOpen:
		return fmt.Sprintf("the address of %s decides", v.name)
	}
	if v.caller == "" {
		return fmt.Sprintf("no rule allows %s", what)
	}
	return fmt.Sprintf("no rule allows %s to reach %s", v.caller, what)
}

func describe(name string, at netip.AddrPort) string {
	switch {
	case name == "":
		return at.String()
	case at.Port() == 0:
		return "port " + name
	case !at.Addr().IsValid():
		return fmt.Sprintf("%s port %d", name, at.Port())
	}
	return fmt.Sprintf("%s (%s)", name, at)
}
