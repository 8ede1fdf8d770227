// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// CNI is the name of what gives pods their addresses. The user may name others than these.
type CNI string

// Those that are told apart.
const (
	Calico     CNI = "calico"
	Flannel    CNI = "flannel"
	Cilium     CNI = "cilium"
	KubeRouter CNI = "kube-router"
	Unknown    CNI = "unknown"
)

const (
	resourceNodes       = "nodes"
	resourceConfigMaps  = "configmaps"
	resourcePools       = "ippools"
	resourceBlocks      = "blockaffinities"
	resourceCiliumNodes = "ciliumnodes"
)

// managedBy is the label value of the pools that Tombolo makes: ranges of other clusters, that Calico must not change.
const managedBy = "tombolo"

// evidence speaks for a CNI. Strong evidence shows that it gives addresses. Anything else may be left of a CNI that was
// removed, or belong to one that only enforces policies, as Calico does in Canal and with the CNIs of clouds.
type evidence struct {
	cni    CNI
	how    string
	strong bool
}

// cni is what gives pods their addresses, and how that was told.
func (l *learner) cni() (CNI, string) {
	if l.spec.CNI != "" {
		return CNI(shown(l.spec.CNI)), "spec.cni"
	}
	found := l.evidence()
	if strong := slices.DeleteFunc(slices.Clone(found), func(e evidence) bool { return !e.strong }); len(strong) > 0 {
		found = strong
	}
	slices.SortFunc(found, func(a, b evidence) int {
		return cmp.Or(cmp.Compare(a.cni, b.cni), cmp.Compare(a.how, b.how))
	})
	found = slices.CompactFunc(found, func(a, b evidence) bool { return a.cni == b.cni })
	const next = "name it in spec.cni"
	switch len(found) {
	case 0:
		l.problems.add(CNIUnknown, next, "the CNI cannot be told: there are no objects of one that is known")
		return Unknown, ""
	case 1:
		return found[0].cni, found[0].how
	}
	var said []string
	for _, e := range found {
		said = append(said, fmt.Sprintf("%s (%s)", e.cni, e.how))
	}
	l.ambiguous = true
	l.problems.add(CNIAmbiguous, next, "the CNI cannot be told: there are objects of %s", strings.Join(said, ", "))
	return Unknown, ""
}

func (l *learner) evidence() (out []evidence) {
	speaks := func(cni CNI, strong, when bool, how string) {
		if when {
			out = append(out, evidence{cni, how, strong})
		}
	}
	blocks := l.blocks()
	speaks(Calico, true, len(blocks) > 0, "nodes have blocks of Calico's IPAM")
	speaks(Calico, false, len(l.pools()) > 0, "there are IPPools")
	speaks(Calico, false, l.denied(resourcePools), "there is the API of IPPools")
	speaks(Calico, true, l.config(calicoConfig).Data.Etcd != "", "the ConfigMap "+calicoConfig+" has etcd_endpoints")

	for _, m := range l.flannels() {
		speaks(Flannel, true, true, "there is the ConfigMap "+m.Metadata.Namespace+"/"+m.Metadata.Name)
	}
	marked := slices.ContainsFunc(l.facts.Nodes, func(n Node) bool { return n.Metadata.Annotations.Flannel != "" })
	speaks(Flannel, false, marked, "nodes have annotations of Flannel")

	if c := l.config(ciliumConfig); c.Metadata.Name != "" {
		chained := c.Data.Chaining != "" && c.Data.Chaining != "none" || c.Data.IPAM == "delegated-plugin"
		speaks(Cilium, !chained, true, "there is the ConfigMap "+c.Metadata.Namespace+"/"+ciliumConfig)
	}
	speaks(Cilium, false, len(l.facts.CiliumNodes) > 0, "there are CiliumNodes")
	speaks(Cilium, false, l.denied(resourceCiliumNodes), "there is the API of CiliumNodes")

	speaks(KubeRouter, true, l.config(kubeRouterCfg).Metadata.Name != "",
		"there is the ConfigMap "+kubeSystem+"/"+kubeRouterCfg)
	return out
}

// config is the ConfigMap of a name, in the first of the namespaces where it is looked for.
func (l *learner) config(name string) ConfigMap {
	for _, at := range ConfigMaps() {
		for _, m := range l.facts.ConfigMaps {
			if at.Name == name && m.Metadata.Name == name && m.Metadata.Namespace == at.Namespace {
				return m
			}
		}
	}
	return ConfigMap{}
}

// flannels are the ConfigMaps that have a network of Flannel, in the order in which they are looked for.
func (l *learner) flannels() (out []ConfigMap) {
	for _, at := range ConfigMaps() {
		for _, m := range l.facts.ConfigMaps {
			if m.Metadata.Name == at.Name && m.Metadata.Namespace == at.Namespace && m.Data.NetConf != "" {
				out = append(out, m)
			}
		}
	}
	return out
}

// pools are the IPPools that Calico gives addresses of to pods.
func (l *learner) pools() (out []IPPool) {
	for _, p := range l.facts.Pools {
		ours, uses := p.Metadata.Labels.ManagedBy == managedBy, p.Spec.AllowedUses
		if !p.Spec.Disabled && !ours && (len(uses) == 0 || slices.Contains(uses, "Workload")) {
			out = append(out, p)
		}
	}
	return out
}

// blocks are those that nodes of the cluster have. Blocks of other nodes are left of nodes that were deleted.
func (l *learner) blocks() (out []BlockAffinity) {
	for _, b := range l.facts.Blocks {
		s := b.Spec
		if s.State == "confirmed" && !bool(s.Deleted) && s.Type != "virtual" && l.has(s.Node) {
			out = append(out, b)
		}
	}
	return out
}

// has reports whether the cluster has a node, or may have it.
func (l *learner) has(node string) bool {
	if l.names == nil {
		l.names = make(map[string]bool, len(l.facts.Nodes))
		for _, n := range l.facts.Nodes {
			l.names[n.Metadata.Name] = true
		}
	}
	return l.names[node] || l.partial(resourceNodes)
}
