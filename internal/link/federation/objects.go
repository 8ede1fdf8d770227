// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// defaultPort and ipsecPort are where a node with an elastic address listens that states no endpoint, by its engine.
const defaultPort, ipsecPort = 51820, 4500

// condition is one of an object's status.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// clusterObject has the fields of a Cluster that a node uses.
type clusterObject struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec   v1alpha1.ClusterSpec `json:"spec"`
	Status struct {
		PodCIDRs []struct {
			CIDR string `json:"cidr"`
		} `json:"podCIDRs,omitempty"`
		ServiceCIDRs []struct {
			CIDR string `json:"cidr"`
		} `json:"serviceCIDRs,omitempty"`
		Mapped []struct {
			CIDR string `json:"cidr"`
			As   string `json:"as"`
		} `json:"mapped,omitempty"`
		// Accepted are the ranges that the host cluster has accepted, whatever the member states just now.
		Accepted   []string    `json:"accepted,omitempty"`
		Conditions []condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

// nodeObject has the fields of a ClusterNode that a node uses.
type nodeObject struct {
	Metadata struct {
		Name        string    `json:"name"`
		Generation  int64     `json:"generation,omitempty"`
		Created     time.Time `json:"creationTimestamp,omitzero"`
		Annotations struct {
			// Created is, of a copy, when the host cluster got the original. A member cannot write it there.
			Created string `json:"tombolo.dev/created,omitempty"` // AnnotationCreated of the member's controller
			// Order is which of those of one second the host cluster got first. No member can write it there.
			Order string `json:"tombolo.dev/order,omitempty"` // AnnotationOrder of the host's controller
			// Doubled is why it lost to another one once. No member can write it there.
			Doubled string `json:"tombolo.dev/doubled,omitempty"` // AnnotationDoubled of the host's controller
		} `json:"annotations,omitzero"`
	} `json:"metadata"`
	Spec   v1alpha1.ClusterNodeSpec `json:"spec"`
	Status struct {
		NodeStatus string `json:"nodeStatus,omitempty"`
	} `json:"status,omitempty"`
}

// refused is an object that does not count, and why.
func refused(kind, name, why string, args ...any) error {
	return fault.Newf(fault.CodeRange, "the %s %q does not count", kind, name).Whyf(why, args...).
		Hint("'kubectl describe' shows the object; 'tombolo link check' looks at all of them")
}

// readCluster checks an object; its ranges that are not those of the linked families are left out. One that does not
// count has its name and what it states all the same.
func readCluster(raw json.RawMessage) (out statedCluster, err error) {
	var o clusterObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return out, refused(v1alpha1.KindCluster, "", "it cannot be read: %v", err)
	}
	name := o.Metadata.Name
	out.Name, out.stated = name, statedOf(o)
	i := slices.IndexFunc(o.Status.Conditions, func(c condition) bool { return c.Type == "RangesAccepted" })
	switch {
	case name == "":
		return out, refused(v1alpha1.KindCluster, name, "it has no name")
	case i < 0 || o.Status.Conditions[i].Status == "Unknown":
		return out, refused(v1alpha1.KindCluster, name, "the host cluster has not accepted its ranges yet")
	case o.Status.Conditions[i].Status != "True":
		return out, refused(v1alpha1.KindCluster, name, "its ranges are refused: %.300s", o.Status.Conditions[i].Message)
	}
	out.Gateway, out.spec = o.Spec.NetworkType == v1alpha1.NetworkGateway, o.Spec
	if out.Mapped, err = readMapped(o); err != nil {
		return out, err
	}
	out.held = parsed(o.Status.Accepted)
	accepted := func(p netip.Prefix) bool { return len(within([]netip.Prefix{p}, out.held)) > 0 }
	take := func(into *[]netip.Prefix, cidr string) {
		p, bad := parse(cidr)
		switch {
		case bad != nil:
			err = refused(v1alpha1.KindCluster, name, "%v", bad)
		// Also what it is mapped to: nothing leads to ranges of another cluster.
		case linked(o.Spec.IPFamily, p) && accepted(p) && accepted(out.Outside(p)) && !slices.Contains(*into, p):
			*into = append(*into, p)
		}
	}
	for _, c := range o.Status.PodCIDRs {
		take(&out.Pods, c.CIDR)
	}
	for _, c := range o.Spec.ClusterPodCIDRs {
		take(&out.Pods, c)
	}
	for _, c := range o.Status.ServiceCIDRs {
		take(&out.Services, c.CIDR)
	}
	return out, err
}

