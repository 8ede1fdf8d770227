// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// inputs are what is decided about: clusters in the order of their objects, with their nodes, and then those that only
// have nodes.
func inputs(clusters []objects.Cluster, nodes []objects.ClusterNode) []accept.Cluster {
	out, at := make([]accept.Cluster, len(clusters)), make(map[string]int, len(clusters))
	for i := range clusters {
		out[i] = cluster(&clusters[i])
		at[clusters[i].Name] = i
	}
	for i := range nodes {
		name := nodes[i].Spec.ClusterName
		k, there := at[name]
		if !there {
			k = len(out)
			out, at[name] = append(out, accept.Cluster{Name: name, Gone: true}), k
		}
		n, broken := node(&nodes[i])
		out[k].Nodes = append(out[k].Nodes, n)
		note(&out[k], broken)
	}
	return out
}

func note(c *accept.Cluster, broken string) {
	if c.Broken == "" {
		c.Broken = broken
	}
}

func cluster(o *objects.Cluster) accept.Cluster {
	c := accept.Cluster{Name: o.Name, Created: o.CreationTimestamp.Time}
	c.Accepted = meta.IsStatusConditionTrue(o.Status.Conditions, objects.ConditionRangesAccepted)
	for _, text := range o.Status.Accepted {
		if p, err := netip.ParsePrefix(text); err == nil {
			c.Held = append(c.Held, p)
		}
	}
	for _, r := range o.Status.Mapped {
		if m, err := mapping.Parse(o.Name, string(r.CIDR), string(r.As)); err == nil {
			c.Was = append(c.Was, m)
		}
	}
	take := func(into *[]netip.Prefix, text string) {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p != p.Masked():
			note(&c, fmt.Sprintf("%.64q is no CIDR without host bits", text))
			return
		case o.Spec.IPFamily == v1alpha1.FamilyIPv4 && p.Addr().Is6(),
			o.Spec.IPFamily == v1alpha1.FamilyIPv6 && p.Addr().Is4():
			into = &c.Unlinked
		}
		if !slices.Contains(*into, p) {
			*into = append(*into, p)
		}
	}
	for _, r := range o.Status.PodCIDRs {
		take(&c.Pods, string(r.CIDR))
	}
	for _, text := range o.Spec.ClusterPodCIDRs {
		take(&c.Pods, text)
	}
	for _, r := range o.Status.ServiceCIDRs {
		take(&c.Services, string(r.CIDR))
	}
	for _, there := range slices.Sorted(maps.Keys(o.Spec.GlobalCIDRsMap)) {
		m, err := mapping.Parse(o.Name, there, string(o.Spec.GlobalCIDRsMap[there]))
		if err != nil {
			note(&c, "globalCIDRsMap: "+err.Error())
			continue
		}
		c.Mapped = append(c.Mapped, m)
	}
	return c
}

func node(o *objects.ClusterNode) (n accept.Node, broken string) {
	n = accept.Node{Name: o.Spec.NodeName, Created: o.CreationTimestamp.Time, Key: o.Spec.PublicKey}
	n.Order, _ = strconv.ParseUint(o.Annotations[objects.AnnotationOrder], 10, 64) // 0: it is not noted yet
	n.Marked = o.Annotations[objects.AnnotationDoubled]
	for _, text := range o.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			broken = fmt.Sprintf("node %s: %.64q is no CIDR without host bits", n.Name, text)
			continue
		}
		n.Pods = append(n.Pods, p)
	}
	for _, text := range []string{o.Spec.Overlay6, o.Spec.Overlay4} {
		a, err := netip.ParseAddr(text)
		if err == nil && a.Zone() == "" {
			n.Overlay = append(n.Overlay, a.Unmap())
		} else if text != "" {
			broken = fmt.Sprintf("node %s: %.64q is no address", n.Name, text)
		}
	}
	return n, broken
}
