// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Way is how a packet that this machine sends to an address goes.
type Way struct {
	Address netip.Addr
	Set     string     // that has it; empty: none
	Range   plan.Range // of the set
	Line    plan.Line  // that marked it
	Mark    uint32
	Rule    plan.Rule // that took it, if its mark is not 0
	Route   plan.Route
	Routed  bool // Route says how; else it is not ours
	Peer    Peer
	ToPeer  bool     // Peer gets it
	Local   bool     // the address is this node's own in the mesh: whatever else is said, it goes nowhere
	Why     []string // notes about the address
}

// Explain says which set, mark, rule, table and peer a new connection of this machine
// to an address takes.
func Explain(s plan.State, peers Peers, to netip.Addr) Way {
	w := Way{Address: to.Unmap().WithZone("")}
	p := plan.Packet{Dst: w.Address}
	for _, t := range s.Tables {
		v := t.Walk("output", &p)
		for _, term := range v.Line {
			if name, ok := strings.CutPrefix(term.Arg, "@"); ok {
				w.take(t, name)
			}
		}
		if p.Mark != 0 {
			w.Line = v.Line
		}
		for _, name := range []string{setPeers, setDown, setOwn} {
			if w.Set == "" {
				w.take(t, of(name, plan.FamilyOf(w.Address)))
			}
		}
	}
	w.Mark = p.Mark
	w.Rule, w.Route, w.Routed = s.Lookup(p, mainTable)
	w.Peer, w.ToPeer = peers.Of(w.Address)
	// The kernel's local table comes before all rules. Addresses of other links are in no state
	// of ours.
	w.Local = slices.ContainsFunc(s.Addresses, func(a plan.Address) bool { return a.Prefix.Addr() == w.Address })
	return w
}

func (w *Way) take(t plan.Table, name string) {
	for _, s := range t.Sets {
		if s.Name != name {
			continue
		}
		if r, in := plan.Find(s.Ranges, w.Address); in {
			w.Set, w.Range = name, r
		}
	}
}

// About are notes about an address beside its path: which range with it does not
// count, or is closed, and why. What a present member has is not closed.
func (w Way) About(gone []Closed, problems []Problem) []string {
	to := w.Address
	if w.ToPeer || w.Mark == 0 {
		gone = nil
	}
	var out []string
	for _, p := range problems {
		if len(out) < aboutMost && p.Kind == Refused && p.Range.IsValid() && p.Range.Contains(to) {
			out = append(out, p.String())
		}
	}
	for _, c := range gone {
		in := func(p netip.Prefix) bool { return p.Contains(to) }
		if len(out) < aboutMost && slices.ContainsFunc(c.Ranges, in) && !slices.ContainsFunc(c.Excluded, in) {
			out = append(out, fmt.Sprintf(
				"closed: it was in a range of %s (%s), of which, or of whose key, nothing is heard any more", c.Node, c.ID))
		}
	}
	return out
}

const aboutMost = 8

// String is one line for each step.
func (w Way) String() string {
	var b strings.Builder
	b.WriteString(w.steps())
	for _, why := range w.Why {
		fmt.Fprintln(&b, why)
	}
	return b.String()
}

func (w Way) steps() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if w.Set != "" {
		say("%s is in set %s (%s)", w.Address, w.Set, w.Range)
	} else {
		say("%s is in no set", w.Address)
	}
	if w.Local {
		say("it is this node's own address in the mesh: it does not leave the machine")
		return b.String()
	}
	switch {
	case w.Mark != 0:
		say("mark %#x by output: %s", w.Mark, w.Line)
		say("%s", w.Rule)
	default:
		say("no mark: the main table decides")
	}
	switch {
	case !w.Routed && w.ToPeer:
		say("peer %s (%s) is down, and mesh.bypass is on: it goes in clear, by this machine's own routes",
			w.Peer.Node, w.Peer.ID)
		return b.String()
	case !w.Routed:
		say("no route of the mesh: it goes in clear, by this machine's own routes")
		return b.String()
	case w.Route.Link == "":
		say("%s: it is lost", w.Route)
	default:
		say("%s", w.Route)
	}
	switch {
	case !w.ToPeer:
		say("no peer has it: it is lost in the tunnel")
	case w.Peer.Down:
		say("peer %s (%s), which is down: it waits for it", w.Peer.Node, w.Peer.ID)
	default:
		say("peer %s (%s)", w.Peer.Node, w.Peer.ID)
	}
	return b.String()
}
