// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Two nodes that could not see each other may have one address. Who had it first nobody can
// prove: what a member says of its own past it may have made up, and names and ids may be
// tried until they fit. What a node does know is where it was itself. A service keeps a
// member's word for a lease, so that whoever comes to a service at which this node was all
// the while has seen it, and should not have taken its address; it is given nothing. Only
// who comes by a service from which this node was away for longer may be in the right, and
// then the smaller id has the address:
//
//	I was away from          the other, if honest       so
//	---------------          ----------------------     ----------------------------------------
//	no service that tells    was away from all          I keep it, the other gives it up
//	of the other
//	some of them             was away as well           the greater id gives it up at once
//	all of them              was not: it keeps it       the smaller id waits for a minute whether
//	                                                    the other one does, and gives it up then
//
// All others hold on to whom they knew first until one of the two has moved.

// claim is another member that says an address of this node is its own.
type claim struct {
	id, node string
	addr     netip.Addr
	services []string // that tell of it; none: what is said of it is not its own word
}

// claimsOf are the claims on this node's addresses. The roster gives them to this node, and
// tells of each other claim as a conflict.
func claimsOf(r roster.Result, self string) []claim {
	var out []claim
	add := func(c roster.Claimant, value string) {
		a, err := netip.ParseAddr(value)
		if err != nil || c.Tier != roster.TierNative || c.ID == self {
			return
		}
		one := claim{id: c.ID, addr: a}
		for _, s := range c.Sources {
			if s.Tier == roster.TierNative && !s.Cached {
				one.services = append(one.services, s.Name)
			}
		}
		for i := range r.Members {
			if slices.ContainsFunc(r.Members[i].Entries, func(e roster.Entry) bool { return e.ID == c.ID }) {
				one.node = r.Members[i].Node
			}
		}
		out = append(out, one)
	}
	for _, c := range r.Conflicts {
		if c.Field != roster.FieldOverlay4 && c.Field != roster.FieldOverlay6 {
			continue
		}
		switch self {
		case c.Kept.ID:
			add(c.Refused, c.Value)
		case c.Refused.ID:
			add(c.Kept, c.Value)
		}
	}
	for i := range r.Members { // before this node has said what it has
		m := &r.Members[i]
		c := roster.Claimant{ID: m.ID, Tier: m.Tier}
		for _, e := range m.Entries {
			c.Sources = append(c.Sources, e.Source)
		}
		for _, a := range []netip.Addr{m.Overlay6, m.Overlay4} {
			if a.IsValid() {
				add(c, a.String())
			}
		}
	}
	return out
}

// witness is what a node knows of its own presence.
type witness struct {
	// Attended is when a service told of members last.
	Attended map[string]time.Time `json:"attended,omitempty"`
	// Absent is until when a claim that a service tells of may be of one that could not see
	// this node there.
	Absent map[string]time.Time `json:"absent,omitempty"`
}

func (w witness) clone() witness { return witness{maps.Clone(w.Attended), maps.Clone(w.Absent)} }

// attend is after a look at which services tell of members now. Who was away from one for a
// lease or more was no longer listed there.
func (o overlay) attend(services []string, now time.Time, lease time.Duration) overlay {
	next := o
	next.witness = witness{Attended: map[string]time.Time{}, Absent: map[string]time.Time{}}
	maps.Copy(next.Attended, o.Attended)
	for s, until := range o.Absent {
		if now.Before(until) && until.Sub(now) <= lease {
			next.Absent[s] = until
		}
	}
	now = now.Round(0)
	for _, s := range services {
		last, known := o.Attended[s]
		if !known {
			last = o.Since // it was chosen without this one
		}
		if !o.Since.IsZero() && now.Sub(last) >= lease {
			next.Absent[s] = now.Add(lease)
		}
		next.Attended[s] = now
	}
	for s, last := range next.Attended { // a service that is no more
		if now.Sub(last) > limit.MeshClosed && !slices.Contains(services, s) && len(next.Attended) > limit.MeshServers {
			delete(next.Attended, s)
		}
	}
	return next
}

// due says whether what is on disk is too old to tell a restart from an absence.
func (w witness) due(kept witness, lease time.Duration) bool {
	if len(kept.Attended) != len(w.Attended) || !maps.EqualFunc(w.Absent, kept.Absent, time.Time.Equal) {
		return true
	}
	for s, last := range w.Attended {
		if last.Sub(kept.Attended[s]).Abs() >= lease/8 {
			return true
		}
	}
	return false
}

// disputed is since when each claim on an address of this node stands.
func (o overlay) disputed(claims []claim, now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for _, c := range claims {
		if c.addr != o.Six && c.addr != o.Four || c.node == o.Node && c.node != "" {
			continue
		}
		key := c.id + " " + c.addr.String()
		if out[key] = now; !o.disputes[key].IsZero() {
			out[key] = o.disputes[key]
		}
	}
	return out
}

// loses says to whom this node gives an address up.
func (o overlay) loses(c choice, a netip.Addr, now time.Time) (to claim, lost bool) {
	for _, one := range c.claims {
		if one.addr == a && (one.node == "" || one.node != o.Node) && o.yields(one, c, now) {
			return one, true
		}
	}
	return claim{}, false
}

// yields decides about one claim on an address that this node has.
func (o overlay) yields(other claim, c choice, now time.Time) bool {
	smaller := strings.Compare(other.id, c.id) < 0
	if o.Since.IsZero() || now.Sub(o.Since).Abs() < c.young { // both have chosen without knowing of each other
		return smaller
	}
	away := 0
	for _, s := range other.services {
		if now.Before(o.Absent[s]) {
			away++
		}
	}
	since := o.disputes[other.id+" "+other.addr.String()]
	waited := !since.IsZero() && now.Sub(since) >= limit.MeshDispute
	return away > 0 && (smaller || waited && away == len(other.services))
}

// gave is an address that was given up.
type gave struct {
	Address netip.Addr `json:"address"`
	Now     netip.Addr `json:"now,omitzero"`
	Node    string     `json:"node,omitempty"`
	ID      string     `json:"id"`
	At      time.Time  `json:"at"`
}

func (g *gave) fault() *fault.Fault {
	return fault.Newf(fault.CodeOverlay, "this node has given up the overlay address %s", g.Address).
		Whyf("%s (member %s) has it too: one of them could not be seen by the other for longer than a lease; this node has %s now", g.Node, g.ID, g.Now).
		Hint("correct where the old address is written down; announce.overlay4 and announce.overlay6 fix addresses")
}

// tellGiven logs other addresses than before.
func (m *Mesh) tellGiven(before *gave) {
	o := m.overlayNow()
	if o.Gave != nil && o.Gave != before {
		f := o.Gave.fault()
		m.log.Warn("this node takes another overlay address", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error(), "overlay6", o.Six, "overlay4", o.Four)
		return
	}
	m.log.Warn("this node takes other overlay addresses", "overlay6", o.Six, "overlay4", o.Four)
}
