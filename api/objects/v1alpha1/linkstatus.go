// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	files "github.com/tombolo-io/tombolo/api/v1alpha1"
)

// The types of conditions of linked clusters, beside Ready.
const (
	// ConditionRangesAccepted: the ranges of the cluster do not meet those of others. The host cluster's controller writes
	// it.
	ConditionRangesAccepted = "RangesAccepted"
	// ConditionTunnelsUp: packets pass through every tunnel of the node.
	ConditionTunnelsUp = "TunnelsUp"
)

// The reasons of these conditions, beside InForce, Invalid and Pending.
const (
	ReasonDistinct   = "Distinct"   // RangesAccepted: no range meets one of another cluster
	ReasonOverlap    = "Overlap"    // RangesAccepted: one does, and globalCIDRsMap does not map it
	ReasonUnlearned  = "Unlearned"  // RangesAccepted, Ready: the ranges are not known yet
	ReasonNoNode     = "NoNode"     // Ready: the cluster has no node that is Ready
	ReasonSilent     = "Silent"     // Ready: the member's controller was not heard; TunnelsUp: the Node is not ready
	ReasonTunnelDown = "TunnelDown" // TunnelsUp: packets do not pass through one
)

// The health of a node.
const (
	NodeReady    = "Ready"
	NodeNotReady = "NotReady"
)

// The states of a tunnel.
const (
	TunnelUp      = "up"      // packets pass, directly
	TunnelRelayed = "relayed" // packets pass, through the relay of a hub
	TunnelDown    = "down"    // no packet passes
	TunnelUnused  = "unused"  // nobody has sent anything yet
)

// The bounds of a NodeConfig's status: what is more is counted.
const (
	MostDifferences = 64
	MostTunnels     = 1024
)

// ClusterStatus is what came of a cluster. The member cluster's controller writes it, but for mapped, accepted and
// the condition RangesAccepted.
type ClusterStatus struct {
	// ObservedGeneration is the last one that was looked at.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, RangesAccepted, and those that say what is wrong around the cluster.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PodCIDRs and ServiceCIDRs are the ranges of the cluster.
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=256
	PodCIDRs []LearnedRange `json:"podCIDRs,omitempty"`
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDRs []LearnedRange `json:"serviceCIDRs,omitempty"`
	// Gateways are the nodes through which other clusters reach this one; with networkType gateway.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Gateways []string `json:"gateways,omitempty"`
	// Mapped are the ranges by which other clusters reach those of this one, where they differ. The host
	// cluster's controller writes it.
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=320
	Mapped []MappedRange `json:"mapped,omitempty"`
	// Accepted are the ranges for which RangesAccepted is true, the cluster's own and those by which others reach them. No
	// other cluster gets them, however old it is. The host's controller writes it.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=49
	Accepted []string `json:"accepted,omitempty"`
}

// LearnedRange is a range, and where it was learned.
type LearnedRange struct {
	CIDR files.Range `json:"cidr"`
	// Source is such as "IPPool default-ipv4-ippool", "ServiceCIDR kubernetes" or "spec.clusterPodCIDRs".
	// +kubebuilder:validation:MaxLength=320
	Source string `json:"source"`
}

// MappedRange is a range of a cluster, and the one by which other clusters reach it.
type MappedRange struct {
	CIDR files.Range `json:"cidr"`
	As   files.Range `json:"as"`
}

// ClusterNodeStatus is how a node is. The member cluster's controller writes it.
type ClusterNodeStatus struct {
	// NodeStatus is Ready or NotReady, as the Node is.
	// +kubebuilder:validation:Enum=Ready;NotReady
	NodeStatus string `json:"nodeStatus,omitempty"`
	// Engine is what the node uses towards other clusters, several joined by commas.
	// +kubebuilder:validation:MaxLength=64
	Engine string `json:"engine,omitempty"`
	// EngineReason is why, for people.
	// +kubebuilder:validation:MaxLength=1024
	EngineReason string `json:"engineReason,omitempty"`
	// Tunnels is through how many packets pass, of how many: 3/4.
	// +kubebuilder:validation:MaxLength=32
	Tunnels string `json:"tunnels,omitempty"`
	// LastHeard is when the node last reported.
	LastHeard *metav1.Time `json:"lastHeard,omitempty"`
	// Conditions are TunnelsUp.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeConfigStatus is what the node's kernel has of the plan. The node writes it in its own cluster, and the member
// cluster's controller copies it to the host cluster.
type NodeConfigStatus struct {
	// AppliedGeneration is that of the plan which the node has applied.
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`
	// Differs is in how many places the kernel differs from the plan.
	Differs int32 `json:"differs"`
	// Differences are the first of them, each as the step that would mend it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Differences []string `json:"differences,omitempty"`
	// Tunnels are those to nodes of other clusters.
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=1024
	Tunnels []TunnelStatus `json:"tunnels,omitempty"`
	// MoreTunnels is how many of them are left out.
	MoreTunnels int32 `json:"moreTunnels,omitempty"`
	// NIC is what the node has found where nics of the Cluster has an entry for it.
	NIC *NICStatus `json:"nic,omitempty"`
}

// NICStatus is the interface of a node that leads to other clusters.
type NICStatus struct {
	// Interface is its name.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// Addresses are those of the node there that others may try, the best first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Addresses []files.Address `json:"addresses,omitempty"`
	// Reason is why there is none, for people.
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// TunnelStatus is the state of the tunnel to one node.
type TunnelStatus struct {
	// Peer is the name of its ClusterNode.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// Engine is wireguard or ipsec.
	// +kubebuilder:validation:Enum=wireguard;ipsec
	Engine string `json:"engine,omitempty"`
	// State is up, relayed, down or unused.
	// +kubebuilder:validation:Enum=up;relayed;down;unused
	State string `json:"state"`
	// Reason is why, for people.
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// Alone says of a gateway that it reaches no other node of its own cluster, as it says itself: packets for those go
	// through another one, if there is one.
	Alone bool `json:"alone,omitempty"`
	// Since is when the state began.
	Since *metav1.Time `json:"since,omitempty"`
}
