// SPDX-License-Identifier: Apache-2.0

// Package explain says how packets between linked clusters go, node by node, and back: by the plan that each node makes
// of what the objects say. It does not read objects, and sends nothing.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// mostHops bounds a way: node, gateway, gateway, node.
const mostHops = 4

// Tunnel is the state of a tunnel, as a node reports it.
type Tunnel struct {
	State  string // up, relayed, down, unused
	Reason string
	Alone  bool // the peer reaches no other node of its cluster
}

// Facts is what is known.
type Facts struct {
	View     reach.View                           // Self has no meaning
	Tunnels  map[reach.Name]map[reach.Name]Tunnel // by the node that reports, and by its peer
	Problems []string                             // objects that do not count
}

// Hop is a node that sends, and to whom.
type Hop struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Tunnel string `json:"tunnel,omitempty"` // its state; empty: not reported, or within a cluster
	Reason string `json:"reason,omitempty"`
}

// Way is one direction.
type Way struct {
	Address netip.Addr `json:"address"`            // as the sender knows it
	Cluster string     `json:"cluster,omitempty"`  // that has it
	Node    string     `json:"node,omitempty"`     // whose pods have it
	Service bool       `json:"service,omitempty"`  // it is one of a Service
	Own     netip.Addr `json:"own,omitzero"`       // how its cluster knows it, if that is another address
	Hops    []Hop      `json:"hops,omitempty"`     //
	Lost    string     `json:"lost,omitempty"`     // why packets do not arrive
	Plugin  bool       `json:"plugin,omitempty"`   // the rest is the network plugin's
	Already bool       `json:"sameNode,omitempty"` // it is behind the node that sends
}

// Explanation is both directions.
type Explanation struct {
	From     string   `json:"from"`
	There    Way      `json:"there"`
	Back     *Way     `json:"back,omitempty"` // to the pods of From; none: it has none, or There is lost
	Problems []string `json:"problems,omitempty"`
}

// Explain follows a packet of a node's pods to an address.
func Explain(f Facts, from reach.Name, to netip.Addr) (Explanation, error) {
	if !slices.ContainsFunc(f.View.Nodes, func(n reach.Node) bool { return n.Name == from }) {
		return Explanation{}, fault.Newf(fault.CodeNotFound, "there is no ClusterNode %q", from.String()).
			Hint("'kubectl get tcn' shows all")
	}
	out := Explanation{From: from.String(), There: f.follow(from, to), Problems: f.Problems}
	pod, known := f.pod(from)
	end := f.end(out.There)
	if known && out.There.Lost == "" && end.Node != "" && end.Cluster != from.Cluster {
		if back := f.seen(from.Cluster, end.Cluster, pod); pod.Is4() == to.Is4() {
			way := f.follow(end, back)
			out.Back = &way
		}
	}
	return out, nil
}

// pod is an address of the pods of a node.
func (f Facts) pod(of reach.Name) (netip.Addr, bool) {
	for _, n := range f.View.Nodes {
		if n.Name == of && len(n.Pods) > 0 {
			return n.Pods[0].Addr().Next(), true
		}
	}
	return netip.Addr{}, false
}

// end is the node at which a way ends.
func (f Facts) end(w Way) reach.Name {
	if len(w.Hops) > 0 {
		cluster, node, _ := strings.Cut(w.Hops[len(w.Hops)-1].To, ".")
		return reach.Name{Cluster: cluster, Node: node}
	}
	return reach.Name{}
}

// seen is an address of a cluster as another one knows it.
func (f Facts) seen(owner, by string, at netip.Addr) netip.Addr {
	for _, c := range f.View.Clusters {
		if c.Name != owner || owner == by {
			continue
		}
		for _, m := range c.Mapped {
			if m.There.Contains(at) {
				return translate(at, m.There, m.Here)
			}
		}
	}
	return at
}

