// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// known is what is known of an endpoint.
type known struct {
	addr     netip.Addr     // of the machine; not valid: its name is not resolved
	probe    netip.AddrPort // what answers for it, if it has a probe; not valid: its name is not resolved
	link     string         // on which it is; empty: it cannot be a next hop
	why      string         // it cannot be one
	self     bool           // this machine is the endpoint
	answered time.Time      // when it answered last
	since    time.Time      // since when it has, without a longer silence
}

// alive reports whether it may have the route.
func (k known) alive(now time.Time) bool {
	return k.link != "" && !k.answered.IsZero() && now.Sub(k.answered) < silentFor
}

// heard notes an answer.
func (k known) heard(now time.Time) known {
	if !k.alive(now) {
		k.since = now
	}
	k.answered = now
	return k
}

// choose returns the endpoint that has the route, or -1. One that answers keeps it, until one that is preferred has
// answered for a while: a route that goes back and forth would be worse than either.
//
//	order: of preference    had: who has it now, or -1
func choose(all []known, order []int, had int, now time.Time) int {
	first := slices.IndexFunc(order, func(i int) bool { return all[i].alive(now) })
	if first < 0 {
		return -1
	}
	best := order[first]
	if had < 0 || had >= len(all) || !all[had].alive(now) || now.Sub(all[best].since) >= steadyFor {
		return best
	}
	return had
}

// metric is that of the route by an endpoint. That which refuses has a larger one, and counts without it.
const metric = 1

// state is what shall be in the kernel. The machine that is an endpoint itself has the mesh's own routes.
func (c Config) state(all []known, chosen int) plan.State {
	if slices.ContainsFunc(all, func(k known) bool { return k.self }) {
		return plan.State{}
	}
	out := plan.State{
		Routes: []plan.Route{{Table: c.Table, To: c.Range, Metric: plan.Refusing(c.Table)}},
		Rules:  []plan.Rule{{Family: plan.FamilyOf(c.Range.Addr()), Priority: c.Rule, Table: c.Table}},
	}
	if chosen >= 0 {
		k := all[chosen]
		out.Routes = append(out.Routes, plan.Route{Table: c.Table, To: c.Range, Metric: metric, Link: k.link, Via: k.addr})
	}
	return out.Normal()
}