// statedOf are the ranges that a cluster says are its own, by its own addresses and by those that others know.
func statedOf(o clusterObject) []netip.Prefix {
	texts := slices.Concat(o.Spec.ClusterPodCIDRs, o.Status.Accepted)
	for _, c := range o.Status.PodCIDRs {
		texts = append(texts, c.CIDR)
	}
	for _, c := range o.Status.ServiceCIDRs {
		texts = append(texts, c.CIDR)
	}
	return parsed(texts)
}

// parsed are those of some ranges that can be read.
func parsed(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := parse(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// readMapped is by which ranges others know those of a cluster, the most specific first: those that the host cluster
// has accepted last. What the spec has may be newer, and is in effect once the host cluster has judged it.
func readMapped(o clusterObject) (out []mapping.Range, err error) {
	pairs := map[string]string{}
	for _, m := range o.Status.Mapped {
		pairs[m.CIDR] = m.As
	}
	if out, err = mapping.All(o.Metadata.Name, pairs); err != nil {
		return nil, refused(v1alpha1.KindCluster, o.Metadata.Name, "%v", err)
	}
	return out, nil
}

func parse(cidr string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || p != p.Masked() || p.Addr().Is4In6() {
		return p, fmt.Errorf("%.64q is no CIDR without host bits", cidr)
	}
	return p, nil
}

func linked(family string, p netip.Prefix) bool {
	switch family {
	case v1alpha1.FamilyIPv4:
		return p.Addr().Is4()
	case v1alpha1.FamilyIPv6:
		return p.Addr().Is6()
	}
	return true
}

// readNode checks an object, and makes a member of it.
func readNode(raw json.RawMessage, seen time.Time) (n statedNode, err error) {
	var o nodeObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return n, refused(v1alpha1.KindClusterNode, "", "it cannot be read: %v", err)
	}
	s, name := o.Spec, o.Metadata.Name
	if name != v1alpha1.ClusterNodeName(s.ClusterName, s.NodeName) {
		return n, refused(v1alpha1.KindClusterNode, name, "its name is not that of cluster %q and node %q",
			s.ClusterName, s.NodeName)
	}
	n.Name = reach.Name{Cluster: s.ClusterName, Node: s.NodeName}
	n.Gateway, n.Ready = slices.Contains(s.Roles, v1alpha1.RoleGateway), o.Status.NodeStatus == "Ready"
	for _, c := range s.PodCIDRs {
		p, bad := parse(c)
		if bad != nil {
			return n, refused(v1alpha1.KindClusterNode, name, "%v", bad)
		}
		n.Pods = append(n.Pods, p)
	}
	m := v1alpha1.Member{Spec: v1alpha1.MemberObjectSpec{MemberSpec: v1alpha1.MemberSpec{
		PublicKey: s.PublicKey, Pin: s.Pin, Engine: s.Engine, Overlay6: s.Overlay6, Overlay4: s.Overlay4,
		Endpoints: endpoints(s), Mesh: s.Mesh, RelayCluster: s.RelayCluster, Relays: s.Relays}}}
	m.Metadata.Name, m.Metadata.Generation = name, o.Metadata.Generation
	if n.said, err = roster.ReadMember(PartNodes, seen, m); err != nil {
		return n, err
	}
	n.said.Source.Tier = roster.TierLinked
	n.Key, n.created = n.said.Facts.Key, o.Metadata.Created
	if at, err := time.Parse(time.RFC3339, o.Metadata.Annotations.Created); err == nil {
		n.created = at
	}
	n.order, _ = strconv.ParseUint(o.Metadata.Annotations.Order, 10, 64) // 0: an older controller notes none
	n.marked = o.Metadata.Annotations.Doubled
	// It is no Node of this cluster, whatever Nodes here are called.
	n.said.Facts.Node, n.said.Facts.Nodename = name, ""
	return n, nil
}

// endpoints are those that the node states, after its elastic address with each of their ports.
func endpoints(s v1alpha1.ClusterNodeSpec) []string {
	elastic, err := netip.ParseAddr(string(s.ElasticIP))
	if err != nil {
		return s.Endpoints
	}
	var out []string
	add := func(port uint16) {
		if e := netip.AddrPortFrom(elastic, port).String(); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	for _, text := range s.Endpoints {
		e, err := netip.ParseAddrPort(text)
		if a := e.Addr().String(); err == nil && (a == s.IP || a == s.IP6) { // what others see of it is another port
			add(e.Port())
		}
	}
	if len(out) == 0 {
		if s.Engine == v1alpha1.LinkIPsec {
			add(ipsecPort)
		} else {
			add(defaultPort)
		}
	}
	for _, text := range s.Endpoints {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
