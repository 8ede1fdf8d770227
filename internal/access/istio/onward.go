// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"slices"
	"strings"
)

// addedCluster is a cluster of Envoy that a patch adds.
type addedCluster struct {
	name string
	to   mentioned
}

// addedCluster is that of a patch; nil: it adds none.
func (p ConfigPatch) addedCluster() (*addedCluster, error) {
	if p.cluster != nil || p.ApplyTo != "CLUSTER" || p.Patch.Operation != "ADD" {
		return p.cluster, nil
	}
	v, err := generic(p.Patch.Value)
	if err != nil {
		return nil, err
	}
	name, _ := field(v, "name").(string)
	return &addedCluster{name, mentions(v)}, nil
}

// mentioned are all texts of a value, sorted.
type mentioned struct {
	texts    []string
	anywhere bool // it leads wherever a client wants
}

func mentions(v any) (out mentioned) {
	see := func(s string) { out.anywhere = out.anywhere || slices.Contains(dynamic(), s) }
	walk(v, func(s string) { out.texts = append(out.texts, s); see(s) }, see)
	slices.Sort(out.texts)
	out.texts = slices.Compact(out.texts)
	return out
}

// leadOn notes where the clusters of Envoy and the listeners at pipes lead that EnvoyFilters add. Nobody but Envoy
// itself comes to a pipe, through such a cluster.
func (b *chainer) leadOn(all []EnvoyFilter) {
	for _, e := range b.adding(all) {
		for _, p := range e.Spec.ConfigPatches {
			if !p.forGateways() {
				continue
			}
			if c, err := p.addedCluster(); err == nil && c != nil {
				b.note(c.name, c.to)
			}
			chains, _ := addedChains(p)
			for _, a := range chains {
				if a.pipe != "" {
					b.note(a.pipe, a.to)
				}
			}
		}
	}
}

func (b *chainer) note(name string, to mentioned) {
	old := b.onward[name]
	b.onward[name] = mentioned{append(old.texts, to.texts...), old.anywhere || to.anywhere}
}

// follow adds what the clusters of Envoy and pipes mention that are mentioned.
func (b *chainer) follow(m mentioned) (out mentioned) {
	out.anywhere = m.anywhere
	seen := map[string]bool{}
	for next := m.texts; len(next) > 0; {
		texts := next
		next = nil
		for _, s := range texts {
			if seen[s] {
				continue
			}
			seen[s] = true
			out.texts = append(out.texts, s)
			if to, ok := b.onward[s]; ok {
				next, out.anywhere = append(next, to.texts...), out.anywhere || to.anywhere
			}
		}
	}
	slices.Sort(out.texts)
	return out
}

// nameable reports a cluster of Envoy that leads to one of ours, and that a header of a CONNECT port may name without
// being judged.
func (b *chainer) nameable(object string, j int, c *addedCluster) {
	if len(b.w.ConnectPorts) == 0 {
		return
	}
	b.led(b.follow(c.to), func(to Cluster, _ string) {
		if to.listed() && !to.judges(c.name) {
			b.problemOf(to, object, "patch %d adds the Envoy cluster %q, which leads to the cluster and is none of its "+
				"destinations: a header of a CONNECT port may name it", j, c.name)
		}
	})
}

// judges reports whether who names an Envoy cluster in a header of a CONNECT port is judged by the cluster's lists, or
// refused.
func (c Cluster) judges(name string) bool {
	return c.byDestination(name) >= 0 || c.atConnect() && slices.ContainsFunc(c.namespaces(), func(ns string) bool {
		return strings.HasSuffix(name, "."+ns+".svc.cluster.local") || name == ns+"--kube-apiserver-socket"
	})
}
