// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionHostReached is in the copy of a Cluster in that cluster itself while its controller does not reach the host
// cluster, or that one has lost it: what nodes know about other clusters may be old.
const ConditionHostReached = "HostReached"

// ReasonHostAway is a reason of the condition HostReached.
const ReasonHostAway = "HostAway"

// ReasonHostUnlinked is another one: the host cluster has no Cluster of this one.
const ReasonHostUnlinked = "HostUnlinked"

// ReasonKindsMissing is a reason of HostReached, if the host cluster lacks kinds, and of Ready, if the member does.
const ReasonKindsMissing = "KindsMissing"

// The conditions of a Cluster that say what is wrong around it. The member's controller writes the first three, that
// of the host cluster the others.
const (
	ConditionCNIKnown         = "CNIKnown"         // it can be told what gives pods their addresses
	ConditionClockRight       = "ClockRight"       // that of the member's controller
	ConditionPoolsMade        = "PoolsMade"        // Calico has IPPools for the ranges of other clusters
	ConditionVersionFits      = "VersionFits"      // that of the member's controller
	ConditionMemberHeard      = "MemberHeard"      // the member's controller says that nodes are alive
	ConditionNodesWithinBound = "NodesWithinBound" // the cluster may have further ClusterNodes
)

// AnnotationVersion is on a ClusterNode the version of the controller that has written it.
const AnnotationVersion = "tombolo.dev/version"

// AnnotationCreated is on a copy of a Cluster or a ClusterNode when the host cluster got the original. Nodes read that
// of a ClusterNode.
const AnnotationCreated = "tombolo.dev/created"

// AnnotationOrder is on a ClusterNode of the host cluster, and on its copies: which of those that were created within
// one second was there first, as the resourceVersion with which the host's controller saw it first. No member can write
// it at the host cluster, and nodes read it.
const AnnotationOrder = "tombolo.dev/order"

// AnnotationDoubled is on a ClusterNode of the host cluster, and on its copies, if it had a key or an address in the
// mesh that an earlier one of another cluster has: which. It stays as long as the object, which does not count for
// other clusters. The host's controller writes it, no member can at the host cluster, and nodes read it.
const AnnotationDoubled = "tombolo.dev/doubled"
