// SPDX-License-Identifier: Apache-2.0

package gardener

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Platform is what a seed and a shoot say about addresses that must get in, whatever list the shoot's owner has.
type Platform struct {
	SeedNodes, SeedPods []string // spec.networks of the Seed, of both families
	// LoadBalancerProxies says that the ingress gateway's Service has an ingress with ipMode Proxy: clients in the seed
	// then come by way of the load balancer, with the seed's own egress addresses.
	LoadBalancerProxies bool
	ShootInfo           map[string]string // data of ConfigMap kube-system/shoot-info; nil: there is none
	Workerless          bool              // the shoot has no nodes
	ShootNodes          []string          // spec.networking.nodes of the Shoot
	Infrastructure      []string          // status.egressCIDRs of the shoot's Infrastructure
	HasInfrastructure   bool
	Additional          []string // of the operator
}

// Range is a range that the platform needs, with where it comes from.
type Range struct {
	Prefix netip.Prefix
	Origin string // the name of its rule
}

// The origins.
const (
	OriginSeedNodes      = "seed-nodes"
	OriginSeedPods       = "seed-pods"
	OriginShootInfo      = "seed-egress"
	OriginShootNodes     = "shoot-nodes"
	OriginInfrastructure = "shoot-egress"
	OriginAdditional     = "additional"
)

const egressKey = "egressCIDRs"

// Ranges are all that must get in, by origin, each once. A value that cannot be read, and an Infrastructure or a key
// that is missing, are errors: with a part of the ranges nodes could be locked out.
func (p Platform) Ranges() ([]Range, error) {
	c := collector{}
	c.take(OriginSeedNodes, "Seed: spec.networks.nodes", p.SeedNodes)
	c.take(OriginSeedPods, "Seed: spec.networks.pods", p.SeedPods)
	if p.LoadBalancerProxies && p.ShootInfo != nil {
		const at = "ConfigMap kube-system/shoot-info: data." + egressKey
		if text, ok := p.ShootInfo[egressKey]; ok {
			c.take(OriginShootInfo, at, strings.Split(text, ","))
		} else {
			c.add(at, "it is missing")
		}
	}
	if !p.Workerless {
		c.take(OriginShootNodes, "Shoot: spec.networking.nodes", p.ShootNodes)
		if p.HasInfrastructure {
			c.take(OriginInfrastructure, "Infrastructure: status."+egressKey, p.Infrastructure)
		} else {
			c.add("Infrastructure", "it is missing, and with it the addresses of the shoot's nodes")
		}
	}
	c.take(OriginAdditional, "additionalRanges", p.Additional)
	if len(c.problems) > 0 {
		return nil, fault.New(fault.CodeConfig, "the platform's own ranges are not known").
			Whyf("%s", strings.Join(c.problems, "; ")).Hint("correct the object; until then what was written stays")
	}
	return c.ranges, nil
}

type collector struct {
	ranges   []Range
	problems []string
}

func (c *collector) add(at, problem string) { c.problems = append(c.problems, at+": "+problem) }

func (c *collector) take(origin, at string, texts []string) {
	var found []Range
	for i, text := range texts {
		p, err := parseRange(strings.TrimSpace(text))
		if err != nil {
			c.add(at+"["+strconv.Itoa(i)+"]", err.Error())
			continue
		}
		if r := (Range{p, origin}); !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b Range) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	c.ranges = append(c.ranges, found...)
}

// SameEgress reports whether two lists of egress ranges say the same, in whatever order.
func SameEgress(a, b []string) bool {
	sorted := func(in []string) []string { return slices.Compact(slices.Sorted(slices.Values(in))) }
	return slices.Equal(sorted(a), sorted(b))
}
