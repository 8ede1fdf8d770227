// SPDX-License-Identifier: Apache-2.0

// Package learn decides, from objects of a Kubernetes cluster, which ranges its pods and its services have, which
// ranges the pods of each node have, and which CNI assigns them. What the user says wins. What cannot be told is a
// problem, and is never completed by a guess: the range of one node says nothing about that of a cluster.
//
// It does not read the objects, and does not compare clusters with each other. Where a CNI lends addresses of one node
// to another, as Calico does when its pools run out, the ranges of nodes are those of the owner.
package learn

import (
	"net/netip"
	"slices"
	"strings"
)

// Spec is what the user says about a cluster.
type Spec struct {
	CNI               string   // spec.cni; empty or auto: it is learned
	PodRanges         []string // spec.clusterPodCIDRs; empty: they are learned
	ExternalAPIServer bool     // spec.useExternalAPIServer: pods of the cluster are not its API server
}

// Matters reports whether the objects of a CNI have to be read.
func (s Spec) Matters(cni CNI) bool { return s.CNI == "" || s.CNI == "auto" || s.CNI == string(cni) }

// Facts are the objects of a cluster that matter. Their order does not.
type Facts struct {
	Nodes        []Node
	ServiceCIDRs []ServiceCIDR
	APIServers   []Pod // of kube-system, with the label component=kube-apiserver
	Pools        []IPPool
	Blocks       []BlockAffinity
	CiliumNodes  []CiliumNode
	CiliumPools  []CiliumPodIPPool
	ConfigMaps   []ConfigMap // those of ConfigMaps that there are
	Answers      []string    // to invalid Services: the texts of the refusals

	ServiceCIDRAPI bool     // the API server has ServiceCIDR in its final version: Kubernetes 1.33 or newer
	Denied         []Right  // that the reader lacks
	Broken         []Broken // objects that cannot be decoded
	TooMany        []string // resources of which there are more than their bound
}

// Right is what the reader has to be allowed to do.
type Right struct {
	Verb      string
	Resource  string // with its group, such as ippools.crd.projectcalico.org
	Namespace string // empty: of the cluster
	Name      string // empty: all
}

func (r Right) String() string {
	out := r.Verb + " " + r.Resource
	if r.Name != "" {
		out += " " + r.Name
	}
	if r.Namespace != "" {
		out += " in the namespace " + r.Namespace
	}
	return out
}

// Broken is an object that cannot be decoded.
type Broken struct {
	Object string // such as "IPPool default-ipv4-ippool"
	Why    string
}

// Learned is a range, and where it was learned.
type Learned struct {
	Prefix netip.Prefix
	From   string // such as "Calico IPPool default-ipv4-ippool"
}

// Ranges are those of a cluster, in order. None contains another one of its list.
type Ranges struct {
	Pods, Services []Learned
}

// Result is what could be learned.
type Result struct {
	CNI     CNI
	CNIFrom string // how it was told; empty if it is unknown
	Ranges  Ranges
	// Nodes has the ranges of the pods of each node that has some; all are within Ranges.Pods, and no two nodes share
	// an address.
	Nodes    map[string][]netip.Prefix
	Problems []Problem // in order
}

// From decides.
func From(f Facts, s Spec) Result {
	l := newLearner(f, s)
	l.unread()
	var out Result
	out.CNI, out.CNIFrom = l.cni()
	var nodes []owned
	out.Ranges.Pods, nodes = l.pods(out.CNI)
	out.Ranges.Services = l.services()
	out.Nodes = l.nodes(nodes, out.Ranges.Pods)
	l.overlap(out.Ranges)
	out.Problems = l.problems.all()
	return out
}

// learner is one decision.
type learner struct {
	facts    Facts
	spec     Spec
	problems problems

	ambiguous bool            // there are objects of several CNIs
	names     map[string]bool // of nodes, once they were asked for
}

func newLearner(f Facts, s Spec) *learner {
	if s.CNI == "auto" {
		s.CNI = ""
	}
	return &learner{facts: f, spec: s}
}

// unread says what could not be read.
func (l *learner) unread() {
	for _, r := range l.facts.Denied {
		l.problems.add(RightMissing, "give the reader this right, or say in the spec what it would learn",
			"the reader may not %s", shown(r.String()))
	}
	for _, b := range l.facts.Broken {
		l.problems.add(ObjectUnreadable, "", "%s cannot be decoded: %s", shown(b.Object), shown(b.Why))
	}
	for _, what := range l.facts.TooMany {
		l.problems.add(TooManyObjects, "say in the spec what they would tell", "there are too many %s to read", shown(what))
	}
}

// denied reports whether the reader lacks a right for a resource.
func (l *learner) denied(resource string) bool {
	return slices.ContainsFunc(l.facts.Denied, func(r Right) bool { return is(r.Resource, resource) })
}

// partial reports whether not all objects of a resource were read.
func (l *learner) partial(resource string) bool {
	many := slices.ContainsFunc(l.facts.TooMany, func(what string) bool { return is(what, resource) })
	return many || l.denied(resource)
}

// is reports whether a resource with its group is the one of a name. Calico has its resources in one of two groups.
func is(resource, name string) bool {
	plural, _, _ := strings.Cut(resource, ".")
	return plural == name
}

// overlap looks for addresses that are both of pods and of services: packets to them arrive at one of both.
func (l *learner) overlap(r Ranges) {
	for _, p := range r.Pods {
		for _, s := range r.Services {
			if p.Prefix.Overlaps(s.Prefix) {
				l.problems.add(RangesOverlap, "give pods a range of their own, or name theirs in spec.clusterPodCIDRs",
					"the range %s of pods (%s) overlaps %s of services (%s)", p.Prefix, p.From, s.Prefix, s.From)
				break
			}
		}
	}
}