// translate moves an address from one range to another one of the same length.
func translate(at netip.Addr, from, to netip.Prefix) netip.Addr {
	a, b := at.AsSlice(), to.Addr().AsSlice()
	for i := range b {
		bits := min(max(from.Bits()-8*i, 0), 8)
		mask := byte(0xff) << (8 - bits)
		b[i] = b[i]&mask | a[i]&^mask
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// find says whose an address is, as a cluster knows it.
func (f Facts) find(by string, to netip.Addr) Way {
	w := Way{Address: to}
	for _, c := range f.View.Clusters {
		own := to
		if c.Name != by {
			for _, m := range c.Mapped {
				if m.Here.Contains(to) {
					own = translate(to, m.Here, m.There)
				} else if m.There.Contains(to) {
					own = netip.Addr{} // it is reached by the other address only
				}
			}
		}
		has := func(p netip.Prefix) bool { return own.IsValid() && p.Contains(own) }
		for _, n := range f.View.Nodes {
			if n.Cluster == c.Name && slices.ContainsFunc(n.Pods, has) {
				w.Cluster, w.Node = c.Name, n.String()
			}
		}
		services := slices.ContainsFunc(c.Services, has)
		if services || slices.ContainsFunc(c.Pods, has) {
			w.Cluster, w.Service = c.Name, services
		}
		if w.Cluster == c.Name {
			if own != to {
				w.Own = own
			}
			return w
		}
	}
	return w
}

// follow goes from node to node.
func (f Facts) follow(from reach.Name, to netip.Addr) Way {
	w := f.find(from.Cluster, to)
	switch {
	case w.Cluster == "":
		w.Lost = "no linked cluster has this address: it goes by the machine's own routes"
		return w
	case w.Cluster == from.Cluster && w.Node == from.String():
		w.Already = true
		return w
	case w.Cluster == from.Cluster:
		w.Plugin = true
		return w
	}
	self := from
	for range mostHops {
		at := to
		if self.Cluster == w.Cluster && w.Own.IsValid() {
			at = w.Own
		}
		next, known := f.next(self, at)
		if !known {
			break
		}
		hop := Hop{From: self.String(), To: next.String()}
		if t, reported := f.Tunnels[self][next]; reported {
			hop.Tunnel, hop.Reason = t.State, t.Reason
		}
		w.Hops = append(w.Hops, hop)
		if why := f.doubled(self, next); why != "" {
			w.Lost = fmt.Sprintf("%s has no tunnel with %s: %s", self, next, why)
			return w
		}
		self = next
		if self.String() == w.Node {
			return w
		}
	}
	switch {
	case self.Cluster != w.Cluster:
		w.Lost = fmt.Sprintf("%s sends it to nobody: no node or gateway of %s is known to it", self, w.Cluster)
	case !w.Service && w.Node == "":
		w.Lost = fmt.Sprintf("it is in a range of %s, but of no node there", w.Cluster)
	default:
		w.Plugin = true
	}
	return w
}

// doubled is why a node does not count for one of another cluster; empty: it does.
func (f Facts) doubled(self, node reach.Name) string {
	for _, n := range f.View.Nodes {
		if n.Name == node && n.Cluster != self.Cluster {
			return n.Doubled
		}
	}
	return ""
}

// next is the node to which another one sends what is for an address.
func (f Facts) next(self reach.Name, to netip.Addr) (reach.Name, bool) {
	v := f.View
	v.Self, v.Nodes = self, slices.Clone(v.Nodes)
	for i, n := range v.Nodes {
		v.Nodes[i].Down = f.Tunnels[self][n.Name].State == "down" || f.doubled(self, n.Name) != ""
		v.Nodes[i].Alone = f.Tunnels[self][n.Name].Alone
	}
	if lost := reach.Lost(v); len(lost) > 0 {
		for i, n := range v.Nodes {
			if n.Name == self {
				v.Nodes[i].Lost = lost
			}
		}
	}
	best, bits := reach.Name{}, -1
	for name, ranges := range reach.Decide(v).Send {
		for _, p := range ranges {
			if p.Contains(to) && p.Bits() > bits {
				best, bits = name, p.Bits()
			}
		}
	}
	return best, bits >= 0
}

// String is for people, a line for each step.
func (x Explanation) String() string {
	var b strings.Builder
	for _, p := range x.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	x.There.print(&b, "there", x.From)
	if x.Back != nil {
		x.Back.print(&b, "back", "")
	}
	return b.String()
}

func (w Way) print(b *strings.Builder, name, from string) {
	what := "an address of pods"
	if w.Service {
		what = "an address of a Service"
	}
	switch {
	case w.Cluster != "" && w.Node != "":
		fmt.Fprintf(b, "%s: %s is %s at %s", name, w.Address, what, w.Node)
	case w.Cluster != "":
		fmt.Fprintf(b, "%s: %s is %s of cluster %s", name, w.Address, what, w.Cluster)
	default:
		fmt.Fprintf(b, "%s: %s", name, w.Address)
	}
	if w.Own.IsValid() {
		fmt.Fprintf(b, ", which knows it as %s", w.Own)
	}
	b.WriteString("\n")
	for _, h := range w.Hops {
		fmt.Fprintf(b, "  %s sends it to %s", h.From, h.To)
		if h.Tunnel != "" {
			fmt.Fprintf(b, ", whose tunnel is %s", h.Tunnel)
		}
		if h.Reason != "" {
			fmt.Fprintf(b, ": %s", h.Reason)
		}
		b.WriteString("\n")
	}
	switch {
	case w.Lost != "":
		fmt.Fprintf(b, "  it does not arrive: %s\n", w.Lost)
	case w.Already:
		fmt.Fprintf(b, "  it is behind %s itself\n", from)
	case w.Service && w.Plugin:
		b.WriteString("  there, kube-proxy or what is in its place sends it to a pod\n")
	case w.Plugin:
		b.WriteString("  the network plugin of the cluster carries it on\n")
	}
}
