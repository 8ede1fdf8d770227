// SPDX-License-Identifier: Apache-2.0

package kosmos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// The bounds of our kinds.
const (
	mostElastic, mostPodCIDRs, mostMapped, mostNICs, mostNodes = 1024, 64, 64, 64, 1024
	mostNodeCIDRs                                              = 256
)

const linkPath = "spec.clusterLinkOptions"

// anyNIC is what Kosmos has for an interface that is detected.
const anyNIC = "*"

func (r *reading) cluster(c cluster, o *owners) {
	if _, err := id.ParseCluster(r.name); err != nil {
		r.refuse("metadata.name", "%v", err)
	}
	l := c.Spec.Link
	o.clusters = append(o.clusters, r.name)
	switch {
	case l == nil:
		r.note(Finding{Field: "spec", Outcome: Gone, Why: "without clusterLinkOptions it is not linked: no Cluster is made"})
		return
	case l.Enable != nil && !*l.Enable:
		r.instead(linkPath+".enable", Gone, "", "it is not linked: no Cluster is made")
		return
	}
	out := v1alpha1.ClusterSpec{
		NetworkType: r.oneOf(linkPath+".networkType", l.NetworkType, v1alpha1.NetworkP2P, v1alpha1.NetworkGateway),
		IPFamily: r.oneOf(linkPath+".ipFamily", l.IPFamily, v1alpha1.FamilyAll, v1alpha1.FamilyIPv4,
			v1alpha1.FamilyIPv6),
		CNI:                  r.oneOf(linkPath+".cni", l.CNI, "calico", "flannel", "cilium", "globalrouter"),
		ClusterPodCIDRs:      r.ranges(linkPath+".clusterpodCIDRs", l.ClusterPodCIDRs, mostPodCIDRs),
		UseExternalAPIServer: l.UseExternal,
		NICs:                 r.nics(l),
	}
	r.most(linkPath+".nodeElasticIPMap", len(l.NodeElasticIPMap), mostElastic)
	for _, node := range sortedKeys(l.NodeElasticIPMap) {
		at := fmt.Sprintf("%s.nodeElasticIPMap[%s]", linkPath, node)
		r.nodeName(at, node)
		if out.NodeElasticIPMap == nil {
			out.NodeElasticIPMap = map[string]v1alpha1.Address{}
		}
		out.NodeElasticIPMap[node] = r.address(at, l.NodeElasticIPMap[node])
	}
	out.GlobalCIDRsMap = r.globalCIDRs(l.GlobalCIDRsMap)
	r.add(r.name, out)
}

// globalCIDRs checks what ranges are mapped to.
func (r *reading) globalCIDRs(from map[string]string) map[string]v1alpha1.Range {
	if len(from) == 0 {
		return nil
	}
	const path = linkPath + ".globalCIDRsMap"
	r.most(path, len(from), mostMapped)
	out := map[string]v1alpha1.Range{}
	var taken []netip.Prefix
	for _, key := range sortedKeys(from) {
		at := fmt.Sprintf("%s[%s]", path, key)
		own, global := r.prefix(at, key), r.prefix(at, from[key])
		if !own.IsValid() || !global.IsValid() {
			continue
		}
		if own.Bits() != global.Bits() || own.Addr().Is4() != global.Addr().Is4() {
			r.refuse(at, "%s is mapped to %s, which is not of the same IP version and length", own, global)
		}
		if i := slices.IndexFunc(taken, global.Overlaps); i >= 0 {
			r.refuse(at, "%s overlaps %s, to which another range is mapped", global, taken[i])
		}
		taken = append(taken, global)
		out[own.String()] = v1alpha1.Range(global.String())
	}
	return out
}

// nics maps the three ways to choose an interface.
func (r *reading) nics(l *linkOptions) []v1alpha1.ClusterNIC {
	var out []v1alpha1.ClusterNIC
	r.most(linkPath+".nicNodeNames", len(l.NICNodeNames), mostNICs-1)
	for i, n := range l.NICNodeNames {
		at := fmt.Sprintf("%s.nicNodeNames[%d]", linkPath, i)
		if len(n.Nodes) == 0 {
			r.note(Finding{Field: at, Outcome: Gone, Why: "it names no node"})
			continue
		}
		r.most(at+".nodeName", len(n.Nodes), mostNodes)
		for j, node := range n.Nodes {
			r.nodeName(fmt.Sprintf("%s.nodeName[%d]", at, j), node)
		}
		out = append(out, v1alpha1.ClusterNIC{Nodes: n.Nodes, Interface: r.nic(at+".interfaceName", n.Interface)})
	}
	reach, detects := strings.CutPrefix(l.AutodetectionMethod, "can-reach=")
	named := l.DefaultNICName != "" && l.DefaultNICName != anyNIC
	switch {
	case l.AutodetectionMethod == "":
	case !detects:
		r.refuse(linkPath+".autodetectionMethod", "%q is not can-reach=ADDRESS", shown(l.AutodetectionMethod))
	case named:
		r.instead(linkPath+".autodetectionMethod", Gone, "", "defaultNICName names the interface")
	default:
		out = append(out, v1alpha1.ClusterNIC{Reach: r.address(linkPath+".autodetectionMethod", reach)})
	}
	if named {
		out = append(out, v1alpha1.ClusterNIC{Interface: r.nic(linkPath+".defaultNICName", l.DefaultNICName)})
	} else {
		r.instead(linkPath+".defaultNICName", Gone, "", "an interface is found without it")
	}
	return out
}

// nic checks the name of an interface.
func (r *reading) nic(path, name string) string {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/: \t\r\n*") {
		r.refuse(path, "%q is not the name of an interface", shown(name))
	}
	return name
}

// oneOf checks a word; an empty one is left out.
func (r *reading) oneOf(path, word string, words ...string) string {
	if word != "" && !slices.Contains(words, word) {
		r.refuse(path, "%q is none of %s", shown(word), strings.Join(words, ", "))
	}
	return word
}

// most bounds what a field has.
func (r *reading) most(path string, n, most int) {
	if n > most {
		r.refuse(path, "it has %d entries, more than %d", n, most)
	}
}

func (r *reading) nodeName(path, name string) {
	if _, err := id.ParseNode(name); err != nil {
		r.refuse(path, "%v", err)
	}
}

// address checks an address.
func (r *reading) address(path, s string) v1alpha1.Address {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		r.refuse(path, "%q is not an IP address", shown(s))
		return ""
	}
	return v1alpha1.Address(a.String())
}

// prefix checks a range. The zero value was refused.
func (r *reading) prefix(path, s string) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		r.refuse(path, "%q is not a CIDR", shown(s))
	case p != p.Masked():
		r.refuse(path, "%s has host bits: %s is meant", p, p.Masked())
	default:
		return p
	}
	return netip.Prefix{}
}

func (r *reading) ranges(path string, list []string, most int) (out []string) {
	r.most(path, len(list), most)
	for i, s := range list {
		if p := r.prefix(fmt.Sprintf("%s[%d]", path, i), s); p.IsValid() {
			out = append(out, p.String())
		}
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
