// SPDX-License-Identifier: Apache-2.0

package kosmos

import (
	"fmt"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// algorithm is the only one that Kosmos has for IPsec.
const algorithm = "rfc4106(gcm(aes))"

// The bounds of our plans: what is more is counted.
const (
	mostRoutes, mostPolicies, mostStates, mostSets = 2048, 4096, 2048, 1024
)

// owners are the clusters and nodes of a file. Kosmos calls the objects of a node CLUSTER-NODE, which does not say
// where the cluster's name ends.
type owners struct {
	clusters []string
	nodes    map[string]string // the name of Kosmos to ours
}

func (r *reading) clusterNode(n clusterNode, o *owners) {
	if _, err := id.ParseCluster(n.Spec.ClusterName); err != nil {
		r.refuse("spec.clusterName", "%v", err)
	}
	r.nodeName("spec.nodeName", n.Spec.NodeName)
	out := v1alpha1.ClusterNodeSpec{
		ClusterName: n.Spec.ClusterName, NodeName: n.Spec.NodeName,
		PodCIDRs: r.ranges("spec.podCIDRs", n.Spec.PodCIDRs, mostNodeCIDRs),
		IP:       r.version("spec.ip", n.Spec.IP, 4), IP6: r.version("spec.ip6", n.Spec.IP6, 6),
	}
	if n.Spec.ElasticIP != "" {
		out.ElasticIP = r.address("spec.elasticip", n.Spec.ElasticIP)
	}
	for i, role := range n.Spec.Roles {
		if strings.EqualFold(role, v1alpha1.RoleGateway) {
			out.Roles = []string{v1alpha1.RoleGateway}
		} else {
			r.refuse(fmt.Sprintf("spec.roles[%d]", i), "%q is not %s", shown(role), v1alpha1.RoleGateway)
		}
	}
	name := v1alpha1.ClusterNodeName(out.ClusterName, out.NodeName)
	if len(name) > mostName {
		r.refuse("metadata.name", "%d characters: the name of our object has %d at most", len(name), mostName)
	}
	r.add(name, out)
	if !r.refused {
		if o.nodes == nil {
			o.nodes = map[string]string{}
		}
		o.nodes[r.name] = name
	}
}

// mostName bounds the name of an object.
const mostName = 253

// version checks an address of one IP version; an empty text is left out.
func (r *reading) version(path, s string, version int) string {
	if s == "" {
		return ""
	}
	a := r.address(path, s)
	if a != "" && strings.Contains(string(a), ":") != (version == 6) {
		r.refuse(path, "%s is not an IPv%d address", a, version)
	}
	return string(a)
}

// of gives our name for the objects of a node.
func (o *owners) of(name string) string {
	if known := o.nodes[name]; known != "" {
		return known
	}
	out := ""
	for _, c := range o.clusters {
		if node, is := strings.CutPrefix(name, c+"-"); is && node != "" {
			if out != "" {
				return "" // a-b-c is of a, or of a-b
			}
			out = v1alpha1.ClusterNodeName(c, node)
		}
	}
	return out
}

func (r *reading) nodeConfig(c nodeConfig, o *owners) {
	name := o.of(r.name)
	if name == "" || len(name) > mostName {
		r.refuse("metadata.name", "it does not say where the cluster's name ends: give the ClusterNode of that name too")
	}
	var out v1alpha1.NodeConfigSpec
	var more v1alpha1.NodeConfigMore
	for i, x := range c.Spec.Routes[:fits(len(c.Spec.Routes), mostRoutes, &more.Routes)] {
		at := fmt.Sprintf("spec.routes[%d].cidr", i)
		out.Routes = append(out.Routes, v1alpha1.PlannedRoute{CIDR: r.rangeOf(at, x.CIDR)})
	}
	for i, x := range c.Spec.XfrmPolicies[:fits(len(c.Spec.XfrmPolicies), mostPolicies, &more.XfrmPolicies)] {
		out.XfrmPolicies = append(out.XfrmPolicies, r.policy(fmt.Sprintf("spec.xfrmpolicies[%d].", i), x))
	}
	for i, x := range c.Spec.XfrmStates[:fits(len(c.Spec.XfrmStates), mostStates, &more.XfrmStates)] {
		at := fmt.Sprintf("spec.xfrmstates[%d].", i)
		if x.SPI == 0 {
			r.refuse(at+"spi", "an SPI is greater than 0")
		}
		out.XfrmStates = append(out.XfrmStates, v1alpha1.XfrmState{
			LeftIP: r.address(at+"leftip", x.LeftIP), RightIP: r.address(at+"rightip", x.RightIP),
			ReqID: int64(x.ReqID), SPI: int64(x.SPI), Algorithm: algorithm,
		})
	}
	for i, x := range c.Spec.IPsetsAvoidMasq[:fits(len(c.Spec.IPsetsAvoidMasq), mostSets, &more.IPsetsAvoidMasq)] {
		at := fmt.Sprintf("spec.ipsetsavoidmasq[%d].", i)
		if x.Name == "" || len(x.Name) > 63 {
			r.refuse(at+"name", "%q is not the name of a set", shown(x.Name))
		}
		entry := v1alpha1.IPSetEntry{CIDR: r.rangeOf(at+"cidr", x.CIDR), Name: x.Name}
		out.IPsetsAvoidMasq = append(out.IPsetsAvoidMasq, entry)
	}
	if more != (v1alpha1.NodeConfigMore{}) {
		out.More = &more
	}
	r.add(name, out)
}

func (r *reading) policy(at string, x policy) v1alpha1.XfrmPolicy {
	out := v1alpha1.XfrmPolicy{
		LeftIP: r.address(at+"leftip", x.LeftIP), LeftNet: r.rangeOf(at+"leftnet", x.LeftNet),
		RightIP: r.address(at+"rightip", x.RightIP), RightNet: r.rangeOf(at+"rightnet", x.RightNet), ReqID: int64(x.ReqID),
	}
	dirs := []string{v1alpha1.XfrmIn, v1alpha1.XfrmOut, v1alpha1.XfrmFwd} // as the kernel counts them
	if x.Dir < 0 || x.Dir >= len(dirs) {
		r.refuse(at+"dir", "%d is none of 0, 1 and 2", x.Dir)
		return out
	}
	out.Dir = dirs[x.Dir]
	return out
}

func (r *reading) rangeOf(path, s string) v1alpha1.Range {
	if p := r.prefix(path, s); p.IsValid() {
		return v1alpha1.Range(p.String())
	}
	return ""
}

// fits counts what a list leaves out.
func fits(n, most int, more *int32) int {
	if n > most {
		*more = int32(n - most) // a file has at most MostBytes
		return most
	}
	return n
}
