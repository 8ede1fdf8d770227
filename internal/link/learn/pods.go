// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// owned is a range of a node.
type owned struct {
	node   string
	prefix netip.Prefix
}

const (
	// podsFrom is where the ranges of the user are from.
	podsFrom = "spec.clusterPodCIDRs"
	// specField is where Kubernetes itself gives ranges to nodes.
	specField = "Node.spec.podCIDRs"
)

// pods are the ranges of pods, and those that nodes have of them.
func (l *learner) pods(cni CNI) ([]Learned, []owned) {
	ranges, nodes, why := l.assigned(cni)
	if len(l.spec.PodRanges) > 0 {
		ranges, why = nil, ""
		for _, p := range l.parse(podsFrom, l.spec.PodRanges) {
			ranges = append(ranges, Learned{p, podsFrom})
		}
	}
	ranges = distinct(ranges)
	switch {
	case why != "":
	case len(ranges) > mostPods:
		why = fmt.Sprintf("they are %d, and at most %d can be linked", len(ranges), mostPods)
	case len(ranges) == 0:
		why = "none that is given can be used"
	default:
		return ranges, nodes
	}
	l.problems.add(PodRangesUnknown, "name them in "+podsFrom, "the ranges of pods are unknown: %s", why)
	return nil, nil
}

// assigned are the ranges that a CNI gives addresses of, or why they are not known.
func (l *learner) assigned(cni CNI) (ranges []Learned, nodes []owned, why string) {
	switch cni {
	case Calico:
		return l.calico()
	case Flannel:
		return l.flannel()
	case Cilium:
		return l.cilium()
	case KubeRouter:
		return l.nodeSpecs(true)
	case Unknown:
		if l.ambiguous {
			return nil, nil, "it cannot be told which CNI gives them"
		}
		for _, r := range []string{resourceConfigMaps, resourcePools, resourceCiliumNodes} {
			if l.partial(r) {
				return nil, nil, "the CNI is unknown, and the reader may not see all that would tell it"
			}
		}
	}
	return l.nodeSpecs(false)
}

func (l *learner) calico() (ranges []Learned, nodes []owned, why string) {
	for _, p := range l.pools() {
		from := "Calico IPPool " + shown(p.Metadata.Name)
		for _, prefix := range l.parse(from, []string{p.Spec.CIDR}) {
			ranges = append(ranges, Learned{prefix, from})
		}
	}
	for _, b := range l.blocks() {
		for _, prefix := range l.parse("BlockAffinity "+shown(b.Metadata.Name), []string{b.Spec.CIDR}) {
			nodes = append(nodes, owned{b.Spec.Node, prefix})
		}
	}
	switch {
	case l.partial(resourcePools):
		return nil, nodes, "not all IPPools of Calico can be read"
	case len(ranges) > 0 && len(nodes) == 0 && !l.partial(resourceBlocks):
		nodes, why = l.calicoHostLocal(distinct(ranges))
	case len(ranges) > 0:
	case l.config(calicoConfig).Data.Etcd != "":
		why = "Calico keeps its IPPools in an etcd of its own, which is not read"
	case len(l.facts.Pools) > 0:
		why = "Calico has no IPPool that is enabled and for pods"
	default:
		why = "Calico has no IPPool"
	}
	return ranges, nodes, why
}

// calicoHostLocal are the ranges of nodes where Calico has pools, but no blocks: the plugin host-local gives the
// addresses of Node.spec. Where these are others, as in clouds to whose CNI Calico adds policies, it is not Calico.
func (l *learner) calicoHostLocal(pools []Learned) (nodes []owned, why string) {
	nodes = slices.DeleteFunc(l.specs(false), func(o owned) bool { return !within(pools, o.prefix) })
	if !slices.ContainsFunc(l.facts.Nodes, Node.Ready) {
		return nil, ""
	}
	if _, _, lacking := l.all(nodes, specField); lacking == "" {
		return nodes, ""
	}
	if l.spec.CNI == "" {
		why = "Calico has IPPools, but nodes have no blocks of them, so that another CNI may give the addresses"
	}
	return nil, why
}

