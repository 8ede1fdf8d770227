// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	files "github.com/tombolo-io/tombolo/api/v1alpha1"
)

// The types of conditions.
const (
	// ConditionReady: the generation that the condition names is in force.
	ConditionReady = "Ready"
	// ConditionAccepted: the object is valid, and nothing that it says was refused.
	ConditionAccepted = "Accepted"
	// ConditionCovered: every way into the clusters that the object protects has exactly one guard.
	ConditionCovered = "Covered"
)

// The reasons of conditions.
const (
	ReasonInForce    = "InForce"    // Ready, Covered: as it should be
	ReasonValid      = "Valid"      // Accepted
	ReasonInvalid    = "Invalid"    // Accepted: it does not compile; what was in force stays
	ReasonLockout    = "Lockout"    // Accepted: it would lock out who must get in
	ReasonTooMany    = "TooMany"    // Accepted: more ranges than are permitted
	ReasonPending    = "Pending"    // Ready: objects are being written
	ReasonUnwritten  = "Unwritten"  // Ready: the API server refused an object
	ReasonUnguarded  = "Unguarded"  // Covered: a way is open
	ReasonAmbiguous  = "Ambiguous"  // Covered: a way has several guards
	ReasonUnclear    = "Unclear"    // Covered: the objects of a gateway do not say which ways there are
	ReasonNoList     = "NoList"     // Covered of a tenant: it is not protected, and no policy denies anybody
	ReasonNoGateway  = "NoGateway"  // Covered: no gateway leads to the cluster
	ReasonHibernated = "Hibernated" // Ready: the cluster has no gateway for now
)

// The bounds of a status: what is more is counted.
const (
	MostAccess    = 64  // clusters and flows
	MostEffective = 128 // entries of one
	MostUncovered = 32  // ways
	MostEdits     = 16  // texts
)

// AccessPolicyStatus is what came of a policy.
type AccessPolicyStatus struct {
	// ObservedGeneration is the last one that was looked at.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Accepted and Covered.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Enforcement is by which objects the lists are enforced; several are joined by commas.
	Enforcement string `json:"enforcement,omitempty"`
	// EditEnds are the connections that an edit of the lists ends, because Envoy drains what it changes. With ext_authz it
	// ends none.
	// +kubebuilder:validation:MaxItems=16
	EditEnds []string `json:"editEnds,omitempty"`
	// Covered is how many ways have exactly one guard, of how many: 12/12.
	Covered string `json:"covered,omitempty"`
	// Uncovered are ways without exactly one guard.
	// +kubebuilder:validation:MaxItems=32
	Uncovered []UncoveredWay `json:"uncovered,omitempty"`
	// MoreUncovered is how many of them are left out.
	MoreUncovered int32 `json:"moreUncovered,omitempty"`
	// Access is the effective list of each cluster and flow that the rules name, of all policies together.
	// +kubebuilder:validation:MaxItems=64
	Access []EffectiveAccess `json:"access,omitempty"`
	// MoreAccess is how many of them are left out.
	MoreAccess int32 `json:"moreAccess,omitempty"`
	// Refused is what was last refused.
	Refused *Refusal `json:"refused,omitempty"`
}

// EffectiveAccess is who may use one flow of one cluster.
type EffectiveAccess struct {
	Cluster string `json:"cluster"`
	Flow    string `json:"flow"`
	// Protected: whatever no entry allows is refused.
	Protected bool `json:"protected,omitempty"`
	// Entries are the ranges, with their origin.
	// +kubebuilder:validation:MaxItems=128
	Entries []EffectiveEntry `json:"entries,omitempty"`
	// MoreEntries is how many of them are left out.
	MoreEntries int32 `json:"moreEntries,omitempty"`
}

// EffectiveEntry is one range.
type EffectiveEntry struct {
	// Range is a CIDR or an address.
	Range string `json:"range"`
	// Action is allow or deny.
	// +kubebuilder:validation:Enum=allow;deny
	Action string `json:"action"`
	// Rule and Group are those that it comes from.
	Rule  string `json:"rule,omitempty"`
	Group string `json:"group,omitempty"`
	// Source is where the rule is written: an object, or a file with its line.
	Source string `json:"source,omitempty"`
}

// UncoveredWay is a way into a cluster without exactly one guard.
type UncoveredWay struct {
	Cluster string `json:"cluster"`
	Flow    string `json:"flow"`
	// Object is by which the way exists, such as "Gateway garden/kube-apiserver".
	Object string `json:"object,omitempty"`
	// Reason is for people.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// Refusal is what was refused, and why. What was in force before stays.
type Refusal struct {
	Generation int64       `json:"generation,omitempty"`
	Time       metav1.Time `json:"time"`
	// Path is the field, if it is one: rules[0].sources[1].
	Path string `json:"path,omitempty"`
	// +kubebuilder:validation:MaxLength=4096
	Why string `json:"why"`
	// InForce is the content that stays in force.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	InForce *files.AccessContent `json:"inForce,omitempty"`
}

// EdgeTenantStatus is what came of a tenant.
type EdgeTenantStatus struct {
	// ObservedGeneration is the last one that was looked at.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Accepted and Covered.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Refused is what was last refused.
	Refused *TenantRefusal `json:"refused,omitempty"`
}

// TenantRefusal is what was refused of a tenant, and why. What was in force before stays.
type TenantRefusal struct {
	Generation int64       `json:"generation,omitempty"`
	Time       metav1.Time `json:"time"`
	// +kubebuilder:validation:MaxLength=4096
	Why string `json:"why"`
	// InForce is the spec that stays in force. Without one nothing does, but what can be read of a protected tenant.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	InForce *files.EdgeTenantSpec `json:"inForce,omitempty"`
}
