// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	files "github.com/tombolo-io/tombolo/api/v1alpha1"
)

// Cluster is a cluster whose pods and services reach those of other clusters. Its name is that of the cluster.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tcl
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=tombolo"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.networkType`
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.engine`
// +kubebuilder:printcolumn:name="Gateways",type=string,priority=1,JSONPath=`.status.gateways`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a cluster has at most 63 characters and no dot"
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   files.ClusterSpec `json:"spec"`
	Status ClusterStatus     `json:"status,omitempty"`
}

// ClusterList is a list of clusters.
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}

// ClusterNode is a node of a linked cluster, as other clusters need to know it. Its name is CLUSTER.NODE.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tcn
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=tombolo"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.nodeStatus`
// +kubebuilder:printcolumn:name="Engine",type=string,priority=1,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name="Roles",type=string,priority=1,JSONPath=`.spec.roles`
// +kubebuilder:printcolumn:name="Elastic IP",type=string,priority=1,JSONPath=`.spec.elasticIP`
// +kubebuilder:printcolumn:name="Tunnels",type=string,JSONPath=`.status.tunnels`
// +kubebuilder:printcolumn:name="Heard",type=date,JSONPath=`.status.lastHeard`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterName + '.' + self.spec.nodeName",message="the name is not clusterName.nodeName"
type ClusterNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   files.ClusterNodeSpec `json:"spec"`
	Status ClusterNodeStatus     `json:"status,omitempty"`
}

// ClusterNodeList is a list of nodes.
// +kubebuilder:object:root=true
type ClusterNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNode `json:"items"`
}

// NodeConfig is what one node of a linked cluster plans and has: a report. Its name is that of the ClusterNode.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tnc
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=tombolo"
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.appliedGeneration`
// +kubebuilder:printcolumn:name="Differs",type=integer,JSONPath=`.status.differs`
// +kubebuilder:printcolumn:name="Generation",type=integer,priority=1,JSONPath=`.metadata.generation`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   files.NodeConfigSpec `json:"spec"`
	Status NodeConfigStatus     `json:"status,omitempty"`
}

// NodeConfigList is a list of configurations.
// +kubebuilder:object:root=true
type NodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfig `json:"items"`
}
