// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// place is an address by which this machine is reached, or without which it reaches nobody.
type place struct {
	addr netip.Addr
	what string
}

// podInput is what the ranges of this node's pods are judged by. Whoever may write Nodes may
// write anything there: what comes from Kubernetes counts only as much as what a peer says.
type podInput struct {
	texts    []string       // as Kubernetes has them
	stated   []netip.Prefix // ranges of the configuration
	excluded []netip.Prefix // that it takes out
	accept   []netip.Prefix // mesh.accept
	overlay  []netip.Prefix // where the mesh has its own addresses
	places   []place
	lost     []lost // those that may be another node's by now
}

// lost is a range of Kubernetes that another member announces, while Kubernetes itself has not
// been heard for a lease.
type lost struct {
	text, node string
	by         netip.Prefix
}

// judgePods gives the ranges of pods that this node announces, sorted, and why not the others.
func judgePods(in podInput) (out []netip.Prefix, problems []Problem) {
	room := limit.DiscoveryFacts - len(in.stated)
	for i, text := range in.texts {
		if i >= limit.PodRanges {
			problems = append(problems, Problem{Kind: string(topology.Refused),
				Why: fmt.Sprintf("its Node has more than %d ranges of pods, and the first count", limit.PodRanges)})
			break
		}
		p, why := in.refuses(text)
		switch l := slices.IndexFunc(in.lost, func(l lost) bool { return l.text == text }); {
		case why != "":
			problems = append(problems, Problem{Kind: string(topology.Refused), Range: p, Why: why})
		case slices.Contains(out, p):
		case l >= 0:
			problems = append(problems, Problem{Kind: string(topology.Overlap), Range: p, Other: in.lost[l].node,
				Why: fmt.Sprintf("member %s announces %s, and the API server has not said for %v that it is this node's",
					in.lost[l].node, in.lost[l].by, podRangeLease)})
		case in.excludes(p):
		case len(out) >= room && !slices.Contains(in.stated, p):
			problems = append(problems, Problem{Kind: string(topology.Refused), Range: p,
				Why: fmt.Sprintf("a node announces at most %d ranges", limit.DiscoveryFacts)})
		default:
			out = append(out, p)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out, problems
}

// refuses gives the reason why a text of Kubernetes is no range of pods, or "".
func (in podInput) refuses(text string) (p netip.Prefix, why string) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Sprintf("%q of its Node is no range: a CIDR is expected", text)
	}
	within := func(q netip.Prefix) bool { return q.Contains(p.Addr()) && q.Bits() <= p.Bits() }
	if why := topology.Never(p); why != "" {
		return p, "it is " + why
	}
	if !slices.ContainsFunc(in.accept, within) {
		return p, "it is outside of mesh.accept"
	}
	for _, q := range in.overlay {
		if q.IsValid() && q.Overlaps(p) {
			return p, fmt.Sprintf("the mesh has its own addresses in %s", q)
		}
	}
	for _, at := range in.places {
		if p.Contains(at.addr) {
			return p, fmt.Sprintf("it covers %s, %s", at.addr, at.what)
		}
	}
	return p, ""
}

// excludes says whether nothing is left of a range.
func (in podInput) excludes(p netip.Prefix) bool {
	var out []plan.Range
	for _, q := range in.excluded {
		out = append(out, plan.RangeOf(q))
	}
	return len(plan.Less([]plan.Range{plan.RangeOf(p)}, plan.Unite(out))) == 0
}

// placesOf are the places of this machine. Interfaces whose addresses are not announced are bridges of
// pods and the like: what they have is no way to the machine.
func placesOf(all []nat.Address, without []string, link string, local topology.Local) (out []place) {
	if without == nil {
		without = nat.DefaultWithout()
	}
	for _, a := range all {
		matches := func(pattern string) bool { ok, err := path.Match(pattern, a.Interface); return ok && err == nil }
		if a.Interface != link && !slices.ContainsFunc(without, matches) {
			out = append(out, place{a.Prefix.Addr().Unmap(), "an address of this machine; if " + a.Interface +
				" is a bridge of pods, name it in mesh.without"})
		}
	}
	for _, a := range local.Gateways {
		out = append(out, place{a, "a default gateway of this machine"})
	}
	for _, a := range local.Resolvers {
		out = append(out, place{a, "a resolver of this machine"})
	}
	return out
}

// lostTo finds ranges that another member announces, as a whole or a part of them: while
// Kubernetes is not heard, that one has been assigned them since, perhaps.
func lostTo(texts []string, own, node string, members map[string]*roster.Member) (out []lost) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		best := lost{}
		for _, m := range members {
			if m.Stale || m.Node == own || m.Nodename == node {
				continue // this node itself, as it was before
			}
			for _, q := range m.Ranges {
				if p.Overlaps(q) && q.Bits() >= p.Bits() && (best.text == "" || m.Node < best.node) {
					best = lost{text, m.Node, q}
				}
			}
		}
		if best.text != "" {
			out = append(out, best)
		}
	}
	return out
}

// The sources of ranges that a node announces.
const (
	FromConfiguration = "configuration"
	FromKubernetes    = "kubernetes"
)

// announcedOf are the ranges that a node announces, each with who states it.
func announcedOf(stated, pods []netip.Prefix) []Announced {
	var out []Announced
	for _, p := range stated {
		out = append(out, Announced{p, []string{FromConfiguration}})
	}
	for _, p := range pods {
		i := slices.IndexFunc(out, func(a Announced) bool { return a.Range == p })
		if i < 0 {
			out = append(out, Announced{Range: p})
			i = len(out) - 1
		}
		out[i].Sources = append(out[i].Sources, FromKubernetes)
	}
	return out
}

// podWarning says what is wrong with Kubernetes' report of this machine's Node; "" is nothing.
func podWarning(a assigned, now time.Time) string {
	age := now.Sub(a.Said).Abs()
	switch {
	case a.Node == "":
		return ""
	case a.Said.IsZero():
		return fmt.Sprintf("the ranges of this node's pods are not known yet: the API server has not reported Node %q; "+
			"'tombolo discovery status --of announce' shows why", a.Node)
	case a.UID == "":
		return fmt.Sprintf("Kubernetes has no Node %q, so no pod ranges can be announced: "+
			"'kubectl get nodes' shows the names, and sources.kubernetes.node sets this node's", a.Node)
	case len(a.Ranges) == 0:
		return fmt.Sprintf("Node %q has no ranges of pods (spec.podCIDRs): kube-controller-manager assigns them with "+
			"--allocate-node-cidrs; if a network plugin assigns its own, name them in announce.ranges", a.Node)
	case age > podRangeLease:
		return fmt.Sprintf("the API server has not reported Node %q for %v: %s stay announced until it does, "+
			"or until another member announces them",
			a.Node, age.Round(time.Minute), strings.Join(a.Ranges, " and "))
	}
	return ""
}
