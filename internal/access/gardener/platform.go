// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// GroupPlatform is the group of rules for the platform's own ranges, which every list of allowed ranges has beside the
// user's.
const GroupPlatform = "platform"

// The rules of the group.
const (
	RuleSeedNodes      = "seed-nodes"
	RuleSeedPods       = "seed-pods"
	RuleSeedEgress     = "seed-egress"
	RuleShootNodes     = "shoot-nodes"
	RuleInfrastructure = "shoot-egress"
	RuleAdditional     = "additional"
)

// Range is one of the platform's.
type Range struct {
	Prefix netip.Prefix
	Rule   string
	Origin string // object and field; its place in a list is not there, for it changes without a meaning
}

// Platform gathers the ranges that have to get in whatever a user lists: the seed's nodes and pods, its egress if the
// gateway's load balancer sends the seed's own clients around, the nodes of the shoot and their egress, and what the
// operator adds. They are sorted by rule and range, each once. Anything that cannot be read is refused.
func (f Facts) Platform() ([]Range, []Problem) {
	g := gathering{}
	f.seedRanges(&g)
	if !f.Cluster.Spec.Shoot.Workerless() {
		f.shootRanges(&g)
	}
	g.object = "operator's configuration"
	for i, text := range f.Additional {
		g.read(RuleAdditional, fmt.Sprintf("additionalRanges[%d]", i), text)
	}
	if !Usable(g.list) {
		return nil, g.all()
	}
	slices.SortStableFunc(g.ranges, func(a, b Range) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return slices.CompactFunc(g.ranges, func(a, b Range) bool { return a.Rule == b.Rule && a.Prefix == b.Prefix }), g.all()
}

type gathering struct {
	problems
	ranges []Range
}

func (g *gathering) read(rule, path, text string) {
	if p, ok := g.readRange(path, text); ok {
		field, _, _ := strings.Cut(path, "[")
		g.ranges = append(g.ranges, Range{p, rule, g.object + " " + field})
	}
}

func (g *gathering) missing(object, path, what, next string) {
	g.add(Problem{Object: object, Path: path, Cause: NotFound, Code: fault.CodeNotFound, What: what, Next: next})
}

func (f Facts) seedRanges(g *gathering) {
	seed := f.Cluster.Spec.Seed
	g.object = "Seed " + seed.Metadata.Name
	if n := seed.Spec.Networks.Nodes; n != "" { // Gardener has it optional
		g.read(RuleSeedNodes, "spec.networks.nodes", n)
	}
	if n := seed.Spec.Networks.Pods; n != "" {
		g.read(RuleSeedPods, "spec.networks.pods", n)
	} else {
		g.missing("", "spec.networks.pods", "the seed has no range of pods", "look at the Cluster's seed")
	}
	if f.ShootInfo == nil {
		return // the seed is no shoot
	}
	g.object = "ConfigMap kube-system/shoot-info"
	for _, of := range []struct{ key, rule string }{
		{"nodeNetworks", RuleSeedNodes}, {"podNetworks", RuleSeedPods}, // both families; a Seed's own fields have one
	} {
		if list := f.ShootInfo.Data[of.key]; list != "" {
			g.commas(of.rule, "data."+of.key, list)
		}
	}
	if !f.Gateway.Proxied() {
		return
	}
	if list, ok := f.ShootInfo.Data["egressCIDRs"]; ok {
		g.commas(RuleSeedEgress, "data.egressCIDRs", list)
	} else {
		g.missing("", "data.egressCIDRs", "the key is missing, and the gateway's load balancer has ipMode Proxy",
			"Gardener writes it once the seed's infrastructure knows its egress")
	}
}

func (g *gathering) commas(rule, path, list string) {
	for i, text := range strings.Split(list, ",") {
		g.read(rule, fmt.Sprintf("%s[%d]", path, i), strings.TrimSpace(text))
	}
}

func (f Facts) shootRanges(g *gathering) {
	shoot := f.Cluster.Spec.Shoot
	g.object = "Shoot " + shoot.Metadata.Namespace + "/" + shoot.Metadata.Name
	if n := shoot.Spec.Networking; n != nil && n.Nodes != "" {
		g.read(RuleShootNodes, "spec.networking.nodes", n.Nodes)
	}
	if f.Infrastructure == nil {
		g.missing("Infrastructure "+f.Cluster.Metadata.Name+"/"+shoot.Metadata.Name, "",
			"it is missing, so that nobody knows from which addresses the shoot's nodes come",
			"it is looked at again when it is there")
		return
	}
	g.object = "Infrastructure " + f.Infrastructure.Metadata.Namespace + "/" + f.Infrastructure.Metadata.Name
	for i, text := range f.Infrastructure.Status.EgressCIDRs {
		g.read(RuleInfrastructure, fmt.Sprintf("status.egressCIDRs[%d]", i), text)
	}
}
