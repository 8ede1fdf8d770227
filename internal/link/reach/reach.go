// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// Cluster is a linked cluster.
type Cluster struct {
	Name    string
	Gateway bool // only its gateways have tunnels to other clusters
	// Pods and Services are its ranges, by its own addresses.
	Pods, Services []netip.Prefix
	// Mapped are ranges of its own addresses, and those by which all other clusters know them.
	Mapped []mapping.Range
}

// Outside is a range as other clusters know it. One that is only partly mapped keeps what is not.
func (c *Cluster) Outside(p netip.Prefix) netip.Prefix {
	for _, m := range c.Mapped {
		if out, ok := m.Out(p); ok {
			return out
		}
	}
	return p
}

func (c *Cluster) outsides(ranges []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(ranges))
	for _, p := range ranges {
		out = append(out, c.Outside(p))
	}
	return out
}

// Name names a node of a linked cluster.
type Name struct{ Cluster, Node string }

func (n Name) String() string { return n.Cluster + "." + n.Node }

func (n Name) compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Cluster, o.Cluster), cmp.Compare(n.Node, o.Node))
}

// Node is a node of a linked cluster.
type Node struct {
	Name
	Pods    []netip.Prefix // of its pods, by its cluster's own addresses
	Gateway bool           // one of its cluster's gateways
	Ready   bool           // Kubernetes says so; false: nothing new goes through it
	Key     member.Key     // of its tunnels; zero: it has none
	Down    bool           // no packets pass between it and the node that looks
	Fell    bool           // they did until a moment ago
	Doubt   bool           // its last answer is missing
	Recent  bool           // they do again, but not for long: what flaps is not worth a move
	Idle    bool           // whether packets pass is not known: none have to
	Alone   bool           // it reaches no other node of its cluster, as it says
	Doubled string         // why it does not count: it has what is of another cluster
	// Lost are clusters that it does not reach; known of gateways of the cluster of the node that looks.
	Lost []string
	// Found are those of them that it reaches again, but not for long.
	Found []string
}

// View is what one node knows.
type View struct {
	Self     Name
	Clusters []Cluster
	Nodes    []Node // of all clusters, the node that looks among them
	// Whole says that the API server has given all objects: what is not here is not there.
	Whole bool
	// MTU is what the own cluster wants packets to nodes of other clusters to have at most; 0: there is no bound.
	MTU int
	// NIC says which interface of the node that looks leads to other clusters; neither by name nor by what it leads to:
	// nobody has said so.
	NIC v1alpha1.ClusterNIC
}

// Plan is what the node does.
type Plan struct {
	// Services are the own cluster's, if other clusters reach them here: whoever answers for one has to answer through
	// this node.
	Services []netip.Prefix
	// Send are the ranges that are sent to each node, and taken from it.
	Send map[Name][]netip.Prefix
	// Keep are nodes of other clusters with which this one has tunnels, also while it sends nothing to them: they may be
	// reached again.
	Keep map[Name]bool
	// Linked are the ranges of all other clusters, and Direct those of them that go to nodes of their own cluster.
	// Passed are those of the own cluster that this node, a gateway, passes packets from and to. They may overlap.
	Linked, Direct, Passed []netip.Prefix
	// Mapped are the own cluster's mappings, for what leaves to Direct and comes from there.
	Mapped []mapping.Range
}

// Decide gives the ranges of all linked clusters to nodes.
func Decide(v View) Plan {
	d := decision{view: v, nodes: map[string][]*Node{}, plan: Plan{Send: map[Name][]netip.Prefix{},
		Keep: map[Name]bool{}}}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		d.nodes[n.Cluster] = append(d.nodes[n.Cluster], n)
	}
	for _, nodes := range d.nodes {
		slices.SortFunc(nodes, func(a, b *Node) int { return a.compare(b.Name) })
	}
	at := slices.IndexFunc(v.Clusters, func(c Cluster) bool { return c.Name == v.Self.Cluster })
	if at < 0 {
		return d.plan // its cluster is not linked (yet, or any longer)
	}
	own := &v.Clusters[at]
	self := slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Name == v.Self })
	borders := !own.Gateway || self >= 0 && v.Nodes[self].Gateway
	for i := range v.Clusters {
		other := &v.Clusters[i]
		if other != own {
			d.plan.Linked = append(d.plan.Linked, d.ranges(other)...)
			for _, n := range d.nodes[other.Name] {
				d.plan.Keep[n.Name] = borders && (n.Gateway || !other.Gateway)
			}
		}
		switch {
		case other == own:
		case borders && !(self >= 0 && slices.Contains(v.Nodes[self].Lost, other.Name)):
			d.direct(other)
		default:
			d.through(own, other)
		}
	}
	if len(d.plan.Linked) == 0 {
		return d.plan
	}
	if borders {
		d.plan.Services, d.plan.Mapped = own.Services, own.Mapped
	}
	if own.Gateway {
		d.inside(own, borders)
	}
	return d.plan
}

type decision struct {
	view  View
	nodes map[string][]*Node // by cluster, sorted
	plan  Plan
}

func (d *decision) send(to Name, ranges []netip.Prefix) {
	for _, p := range ranges {
		if !slices.Contains(d.plan.Send[to], p) {
			d.plan.Send[to] = append(d.plan.Send[to], p)
		}
	}
}

