// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindAccessPolicy is the kind of a policy's file.
const KindAccessPolicy = "AccessPolicy"

// AccessPolicy defines who may reach what. A request is allowed if an allow rule
// matches and no deny rule does; the order of rules does not matter. The same text is
// a file, and an object in Kubernetes.
type AccessPolicy struct {
	TypeMeta

	// Metadata names an object; a file may have it.
	Metadata *ObjectName `json:"metadata,omitempty"`

	AccessContent `json:",inline"`
}

// AccessContent is what a policy says, in a file and in an object.
// +kubebuilder:object:generate=true
type AccessContent struct {
	// Lists are ranges that rules name as @name.
	// +kubebuilder:validation:MaxItems=1024
	Lists []RangeList `json:"lists,omitempty"`
	// Rules apply together with those of the other policies.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	Rules []AccessRule `json:"rules"`
}

// RangeList is a list of ranges.
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!has(self.file)",message="an object cannot name a file: write ranges"
// +kubebuilder:validation:XValidation:rule="has(self.ranges)",message="the list has no ranges"
type RangeList struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Ranges are CIDRs or addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=65536
	// +kubebuilder:validation:items:MaxLength=64
	Ranges []string `json:"ranges,omitempty"`
	// File has further ranges, one per line; # starts a comment. A relative path is
	// relative to the policy's folder. Only for policies in files.
	File string `json:"file,omitempty"`
}

// AccessRule is one rule: exactly one of Allow and Deny is set. Any other list that
// is left out means any; an empty list is an error.
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="has(self.allow) != has(self.deny)",message="a rule has either allow or deny"
type AccessRule struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
	// Group is a label of rules that belong together, such as a platform's own.
	Group string `json:"group,omitempty"`
	// Clusters are names with at most one *.
	// +kubebuilder:validation:MinItems=1
	Clusters []string `json:"clusters,omitempty"`
	// Callers are unix:<cluster>/<protocol> or SPIFFE URIs with at most one *.
	// +kubebuilder:validation:MinItems=1
	Callers []string `json:"callers,omitempty"`
	// UIDs are users at the other end of a unix socket.
	// +kubebuilder:validation:MinItems=1
	UIDs []int `json:"uids,omitempty"`
	// Egress are names of egress selections: cluster, controlplane, etcd.
	// +kubebuilder:validation:MinItems=1
	Egress []string `json:"egress,omitempty"`
	// Flows are how requests come: dial (the default), and at an edge api, vpn, proxy and ingress.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Enum=dial;api;vpn;proxy;ingress
	Flows []string `json:"flows,omitempty"`
	// Sources are CIDRs, addresses or @list: the caller's address.
	// +kubebuilder:validation:MinItems=1
	Sources []string `json:"sources,omitempty"`
	// Allow is what may be reached: CIDR[:ports], address[:ports], name[:ports],
	// *.suffix[:ports], *[:ports] or @list[:ports].
	// +kubebuilder:validation:MinItems=1
	Allow []string `json:"allow,omitempty"`
	// Deny is what may not be reached, in the forms of Allow.
	// +kubebuilder:validation:MinItems=1
	Deny []string `json:"deny,omitempty"`
}
