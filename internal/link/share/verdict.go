// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// The reasons of a verdict, as conditions have them.
const (
	InForce   = "InForce"
	Invalid   = "Invalid"
	Unlearned = "Unlearned"
	NoNode    = "NoNode"
)

// mostMessage bounds what is said.
const mostMessage = 4096

// mostNamed is how many nodes are named of those with the same problem.
const mostNamed = 3

// Verdict says whether other clusters can reach this one, for a condition.
type Verdict struct {
	Ready           bool
	Reason, Message string
}

// judge says what keeps other clusters from reaching this one. What could not be learned is said in any case.
func judge(f Facts, s Shared) Verdict {
	ready, keys := 0, 0
	for _, n := range s.Nodes {
		if n.Ready {
			ready++
		}
		if n.Ready && n.PublicKey != "" {
			keys++
		}
	}
	v := Verdict{Reason: Unlearned}
	switch {
	case f.Excludes == nil:
		v.Reason, v.Message = Invalid, "spec.excludeSelector cannot be read: no node is added to those that take part"
	case len(s.Pods) == 0 && len(s.Services) == 0:
		v.Message = "neither the ranges of pods nor those of services are known"
	case len(s.Pods) == 0:
		v.Message = "the ranges of pods are not known"
	case len(s.Services) == 0:
		v.Message = "the ranges of services are not known"
	case ready == 0:
		v.Reason, v.Message = NoNode, fmt.Sprintf("none of %d nodes that take part is ready", len(s.Nodes))
	case keys == 0:
		v.Reason, v.Message = NoNode, fmt.Sprintf("none of %d nodes that are ready runs 'tombolo mesh'", ready)
	case f.Spec.NetworkType == v1alpha1.NetworkGateway && len(s.Gateways) == 0:
		v.Reason, v.Message = NoNode, "no node that is ready may be a gateway: features.links.gatewaySelector fits none"
	default:
		v = Verdict{true, InForce, fmt.Sprintf("%d of %d nodes that take part are ready and in the mesh", keys, len(s.Nodes))}
	}
	problems := append(slices.Clone(f.Problems), f.nicsNotFound(s)...)
	slices.Sort(problems)
	v.Message = strings.Join(append([]string{v.Message}, problems...), "; ")
	if len(v.Message) > mostMessage {
		v.Message = strings.ToValidUTF8(v.Message[:mostMessage-3], "") + "..."
	}
	return v
}

// nicsNotFound says which nodes have not found the interface that the spec names, the first ones by name.
func (f Facts) nicsNotFound(s Shared) (out []string) {
	more := 0
	for _, stated := range s.Nodes {
		i := slices.IndexFunc(f.Nodes, func(n Node) bool { return n.Name == stated.NodeName })
		why := f.Nodes[i].NIC.Reason
		switch {
		case why == "" || !named(f.Spec, stated.NodeName):
		case len(out) < mostNamed:
			out = append(out, fmt.Sprintf("spec.nics has no effect at node %s: %s", stated.NodeName, why))
		default:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("spec.nics has no effect at %d more nodes", more))
	}
	return out
}