// direct sends to nodes of another cluster. Its services, and what of its ranges is no node's, have an owner among its
// gateways: addresses that nobody has must not leave in clear.
func (d *decision) direct(other *Cluster) {
	doors, before := d.doors(other), len(d.plan.Direct)
	for _, n := range d.nodes[other.Name] {
		ranges := other.outsides(n.Pods)
		if other.Gateway {
			if door := owner(doors, n.String(), ""); door != nil {
				d.send(door.Name, ranges)
			}
		} else {
			d.send(n.Name, ranges)
		}
		d.plan.Direct = append(d.plan.Direct, ranges...)
	}
	for _, p := range other.outsides(slices.Concat(other.Services, other.Pods)) {
		if slices.Contains(d.plan.Direct[before:], p) {
			continue // a node's: it has its owner
		}
		if door := owner(doors, p.String(), ""); door != nil {
			d.send(door.Name, []netip.Prefix{p})
		}
		d.plan.Direct = append(d.plan.Direct, p)
	}
}

// through sends to another cluster through the gateway of this node.
func (d *decision) through(own, other *Cluster) {
	all := d.ranges(other)
	if door := owner(d.doors(own), d.view.Self.String(), other.Name); door != nil {
		d.send(door.Name, all)
	}
}

// ranges are all of another cluster.
func (d *decision) ranges(other *Cluster) []netip.Prefix {
	var all []netip.Prefix
	for _, n := range d.nodes[other.Name] {
		all = append(all, other.outsides(n.Pods)...)
	}
	return append(all, other.outsides(slices.Concat(other.Services, other.Pods))...)
}

// inside connects the gateways of the own cluster with its other nodes.
func (d *decision) inside(own *Cluster, borders bool) {
	for _, n := range d.nodes[own.Name] {
		if n.Name == d.view.Self {
			continue
		}
		if borders || n.Gateway {
			d.send(n.Name, n.Pods)
		}
		if borders {
			d.plan.Passed = append(d.plan.Passed, n.Pods...)
		}
	}
}

// doors are the nodes by which a cluster's other addresses are reached: its gateways, or in a cluster without any those
// of its nodes that are ready.
func (d *decision) doors(c *Cluster) []*Node {
	var gateways, ready []*Node
	for _, n := range d.nodes[c.Name] {
		if n.Gateway {
			gateways = append(gateways, n)
		}
		if n.Ready {
			ready = append(ready, n)
		}
	}
	switch {
	case len(gateways) > 0:
		return gateways
	case !c.Gateway && len(ready) > 0:
		return ready
	case !c.Gateway:
		return d.nodes[c.Name]
	}
	return nil
}

// Lost are the other clusters that a gateway does not reach: no packets pass between it and any node by which it would.
// Of a node that is no gateway, none.
func Lost(v View) (out []string) {
	d := decision{view: v, nodes: map[string][]*Node{}}
	gateway := false
	for i := range v.Nodes {
		n := &v.Nodes[i]
		d.nodes[n.Cluster] = append(d.nodes[n.Cluster], n)
		gateway = gateway || n.Name == v.Self && n.Gateway
	}
	for i := range v.Clusters {
		c := &v.Clusters[i]
		if !gateway || c.Name == v.Self.Cluster {
			continue
		}
		doors := d.doors(c)
		if len(doors) > 0 && !slices.ContainsFunc(doors, func(n *Node) bool { return !n.Down }) {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Alone reports whether the node that looks is a gateway that reaches no other node of its cluster: nothing comes to
// those through it. Those that are idle may be reached or not, and are left out. One that has just been lost suffices
// if all that are not have missed an answer: they were asked when it was in doubt, and would be known to be lost a
// second later.
func Alone(v View) bool {
	i := slices.IndexFunc(v.Clusters, func(c Cluster) bool { return c.Name == v.Self.Cluster })
	if i < 0 || !v.Clusters[i].Gateway {
		return false
	}
	gateway, lost, fell, doubt := false, 0, false, false
	for i := range v.Nodes {
		switch n := &v.Nodes[i]; {
		case n.Name == v.Self:
			gateway = n.Gateway
		case n.Cluster != v.Self.Cluster || n.Key.IsZero() || n.Idle:
		case n.Down:
			lost++
			fell = fell || n.Fell
		case n.Doubt:
			doubt = true
		default:
			return false
		}
	}
	return gateway && lost > 0 && (fell || !doubt)
}

// owner is which of some nodes has what is named by a key: the node of that name if packets pass through it, else the
// best of those through which they do, last those that are alone, else of those that are ready, else of all. Rendezvous
// hashing: if one goes, only what it had moves.
//
//	to: the cluster that it has to reach; empty: none
func owner(nodes []*Node, key, to string) *Node {
	var best *Node
	var most [2]uint64
	for _, n := range nodes {
		rank := [2]uint64{0, weight(n.String(), key)}
		passes := !n.Down && (to == "" || !slices.Contains(n.Lost, to))
		steady := !n.Recent && (to == "" || !slices.Contains(n.Found, to))
		switch {
		case passes && n.String() == key:
			rank[0] = 6
		case passes && n.Alone: // it may be that the others are gone
			rank[0] = 2
		case passes && steady && n.Ready:
			rank[0] = 5
		case passes && steady:
			rank[0] = 4
		case passes:
			rank[0] = 3
		case n.Ready:
			rank[0] = 1
		}
		if best == nil || slices.Compare(rank[:], most[:]) > 0 {
			best, most = n, rank
		}
	}
	return best
}
