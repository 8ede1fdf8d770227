// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// Linked is what is known of linked clusters.
type Linked interface{ View() reach.View }

// linked is what a node keeps about linked clusters between two looks.
type linked struct {
	down  map[reach.Name]time.Time // since when packets pass again, after they did not; zero: they do not
	up    map[reach.Name]bool      // nodes with which packets have passed
	fell  map[reach.Name]time.Time // since when they do not, of nodes that are down
	lost  map[lostBy]time.Time     // since when a gateway of the own cluster does not say so any longer; zero: it does
	plan  reach.Plan
	view  reach.View
	alone said
	// doors are gateways, by id: they are watched also while there is no traffic, and have to be known soon to be dead.
	doors map[string]bool
	// together are the other nodes of the own cluster, of a gateway: whether it reaches none of them has to be known soon.
	together map[string]bool
}

// lostBy is a cluster that a gateway does not reach.
type lostBy struct {
	gateway reach.Name
	cluster string
}

// index finds members by the name of their Node, and by their key.
type index struct {
	self   string // the own cluster
	byNode map[string]*member.Facts
	byKey  map[member.Key]*member.Facts
}

func indexOf(self string, members []member.Facts) index {
	x := index{self, map[string]*member.Facts{}, map[member.Key]*member.Facts{}}
	for i := range members {
		m := &members[i]
		if m.Nodename != "" && x.byNode[m.Nodename] == nil {
			x.byNode[m.Nodename] = m
		}
		if !m.Key.IsZero() && x.byKey[m.Key] == nil {
			x.byKey[m.Key] = m
		}
	}
	return x
}

// of is the member that a node of a linked cluster is, or nil: one of the own cluster has the name of its Node, any
// other its key and its name.
func (x index) of(n reach.Node) *member.Facts {
	if n.Cluster == x.self {
		return x.byNode[n.Node]
	}
	if m := x.byKey[n.Key]; m != nil && m.Node == n.String() {
		return m
	}
	return nil
}

// look finds out through which nodes packets pass, and decides with that.
func (l linked) look(v reach.View, members []member.Facts, health map[string]topology.Health, now time.Time) linked {
	next := linked{down: map[reach.Name]time.Time{}, up: map[reach.Name]bool{}, fell: map[reach.Name]time.Time{},
		lost: map[lostBy]time.Time{}, view: v, doors: map[string]bool{}, together: map[string]bool{}}
	next.view.Nodes = slices.Clone(v.Nodes)
	x, gateway := indexOf(v.Self.Cluster, members), isGateway(v)
	for i := range next.view.Nodes {
		n := &next.view.Nodes[i]
		if n.Name == v.Self {
			continue
		}
		m := x.of(*n)
		if m != nil {
			if n.Lost = nil; n.Cluster == v.Self.Cluster {
				n.Lost = m.Lost
			}
			next.doors[m.ID] = n.Gateway
			next.together[m.ID] = gateway && n.Cluster == v.Self.Cluster
		}
		last, known := l.down[n.Name]
		n.Down = m == nil || m.Key.IsZero() || health[m.ID].Down
		if n.Down {
			if next.fell[n.Name] = l.fell[n.Name]; next.fell[n.Name].IsZero() {
				next.fell[n.Name] = now
			}
			n.Fell = now.Sub(next.fell[n.Name]) < linkFell
		}
		next.up[n.Name] = l.up[n.Name] || !n.Down
		n.Idle = m == nil || health[m.ID].Idle || !next.up[n.Name] // it is not known yet whether packets pass
		n.Doubt, n.Alone = m != nil && health[m.ID].Doubt, m != nil && health[m.ID].Alone
		if (n.Down || n.Alone) && l.up[n.Name] {
			next.down[n.Name] = time.Time{}
		} else if last, is := backSince(last, now); !n.Down && known && is {
			n.Recent, next.down[n.Name] = true, last
		}
	}
	next.found(l, now)
	if lost := reach.Lost(next.view); len(lost) > 0 {
		i := slices.IndexFunc(next.view.Nodes, func(n reach.Node) bool { return n.Name == v.Self })
		next.view.Nodes[i].Lost = lost
	}
	next.isAlone(l.alone, now)
	next.plan = reach.Decide(next.view)
	return next
}

// backSince is since when something is again, which is now if it was not at the last look (zero), and whether that is
// not long ago. Looks are rare: the last one at which it was not may be long before it ended.
func backSince(since, now time.Time) (time.Time, bool) {
	if since.IsZero() {
		since = now
	}
	return since, now.Sub(since) < linkSteady
}

func isGateway(v reach.View) bool {
	return slices.ContainsFunc(v.Nodes, func(n reach.Node) bool { return n.Name == v.Self && n.Gateway })
}

// isAlone notes whether this node, a gateway, reaches no other node of its cluster, or did not until a moment ago:
// what is said for too short a time is heard by some nodes only, and both directions have to change at the same time.
func (l *linked) isAlone(before said, now time.Time) {
	switch {
	case reach.Alone(l.view):
		l.alone = said{is: true}
	case before.is && before.until.IsZero():
		l.alone = said{true, now.Add(linkSaid)}
	case before.is && now.Before(before.until):
		l.alone = before
	}
}

// said is what this node says of itself, until a time; zero: it is so.
type said struct {
	is    bool
	until time.Time
}

