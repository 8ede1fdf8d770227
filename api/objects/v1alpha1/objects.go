// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds that are objects in Kubernetes, group tombolo.dev: what package api/v1alpha1 has of
// them in a file, with an object's metadata and status. Only the controller needs it: Kubernetes' own types come
// with it. Their definitions and copies are generated ('make generate').
// +kubebuilder:object:generate=true
// +groupName=tombolo.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	files "github.com/tombolo-io/tombolo/api/v1alpha1"
)

// AccessPolicy defines who may reach what. A request is allowed if an allow rule matches and no deny rule does;
// the order of rules does not matter, and all policies apply together.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tap
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=tombolo"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.status.enforcement`
// +kubebuilder:printcolumn:name="Covered",type=string,JSONPath=`.status.covered`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AccessPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	files.AccessContent `json:",inline"`

	Status AccessPolicyStatus `json:"status,omitempty"`
}

// AccessPolicyList is a list of policies.
// +kubebuilder:object:root=true
type AccessPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AccessPolicy `json:"items"`
}

// EdgeTenant says how one cluster is reached through an edge or a gateway. Its name is that of the cluster.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ten
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=tombolo"
// +kubebuilder:printcolumn:name="Protected",type=boolean,JSONPath=`.spec.protected`
// +kubebuilder:printcolumn:name="Names",type=string,JSONPath=`.spec.ways[*].names`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EdgeTenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   files.EdgeTenantSpec `json:"spec"`
	Status EdgeTenantStatus     `json:"status,omitempty"`
}

// EdgeTenantList is a list of tenants.
// +kubebuilder:object:root=true
type EdgeTenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EdgeTenant `json:"items"`
}

// GroupVersion is that of the kinds here.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "tombolo.dev", Version: "v1alpha1"}
}

// AddToScheme makes the kinds known to a client.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &AccessPolicy{}, &AccessPolicyList{}, &EdgeTenant{}, &EdgeTenantList{},
		&Cluster{}, &ClusterList{}, &ClusterNode{}, &ClusterNodeList{}, &NodeConfig{}, &NodeConfigList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
