// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Kubernetes is an API server at which nodes find each other, as the configuration
// names it, checked.
type Kubernetes struct {
	Kubeconfig       string // empty: what Kubernetes gives to a pod
	Node             string // of this machine; empty only if nothing is written
	ReadMembers      bool
	ReadAnnotations  bool
	WriteMember      bool
	WriteAnnotations bool
	Lease            time.Duration
}

// kubernetes checks sources.kubernetes. The Node's name is this node's name in
// Kubernetes, by which what it says here is linked with what it says elsewhere.
func (v *validator) kubernetes(raw *v1alpha1.MeshConfig) *Kubernetes {
	in := raw.Sources.Kubernetes
	if in == nil {
		return nil
	}
	const at = "sources.kubernetes"
	k := &Kubernetes{Kubeconfig: in.Kubeconfig, Lease: cmp.Or(in.Lease.Duration, limit.KubeLease)}
	switch {
	case in.Kubeconfig == "" && !in.InCluster:
		v.add(at, "it is not said where the API server is: kubeconfig: FILE, or inCluster: true in a pod")
	case in.Kubeconfig != "" && in.InCluster:
		v.add(at+".inCluster", "kubeconfig stands there too: give one of them")
	}
	if k.Lease < time.Minute || k.Lease > limit.DiscoveryTTL {
		v.add(at+".lease", "%v is not within 1m and %v", k.Lease, limit.DiscoveryTTL)
	}
	k.ReadMembers, k.ReadAnnotations = v.kubeParts(at+".read", in.Read)
	k.WriteMember, k.WriteAnnotations = v.kubeParts(at+".write", in.Write)
	writes := k.WriteMember || k.WriteAnnotations
	if !writes && !k.ReadMembers && !k.ReadAnnotations && !raw.Announce.PodRanges {
		v.add(at, "nothing is read and nothing written: leave it out")
	}
	k.Node = cmp.Or(in.Node, raw.Announce.Nodename)
	if k.Node == "" && in.InCluster && v.read {
		k.Node = os.Getenv("NODE_NAME")
	}
	switch {
	case k.Node != "" && !nodeName(k.Node):
		v.add(at+".node", "%q is no name of a Node: kubectl get nodes shows it", shown(k.Node))
	case in.Node != "" && raw.Announce.Nodename != "" && in.Node != raw.Announce.Nodename:
		v.add(at+".node", "%q is not announce.nodename, %q: a node has one name in Kubernetes", shown(in.Node),
			shown(raw.Announce.Nodename))
	case k.Node == "" && writes && (v.read || !in.InCluster):
		v.add(at+".node", "the name of this machine's Node is needed to write: "+
			"node, announce.nodename, in a pod NODE_NAME; or write: []")
	}
	raw.Announce.Nodename = cmp.Or(raw.Announce.Nodename, k.Node)
	return k
}

// podRanges checks announce.podRanges: it is known from where, and of which Node.
func (v *validator) podRanges(c Config, in *v1alpha1.MeshKubernetes) {
	switch {
	case !c.PodRanges:
	case in == nil:
		v.add("announce.podRanges", "they are read of this machine's Node: sources.kubernetes is needed")
	case c.Kubernetes.Node == "" && (v.read || !in.InCluster):
		v.add("announce.podRanges", "they are read of this machine's Node: its name is needed, sources.kubernetes.node")
	}
}

// linked checks sources.linked: the objects are at the API server, and one of them is this node.
func (v *validator) linked(c Config, in v1alpha1.MeshSources) string {
	if in.Linked == nil {
		return ""
	}
	name, err := id.ParseCluster(in.Linked.Cluster)
	if err != nil {
		v.add("sources.linked.cluster", "%v", err)
	}
	switch {
	case c.Kubernetes == nil:
		v.add("sources.linked", "the objects of linked clusters are read of an API server: sources.kubernetes is needed")
	case c.Kubernetes.Node == "" && (v.read || !in.Kubernetes.InCluster):
		v.add("sources.linked", "this node is one of a linked cluster: its name is needed, sources.kubernetes.node")
	}
	return name.String()
}

// kubeParts reads a list of members and annotations.
func (v *validator) kubeParts(at string, in *[]string) (members, annotations bool) {
	if in == nil {
		return true, false
	}
	for i, s := range *in {
		here := fmt.Sprintf("%s[%d]", at, i)
		if s != "members" && s != "annotations" {
			v.add(here, "%q is neither members nor annotations", shown(s))
		}
		if first := slices.Index(*in, s); first < i {
			v.add(here, "%q stands at %s[%d] too", shown(s), at, first)
			return
		}
		members, annotations = members || s == "members", annotations || s == "annotations"
	}
	return members, annotations
}

// nodeName reports whether a name can be that of a Node: a DNS subdomain (RFC 1123).
func nodeName(s string) bool {
	for _, label := range strings.Split(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || label[0] == '-' ||
			label[len(label)-1] == '-' {
			return false
		}
	}
	return len(s) <= limit.RosterText
}
