// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionHostReached is in the copy of a Cluster in that cluster itself while its controller does not reach the host
// cluster: what nodes know about other clusters may be old.
const ConditionHostReached = "HostReached"

// ReasonHostAway is the reason of the condition HostReached.
const ReasonHostAway = "HostAway"