// found notes which clusters gateways of the own one have lost, and which they have found again not long ago. Nodes of
// these clusters wait as long until they prefer such a gateway, so both directions change at about the same time.
func (l *linked) found(before linked, now time.Time) {
	for i := range l.view.Nodes {
		for _, cluster := range l.view.Nodes[i].Lost {
			l.lost[lostBy{l.view.Nodes[i].Name, cluster}] = time.Time{}
		}
	}
	for at, last := range before.lost {
		last, is := backSince(last, now)
		if _, still := l.lost[at]; still || !is {
			continue
		}
		l.lost[at] = last
		if i := slices.IndexFunc(l.view.Nodes, func(n reach.Node) bool { return n.Name == at.gateway }); i >= 0 {
			l.view.Nodes[i].Found = append(l.view.Nodes[i].Found, at.cluster)
		}
	}
}

// again is when a node that is back has been back for long enough; zero: none is.
func (l linked) again() (at time.Time) {
	sooner := func(end time.Time) {
		if at.IsZero() || end.Before(at) {
			at = end
		}
	}
	for _, n := range l.view.Nodes {
		if n.Recent {
			sooner(l.down[n.Name].Add(linkSteady))
		}
		for _, cluster := range n.Found {
			sooner(l.lost[lostBy{n.Name, cluster}].Add(linkSteady))
		}
	}
	if l.alone.is && !l.alone.until.IsZero() {
		sooner(l.alone.until)
	}
	return at
}

// away are the clusters that this node, a gateway, does not reach.
func (l linked) away() []string {
	for _, n := range l.view.Nodes {
		if n.Name == l.view.Self {
			return n.Lost
		}
	}
	return nil
}

// own is what this node announces and takes for its cluster, beside what its configuration says.
func (l linked) own() (out []netip.Prefix) {
	for _, n := range l.view.Nodes {
		if n.Name == l.view.Self && len(l.plan.Linked) > 0 {
			out = append(out, n.Pods...)
		}
	}
	return append(out, l.plan.Services...)
}

// give has the planner send the ranges of linked clusters to the members that have them. Nodes of other clusters with
// which this one needs no tunnel are no peers, as long as no cluster is accepted none of them.
func (l linked) give(in *topology.Input) {
	x := indexOf(l.view.Self.Cluster, in.Members)
	for _, n := range l.view.Nodes {
		if m := x.of(n); m != nil && n.Cluster != l.view.Self.Cluster && !l.plan.Keep[n.Name] {
			m.Key = member.Key{}
		}
	}
	if len(l.view.Clusters) == 0 {
		return
	}
	add := func(to *[]netip.Prefix, ranges []netip.Prefix) {
		for _, p := range ranges {
			if !slices.Contains(*to, p) {
				*to = append(*to, p)
			}
		}
	}
	in.Self.Ranges = slices.Clone(in.Self.Ranges)
	add(&in.Self.Ranges, l.own())
	for _, n := range l.view.Nodes {
		if m := x.of(n); m != nil {
			m.Ranges = slices.Clone(m.Ranges)
			add(&m.Ranges, l.plan.Send[n.Name])
		}
	}
	in.Health = l.bounded(x, in.Health)
	in.Links = topology.Links{Linked: l.plan.Linked, Direct: l.plan.Direct, Mapped: l.plan.Mapped, Passed: l.plan.Passed}
	// 1:1 translation is for what their nodes themselves send, too.
	near, far := l.overlays(x)
	in.Links.Near, in.Links.Far = near, far
	if len(in.Links.Mapped) > 0 {
		in.Links.Direct = slices.Concat(in.Links.Direct, far)
	}
	for _, c := range l.view.Clusters {
		if c.Name == l.view.Self.Cluster {
			add(&in.Links.Inside, c.Pods)
		}
	}
	for _, n := range l.view.Nodes {
		if n.Cluster == l.view.Self.Cluster {
			add(&in.Links.Inside, n.Pods)
		}
	}
}

// bounded is the health of members where no packet to one of another cluster may be larger than the own cluster wants.
// What is found out about the way may be less.
func (l linked) bounded(x index, health map[string]topology.Health) map[string]topology.Health {
	if l.view.MTU <= 0 {
		return health
	}
	out := maps.Clone(health) // others have it, too
	if out == nil {
		out = map[string]topology.Health{}
	}
	for _, n := range l.view.Nodes {
		m := x.of(n)
		if m == nil || n.Cluster == l.view.Self.Cluster {
			continue
		}
		if h := out[m.ID]; h.MTU == 0 || h.MTU > l.view.MTU {
			h.MTU = l.view.MTU
			out[m.ID] = h
		}
	}
	return out
}

// overlays are the addresses in the mesh of the other nodes of the own cluster, and of those of other clusters with
// which this one has tunnels.
func (l linked) overlays(x index) (near, far []netip.Prefix) {
	for _, n := range l.view.Nodes {
		m := x.of(n)
		if m == nil || n.Name == l.view.Self {
			continue
		}
		for _, a := range []netip.Addr{m.Overlay4, m.Overlay6} {
			switch {
			case !a.IsValid():
			case n.Cluster == l.view.Self.Cluster:
				near = append(near, netip.PrefixFrom(a, a.BitLen()))
			case l.plan.Keep[n.Name]:
				far = append(far, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return near, far
}
