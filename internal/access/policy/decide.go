// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// Decide answers a request by the rules of all policies together: denied if a deny rule matches,
// else allowed if an allow rule does, else denied. The order of rules and of policies does not
// matter. It allocates nothing.
//
// Unknown facts fail closed: a deny rule with callers, sources or users matches an unknown one, an
// allow rule does not. For a name whose address is unknown the verdict is a refusal if the name
// alone decides it, and otherwise Open.
//
// Special addresses (loopback, link-local, metadata services and the like) and the dialler's own
// listeners need an allow rule that names them; a wide range or a name does not open them.
func Decide(q Request, policies ...*Policy) Verdict {
	if q.Flow == "" {
		q.Flow = FlowDial
	}
	d := decision{q: q, addr: q.Addr.Unmap().WithZone("")}
	v := Verdict{name: q.Name, at: netip.AddrPortFrom(d.addr, q.Port), caller: q.Caller}
	if q.Flow != FlowDial && q.Flow != FlowRoute {
		for _, p := range policies {
			if p != nil {
				v.rules += len(p.rules)
				d.look(p.shared)
				d.look(p.cluster[q.Cluster])
			}
		}
		if q.Flow == FlowBack {
			return d.decideBack(v)
		}
		return d.decideEdge(v, policies)
	}
	if q.Port == 0 || !d.addr.IsValid() && q.Name == "" {
		v.kind = kindNoDestination
		return v
	}
	agent := false
	for _, p := range policies {
		if p != nil {
			v.rules += len(p.rules)
			agent = agent || p.texts != nil
		}
	}
	if v.rules == 0 {
		if v.kind = kindNoRules; agent {
			v.kind = kindNoAllow
		}
		return v
	}
	if d.addr.IsValid() {
		d.special, d.inner = classify(d.addr), embedded(d.addr)
		d.owner, d.own = q.at(d.addr)
		for _, a := range d.inner {
			if !d.own {
				d.owner, d.own = q.at(a)
			}
		}
	}
	for _, p := range policies {
		if p != nil {
			d.look(p.shared)
			d.look(p.cluster[q.Cluster])
		}
	}
	switch {
	case d.deny.rule != nil:
		v = v.by(kindDenied, d.deny.rule)
	case !d.addr.IsValid():
		if v.Open = d.allow.rule != nil || d.mayAllow; v.Open {
			v.kind = kindOpen
		}
	case d.allow.rule != nil:
		v = v.by(kindAllowed, d.allow.rule)
		v.Allow = true
	case d.own:
		v.kind, v.own = kindOwn, d.owner.Of
	case d.special.what != "":
		v.kind, v.special = kindSpecial, d.special
	case agent:
		v.kind = kindNotInList
	}
	return v
}

// decision is a decision in progress.
type decision struct {
	q           Request
	addr        netip.Addr   // invalid: unknown
	inner       []netip.Addr // IPv4 addresses embedded in an IPv6 one
	special     special
	own         bool
	owner       Listener
	deny, allow found
	mayAllow    bool
}

// found is the rule that a verdict names: the one with the most exact destination, the first by
// name among equals, so that the result is deterministic.
type found struct {
	rule  *rule
	exact int
}

func (f *found) take(r *rule, exact int) {
	if f.rule == nil || exact > f.exact || exact == f.exact && r.name < f.rule.name {
		f.rule, f.exact = r, exact
	}
}

// How exactly a destination is named, in addition to the length of a range (0 to 128).
const (
	exactAny    = -1
	exactSuffix = 200 // plus the length of the suffix
	exactName   = 1000
)

func (d *decision) look(s *set) {
	if s == nil {
		return
	}
	d.each(s.any, exactAny, netip.Prefix{})
	if d.q.Name != "" && len(s.names) > 0 {
		d.each(s.names[d.q.Name], exactName, netip.Prefix{})
		for rest := d.q.Name; ; {
			dot := strings.IndexByte(rest, '.')
			if dot < 0 {
				break
			}
			d.each(s.names[rest[dot:]], exactSuffix+len(rest)-dot, netip.Prefix{})
			rest = rest[dot+1:]
		}
	}
	if !d.addr.IsValid() {
		d.guess(s)
		return
	}
	for p, g := range s.ranges.Supernets(netip.PrefixFrom(d.addr, d.addr.BitLen())) {
		d.each(s.groups[g], p.Bits()+128-d.addr.BitLen(), p)
	}
	for _, inner := range d.inner { // a gateway on the path would deliver to these
		for p, g := range s.ranges.Supernets(netip.PrefixFrom(inner, inner.BitLen())) {
			d.refuse(s.groups[g], p.Bits()+128-inner.BitLen())
		}
	}
}

// refuse applies the deny rules that match.
func (d *decision) refuse(entries []entry, exact int) {
	for _, e := range entries {
		if e.rule.deny && e.ports.match(d.q.Port) && e.rule.appliesTo(&d.q) {
			d.deny.take(e.rule, exact)
		}
	}
}

// each applies the entries that match; p is the range under which they were found, if any.
func (d *decision) each(entries []entry, exact int, p netip.Prefix) {
	for _, e := range entries {
		if !e.ports.match(d.q.Port) || !e.rule.appliesTo(&d.q) {
			continue
		}
		if e.rule.deny {
			d.deny.take(e.rule, exact)
		} else if d.opens(e, p) {
			d.allow.take(e.rule, exact)
		}
	}
}

// opens reports whether an allow rule is narrow enough for a special address or an own listener.
func (d *decision) opens(e entry, p netip.Prefix) bool {
	if d.special.what != "" && (!p.IsValid() || p.Bits() < d.special.within.Bits() ||
		!d.special.within.Contains(p.Addr())) {
		return false
	}
	return !d.own || p.IsValid() && p.IsSingleIP() && slices.Contains(e.ports, portRange{d.q.Port, d.q.Port})
}

// guess looks for a rule that could allow the address of a name by its range.
func (d *decision) guess(s *set) {
	if d.mayAllow {
		return
	}
	for _, e := range s.byRanges {
		if !e.rule.deny && e.ports.match(d.q.Port) && e.rule.appliesTo(&d.q) {
			d.mayAllow = true
			return
		}
	}
}

// appliesTo reports whether a rule applies to the caller of a request.
func (r *rule) appliesTo(q *Request) bool {
	if !r.source.any() {
		a := q.Source.Unmap().WithZone("")
		if !a.IsValid() {
			if !r.deny {
				return false
			}
		} else if !r.source.contains(a) {
			return false
		}
	}
	if r.uid != nil {
		if !q.Local {
			if !r.deny {
				return false
			}
		} else if !slices.Contains(r.uid, q.UID) {
			return false
		}
	}
	if r.caller != nil && q.Caller == "" {
		if !r.deny {
			return false
		}
	} else if !r.caller.match(q.Caller) {
		return false
	}
	return r.inFlow(q.Flow) && r.cluster.match(q.Cluster) && r.egress.match(q.Egress)
}