func (l *learner) flannel() (ranges []Learned, nodes []owned, why string) {
	configs := l.flannels()
	if len(configs) == 0 { // as in k3s, which has Flannel built in
		return l.nodeSpecs(false)
	}
	nodes = l.specs(false)
	var last []netip.Prefix
	for i, m := range configs {
		from := "Flannel's ConfigMap " + m.Metadata.Namespace + "/" + m.Metadata.Name
		texts, err := netConf(m.Data.NetConf)
		if err != nil {
			return nil, nodes, from + " has a net-conf.json that cannot be decoded: " + shown(err.Error())
		}
		parsed := merge(l.parse(from, texts))
		if i > 0 && !slices.Equal(parsed, last) {
			return nil, nodes, "two ConfigMaps of Flannel disagree: " + m.Metadata.Namespace + "/" + m.Metadata.Name + " and " +
				configs[i-1].Metadata.Namespace + "/" + configs[i-1].Metadata.Name
		}
		last = parsed
		if i > 0 {
			continue
		}
		for _, p := range parsed {
			ranges = append(ranges, Learned{p, from})
		}
	}
	return ranges, nodes, ""
}

// mostConf bounds net-conf.json.
const mostConf = 64 << 10

// netConf are the networks of a net-conf.json of Flannel. It has IPv4 unless it says otherwise, and IPv6 if it says so.
func netConf(text string) ([]string, error) {
	if len(text) > mostConf {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(text), mostConf)
	}
	conf := struct {
		Network, IPv6Network   string
		EnableIPv4, EnableIPv6 bool
	}{EnableIPv4: true}
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return nil, err
	}
	var out []string
	if conf.EnableIPv4 && conf.Network != "" {
		out = append(out, conf.Network)
	}
	if conf.EnableIPv6 && conf.IPv6Network != "" {
		out = append(out, conf.IPv6Network)
	}
	return out, nil
}

func (l *learner) cilium() (ranges []Learned, nodes []owned, why string) {
	config := l.config(ciliumConfig)
	data := config.Data
	from := "Cilium's ConfigMap " + config.Metadata.Namespace + "/" + ciliumConfig
	switch mode := data.IPAM; {
	case config.Metadata.Name == "":
		return l.all(l.ciliumNodes(), "CiliumNodes")
	case mode == "kubernetes" || mode == "hostscope-legacy":
		return l.nodeSpecs(false)
	case mode == "multi-pool":
		return l.ciliumPools(), l.ciliumNodes(), ""
	case mode == "cluster-pool", mode == "cluster-pool-v2beta", mode == "" && data.Pool4+data.Pool6 != "":
	default:
		return nil, nil, fmt.Sprintf("with the IPAM mode %q, Cilium gives addresses of another network", shown(mode))
	}
	var texts []string
	if data.EnableIPv4 != "false" {
		texts = append(texts, split(data.Pool4)...)
	}
	if data.EnableIPv6 == "true" {
		texts = append(texts, split(data.Pool6)...)
	}
	for _, p := range l.parse(from, texts) {
		ranges = append(ranges, Learned{p, from})
	}
	return ranges, l.ciliumNodes(), ""
}

func (l *learner) ciliumPools() (ranges []Learned) {
	for _, o := range l.facts.CiliumPools {
		from := "CiliumPodIPPool " + shown(o.Metadata.Name)
		for _, p := range l.parse(from, slices.Concat(o.Spec.IPv4.CIDRs, o.Spec.IPv6.CIDRs)) {
			ranges = append(ranges, Learned{p, from})
		}
	}
	return ranges
}

func (l *learner) ciliumNodes() (out []owned) {
	for _, o := range l.facts.CiliumNodes {
		if !l.has(o.Metadata.Name) {
			continue
		}
		texts := o.Spec.IPAM.PodCIDRs
		for _, pool := range o.Spec.IPAM.Pools.Allocated {
			texts = slices.Concat(texts, pool.CIDRs)
		}
		for _, p := range l.parse("CiliumNode "+shown(o.Metadata.Name), texts) {
			out = append(out, owned{o.Metadata.Name, p})
		}
	}
	return out
}

// nodeSpecs are the ranges of all nodes, if each one that works has some.
func (l *learner) nodeSpecs(kubeRouter bool) (ranges []Learned, nodes []owned, why string) {
	return l.all(l.specs(kubeRouter), specField)
}

