// SPDX-License-Identifier: Apache-2.0

package kosmos

import "github.com/tombolo-io/tombolo/api/v1alpha1"

// Outcome is what became of a field.
type Outcome string

// The outcomes.
const (
	Mapped   Outcome = "mapped"   // its value stands in a field of ours
	Renewed  Outcome = "renewed"  // a controller finds the value out again
	Gone     Outcome = "gone"     // it has no meaning any more
	Withheld Outcome = "withheld" // a secret, which is not copied
	Refused  Outcome = "refused"  // it cannot be used: its object is left out
)

// Row says what becomes of a field of Kosmos, and of all below it.
type Row struct {
	Kind    string
	Field   string // [] after a list
	Outcome Outcome
	To      string // the field of ours, of the object of the same kind
	Why     string // why there is none, or what to know about it
}

// Rows is the table of all fields.
func Rows() []Row {
	var out []Row
	for _, of := range []struct {
		kind string
		rows []Row
	}{
		{v1alpha1.KindCluster, clusterRows()}, {v1alpha1.KindClusterNode, clusterNodeRows()},
		{v1alpha1.KindNodeConfig, nodeConfigRows()},
	} {
		for _, r := range of.rows {
			r.Kind = of.kind
			out = append(out, r)
		}
	}
	return out
}

const (
	noDevices   = ", and there are none"
	notCopied   = "labels, annotations and what Kubernetes adds are not copied: annotations hold whole objects, with keys"
	noLeafNodes = "virtual nodes are no part of linked clusters"
)

// mapped is a row with nothing to add.
func mapped(field, to string) Row { return Row{Field: field, Outcome: Mapped, To: to} }

func gone(field, why string) Row { return Row{Field: field, Outcome: Gone, Why: why} }

func clusterRows() []Row {
	const link = "spec.clusterLinkOptions."
	return []Row{
		mapped("metadata.name", "metadata.name"),
		gone("metadata", notCopied),
		{Field: "spec.kubeconfig", Outcome: Withheld,
			Why: "no object holds credentials, and a member cluster has none of another"},
		gone("spec.namespace", "it is that of the controller's manifest"),
		gone("spec.imageRepository", "it is that of the controller's manifest"),
		gone(link+"enable", "a cluster is linked while its Cluster is there"),
		mapped(link+"cni", "spec.cni"),
		mapped(link+"networkType", "spec.networkType"),
		mapped(link+"ipFamily", "spec.ipFamily"),
		gone(link+"useIPPool", "packets between clusters keep their address without IPPools for it"),
		gone(link+"localCIDRs", "they are for addresses of VXLAN devices"+noDevices),
		gone(link+"bridgeCIDRs", "they are for addresses of VXLAN devices"+noDevices),
		mapped(link+"nicNodeNames", "spec.nics"),
		mapped(link+"defaultNICName", "spec.nics"),
		mapped(link+"autodetectionMethod", "spec.nics"),
		mapped(link+"globalCIDRsMap", "spec.globalCIDRsMap"),
		mapped(link+"nodeElasticIPMap", "spec.nodeElasticIPMap"),
		mapped(link+"clusterpodCIDRs", "spec.clusterPodCIDRs"),
		mapped(link+"useexternalapiserver", "spec.useExternalAPIServer"),
		gone("spec.clusterTreeOptions", noLeafNodes),
		{Field: "status.clusterLinkStatus.podCIDRs", Outcome: Renewed, To: "status.podCIDRs"},
		{Field: "status.clusterLinkStatus.serviceCIDRs", Outcome: Renewed, To: "status.serviceCIDRs"},
		gone("status.clusterTreeStatus", noLeafNodes),
	}
}

func clusterNodeRows() []Row {
	return []Row{
		{Field: "metadata.name", Outcome: Mapped, To: "metadata.name", Why: "as CLUSTER.NODE"},
		gone("metadata", notCopied),
		mapped("spec.clusterName", "spec.clusterName"),
		mapped("spec.nodeName", "spec.nodeName"),
		mapped("spec.podCIDRs", "spec.podCIDRs"),
		mapped("spec.ip", "spec.ip"),
		mapped("spec.ip6", "spec.ip6"),
		mapped("spec.elasticip", "spec.elasticIP"),
		mapped("spec.roles", "spec.roles"),
		gone("spec.interfaceName", "other clusters need the addresses alone; nics of the Cluster choose the interface"),
		{Field: "status.nodeStatus", Outcome: Renewed, To: "status.nodeStatus"},
	}
}

func nodeConfigRows() []Row {
	out := []Row{
		{Field: "metadata.name", Outcome: Mapped, To: "metadata.name", Why: "as CLUSTER.NODE"},
		gone("metadata", notCopied),
		gone("spec.devices", "tunnels are WireGuard or IPsec, without VXLAN devices"),
		mapped("spec.routes[].cidr", "spec.routes[].cidr"),
		gone("spec.routes[].gw", "it is the address of a VXLAN device"+noDevices),
		gone("spec.routes[].dev", "it is a VXLAN device"+noDevices),
		gone("spec.iptables", "each node plans an nftables table of its own"),
		gone("spec.fdbs", "they are neighbours of VXLAN devices"+noDevices),
		gone("spec.arps", "they are neighbours of VXLAN devices"+noDevices),
	}
	for _, f := range [][2]string{
		{"leftip", "leftIP"}, {"leftnet", "leftNet"}, {"rightip", "rightIP"}, {"rightnet", "rightNet"}, {"reqid", "reqID"},
	} {
		out = append(out, mapped("spec.xfrmpolicies[]."+f[0], "spec.xfrmPolicies[]."+f[1]))
	}
	out = append(out, Row{Field: "spec.xfrmpolicies[].dir", Outcome: Mapped, To: "spec.xfrmPolicies[].dir",
		Why: "0 is in, 1 is out, 2 is fwd"})
	for _, f := range [][2]string{{"leftip", "leftIP"}, {"rightip", "rightIP"}, {"reqid", "reqID"}, {"spi", "spi"}} {
		out = append(out, mapped("spec.xfrmstates[]."+f[0], "spec.xfrmStates[]."+f[1]))
	}
	return append(out,
		Row{Field: "spec.xfrmstates[].PSK", Outcome: Withheld,
			Why: "no object holds keys: two nodes agree on them in a handshake"},
		mapped("spec.ipsetsavoidmasq[].cidr", "spec.ipsetsAvoidMasq[].cidr"),
		mapped("spec.ipsetsavoidmasq[].name", "spec.ipsetsAvoidMasq[].name"),
		gone("status.lastChangeTime", "status.appliedGeneration says what is applied"),
		gone("status.lastSyncTime", "status.appliedGeneration says what is applied"),
	)
}

// otherKinds are those of the same group that do not link clusters, and why they have no counterpart.
func otherKinds() map[string]string {
	const tree = "it belongs to virtual nodes, which are no part of linked clusters"
	return map[string]string{
		"ResourceCache": "nodes reach no API server through a proxy", "DistributionPolicy": tree,
		"ClusterDistributionPolicy": tree, "Knode": tree, "PodConvertPolicy": tree, "ClusterPodConvertPolicy": tree,
		"DaemonSet": tree, "ShadowDaemonSet": tree, "WorkloadPolicy": tree,
	}
}
