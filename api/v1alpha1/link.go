// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// The kinds of linked clusters: objects of Kubernetes, of scope Cluster.
const (
	KindCluster     = "Cluster"
	KindClusterNode = "ClusterNode"
	KindNodeConfig  = "NodeConfig"
)

// How the nodes of two clusters are connected.
const (
	NetworkP2P     = "p2p"     // each node with each one of the other cluster
	NetworkGateway = "gateway" // through the gateways of both
)

// What encrypts packets between clusters.
const (
	LinkAuto      = "auto"
	LinkWireGuard = "wireguard"
	LinkIPsec     = "ipsec"
)

// The IP versions that are linked.
const (
	FamilyAll  = "all"
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// RoleGateway is the role of a node through which its cluster is reached.
const RoleGateway = "gateway"

// ClusterSpec is what people say of a linked cluster. The object's name is that of the cluster.
// +kubebuilder:object:generate=true
type ClusterSpec struct {
	// Engine is what should encrypt packets between clusters: auto (the default), wireguard or ipsec. What does is said by
	// mesh.engine of each node, and status.engineReason of a ClusterNode says where that differs.
	// +kubebuilder:default=auto
	// +kubebuilder:validation:Enum=auto;wireguard;ipsec
	Engine string `json:"engine,omitempty"`
	// NetworkType is p2p (the default), where each node reaches each one of other clusters itself, or gateway, where
	// packets pass through a gateway of each cluster.
	// +kubebuilder:default=p2p
	// +kubebuilder:validation:Enum=p2p;gateway
	NetworkType string `json:"networkType,omitempty"`
	// IPFamily is which IP versions of pods and services are linked: all (the default), ipv4 or ipv6.
	// +kubebuilder:default=all
	// +kubebuilder:validation:Enum=all;ipv4;ipv6
	IPFamily string `json:"ipFamily,omitempty"`
	// CNI says where the ranges of pods are learned: auto (the default) looks for each of them. With globalrouter and
	// other they are those of the Nodes and clusterPodCIDRs.
	// +kubebuilder:default=auto
	// +kubebuilder:validation:Enum=auto;calico;flannel;cilium;globalrouter;other
	CNI string `json:"cni,omitempty"`
	// MTU is at most that of packets to other clusters, in steps of 20 bytes: what is found out of a way may be less.
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=9000
	MTU int `json:"mtu,omitempty"`
	// NodeElasticIPMap maps names of nodes to the public addresses that a NAT in front of them has for each alone.
	// +kubebuilder:validation:MaxProperties=1024
	NodeElasticIPMap map[string]Address `json:"nodeElasticIPMap,omitempty"`
	// ClusterPodCIDRs are ranges of pods, beside those that are learned.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="it is not a CIDR without host bits"
	ClusterPodCIDRs []string `json:"clusterPodCIDRs,omitempty"`
	// UseExternalAPIServer says that kube-apiserver is no pod of the cluster, so that its flags cannot be read: the
	// ranges of services are asked of the API.
	UseExternalAPIServer bool `json:"useExternalAPIServer,omitempty"`
	// GlobalCIDRsMap maps ranges of this cluster to those by which other clusters reach them, of the same IP version and
	// length. With it, clusters with equal ranges can be linked.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, isCIDR(k) && cidr(k) == cidr(k).masked())",message="a key is not a CIDR without host bits"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !isCIDR(k) || !isCIDR(self[k]) || cidr(k).ip().family() == cidr(self[k]).ip().family() && cidr(k).prefixLength() == cidr(self[k]).prefixLength())",message="a range is mapped to one of another IP version or length"
	GlobalCIDRsMap map[string]Range `json:"globalCIDRsMap,omitempty"`
	// NICs say which interface of a node leads to other clusters: its addresses there are ip and ip6 of its ClusterNode,
	// and those at other interfaces are no endpoints of it. Without an entry none is left out.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.filter(n, !has(n.nodes)).size() <= 1",message="several entries are for all other nodes"
	NICs []ClusterNIC `json:"nics,omitempty"`
	// ExcludeNodes are names of nodes that take no part.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ExcludeNodes []string `json:"excludeNodes,omitempty"`
	// ExcludeSelector has labels of further nodes that take no part: a selector as kubectl takes it.
	// +kubebuilder:validation:MaxLength=1024
	ExcludeSelector string `json:"excludeSelector,omitempty"`
}

// Address is an IPv4 or IPv6 address.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="it is not an IP address"
type Address string

// Range is a CIDR without host bits.
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="it is not a CIDR without host bits"
type Range string

// ClusterNIC says which interface of some nodes leads to other clusters: one of interface and reach.
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="has(self.interface) != has(self.reach)",message="it has either interface or reach"
type ClusterNIC struct {
	// Nodes are names of nodes. Left out: all that no other entry names.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
	// Interface is its name, such as eth0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]+$`
	Interface string `json:"interface,omitempty"`
	// Reach is an address: the interface is the one through which the node reaches it.
	Reach Address `json:"reach,omitempty"`
}

// NICOf is the entry for a node: the first one with its name, else the one for all others; without any it says nothing.
func (s *ClusterSpec) NICOf(node string) (out ClusterNIC) {
	for _, n := range s.NICs {
		if slices.Contains(n.Nodes, node) {
			return n
		}
		if len(n.Nodes) == 0 {
			out = n
		}
	}
	return out
}

// ClusterNodeSpec is what other clusters need to know about a node. The object's name is CLUSTER.NODE. Nothing in it is
// secret.
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName",message="clusterName does not change"
// +kubebuilder:validation:XValidation:rule="self.nodeName == oldSelf.nodeName",message="nodeName does not change"
// +kubebuilder:validation:XValidation:rule="has(self.publicKey) == has(oldSelf.publicKey) && (!has(self.publicKey) || self.publicKey == oldSelf.publicKey)",message="publicKey does not change: of two objects with one key the older counts, so one with a new key is a new one"
// +kubebuilder:validation:XValidation:rule="!has(self.pin) || !has(oldSelf.pin) || self.pin == oldSelf.pin",message="pin does not change: a new object has another one"
// +kubebuilder:validation:XValidation:rule="has(self.overlay6) == has(oldSelf.overlay6) && (!has(self.overlay6) || self.overlay6 == oldSelf.overlay6)",message="overlay6 does not change: a new object has another one"
// +kubebuilder:validation:XValidation:rule="has(self.overlay4) == has(oldSelf.overlay4) && (!has(self.overlay4) || self.overlay4 == oldSelf.overlay4)",message="overlay4 does not change: a new object has another one"
// +kubebuilder:validation:XValidation:rule="!has(self.ip) || isIP(self.ip) && ip(self.ip).family() == 4",message="ip is an IPv4 address"
// +kubebuilder:validation:XValidation:rule="!has(self.ip6) || isIP(self.ip6) && ip(self.ip6).family() == 6",message="ip6 is an IPv6 address"
// +kubebuilder:validation:XValidation:rule="!has(self.overlay6) || isIP(self.overlay6) && ip(self.overlay6).family() == 6",message="overlay6 is an IPv6 address"
// +kubebuilder:validation:XValidation:rule="!has(self.overlay4) || isIP(self.overlay4) && ip(self.overlay4).family() == 4",message="overlay4 is an IPv4 address"
type ClusterNodeSpec struct {
	// ClusterName is the name of the Cluster.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterName string `json:"clusterName"`
	// NodeName is the name of the Node in its cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// PodCIDRs are the ranges of the pods on the node.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="it is not a CIDR without host bits"
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// IP and IP6 are the node's own addresses at the interface that leads to other clusters.
	// +kubebuilder:validation:MaxLength=15
	IP string `json:"ip,omitempty"`
	// +kubebuilder:validation:MaxLength=45
	IP6 string `json:"ip6,omitempty"`
	// ElasticIP is the public address that a NAT in front of the node has for it alone.
	ElasticIP Address `json:"elasticIP,omitempty"`
	// Roles has gateway if the cluster is reached through the node.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=gateway
	Roles []string `json:"roles,omitempty"`

	ClusterNodeTunnel `json:",inline"`
}

// ClusterNodeTunnel is what a node of another cluster needs for a tunnel, as a Member has it.
// +kubebuilder:object:generate=true
type ClusterNodeTunnel struct {
	// PublicKey is the WireGuard public key, base64.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// Pin is by what others know the node's certificate for IPsec: the SHA-256 of its public key, base64 without padding.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]$`
	Pin string `json:"pin,omitempty"`
	// Engine is what encrypts the node's packets: wireguard or ipsec. Left out, it is wireguard.
	// +kubebuilder:validation:Enum=wireguard;ipsec
	Engine string `json:"engine,omitempty"`
	// Overlay6 and Overlay4 are the node's addresses in the mesh.
	// +kubebuilder:validation:MaxLength=45
	Overlay6 string `json:"overlay6,omitempty"`
	// +kubebuilder:validation:MaxLength=15
	Overlay4 string `json:"overlay4,omitempty"`
	// Endpoints are ip:port where WireGuard listens, as others may reach it.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=53
	Endpoints []string `json:"endpoints,omitempty"`
	// Mesh is the version of the path protocol that the node speaks; 0: WireGuard alone.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Mesh int `json:"mesh,omitempty"`
	// RelayCluster is the cluster of the node's certificate at hubs.
	// +kubebuilder:validation:MaxLength=63
	RelayCluster string `json:"relayCluster,omitempty"`
	// Relays are the names of the hubs that it is attached to.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	Relays []string `json:"relays,omitempty"`
}

// IsPlaceholder reports whether a ClusterNode only claims the address in the mesh of a node whose object is made anew.
func IsPlaceholder(s ClusterNodeSpec) bool {
	return s.PublicKey == "" && (s.Overlay4 != "" || s.Overlay6 != "")
}

// ClusterNodeName is the name of a ClusterNode, and of its NodeConfig. A cluster's name has no dot.
func ClusterNodeName(cluster, node string) string { return cluster + "." + node }