// specs are the ranges that Node.spec or annotations of kube-router give to nodes.
func (l *learner) specs(kubeRouter bool) (out []owned) {
	for _, n := range l.facts.Nodes {
		texts := n.Spec.PodCIDRs
		if len(texts) == 0 && n.Spec.PodCIDR != "" {
			texts = []string{n.Spec.PodCIDR}
		}
		if mark := n.Metadata.Annotations; kubeRouter && mark.KubeRouterRanges+mark.KubeRouter != "" {
			texts = split(mark.KubeRouterRanges + "," + mark.KubeRouter)
		}
		for _, p := range l.parse("Node "+shown(n.Metadata.Name), texts) {
			out = append(out, owned{n.Metadata.Name, p})
		}
	}
	return out
}

// all are the ranges of nodes as those of the cluster: exactly their addresses, and only if no node that works lacks
// some. One node's range says nothing about those of others.
func (l *learner) all(nodes []owned, what string) ([]Learned, []owned, string) {
	has := map[string]bool{}
	var prefixes []netip.Prefix
	for _, o := range nodes {
		has[o.node] = true
		prefixes = append(prefixes, o.prefix)
	}
	var lacking []string
	for _, n := range l.facts.Nodes {
		if n.Ready() && !has[n.Metadata.Name] {
			lacking = append(lacking, n.Metadata.Name)
		}
	}
	switch {
	case l.partial(resourceNodes) || what != specField && l.partial(resourceCiliumNodes):
		return nil, nil, "not all nodes can be read"
	case len(l.facts.Nodes) == 0:
		return nil, nil, "the cluster has no node"
	case len(nodes) == 0:
		return nil, nil, "no node has a range by " + what
	case len(lacking) > 0:
		return nil, nil, fmt.Sprintf("not all nodes have ranges by %s: %s", what, some(lacking))
	}
	var ranges []Learned
	for _, p := range merge(prefixes) {
		ranges = append(ranges, Learned{p, what + " of all nodes"})
	}
	return ranges, nodes, ""
}

// nodes are the ranges by node that can be used.
func (l *learner) nodes(in []owned, pods []Learned) map[string][]netip.Prefix {
	var outside []string
	in = slices.DeleteFunc(slices.Clone(in), func(o owned) bool {
		if within(pods, o.prefix) {
			return false
		}
		outside = append(outside, fmt.Sprintf("%s of %s", o.prefix, shown(o.node)))
		return true
	})
	if len(outside) > 0 {
		l.problems.add(PodRangesDisagree, "name all ranges of pods in "+podsFrom,
			"nodes have ranges that are not within those of the cluster's pods, and are not used: %s", some(outside))
	}
	in = l.apart(in)
	out := map[string][]netip.Prefix{}
	for _, o := range in {
		out[o.node] = append(out[o.node], o.prefix)
	}
	for node, prefixes := range out {
		out[node] = merge(prefixes)
	}
	return out
}

// apart leaves ranges out that several nodes have.
func (l *learner) apart(in []owned) []owned {
	slices.SortFunc(in, func(a, b owned) int {
		if c := compare(a.prefix, b.prefix); c != 0 {
			return c
		}
		return strings.Compare(a.node, b.node)
	})
	shared := overlapping(in)
	var said []string
	in = slices.DeleteFunc(in, func(o owned) bool {
		if shared[o.prefix] {
			said = append(said, fmt.Sprintf("%s of %s", o.prefix, shown(o.node)))
		}
		return shared[o.prefix]
	})
	if len(said) > 0 {
		l.problems.add(NodeRangesOverlap, "",
			"several nodes have the same addresses, which are not used for any: %s", some(said))
	}
	return in
}

// overlapping are the ranges of which an address belongs to two nodes. Two ranges are disjoint, or one contains the
// other, which stands before it.
func overlapping(in []owned) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	type owner struct {
		owned
		many bool // other nodes have the same range
	}
	var around []owner // the ranges that contain the current one, the widest first, each with its first node
	for _, o := range in {
		for len(around) > 0 && !contains(around[len(around)-1].prefix, o.prefix) {
			around = around[:len(around)-1]
		}
		for _, a := range around {
			if a.node != o.node || a.many {
				out[a.prefix], out[o.prefix] = true, true
			}
		}
		if n := len(around); n == 0 || around[n-1].prefix != o.prefix {
			around = append(around, owner{owned: o})
		} else if around[n-1].node != o.node {
			around[n-1].many = true
		}
	}
	return out
}
