// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindAccessPolicy is the kind of a policy's file.
const KindAccessPolicy = "AccessPolicy"

// AccessPolicy defines who may reach what. A request is allowed if an allow rule
// matches and no deny rule does; the order of rules does not matter.
type AccessPolicy struct {
	TypeMeta

	// Lists are ranges that rules name as @name.
	Lists []RangeList `json:"lists,omitempty"`
	// Rules apply together with those of the other files.
	Rules []AccessRule `json:"rules"`
}

// RangeList is a list of ranges.
type RangeList struct {
	Name string `json:"name"`
	// Ranges are CIDRs or addresses.
	Ranges []string `json:"ranges,omitempty"`
	// File has further ranges, one per line; # starts a comment. A relative path is
	// relative to the policy's folder.
	File string `json:"file,omitempty"`
}

// AccessRule is one rule: exactly one of Allow and Deny is set. Any other list that
// is left out means any; an empty list is an error.
type AccessRule struct {
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
	// Group is a label of rules that belong together, such as a platform's own.
	Group string `json:"group,omitempty"`
	// Clusters are names with at most one *.
	Clusters []string `json:"clusters,omitempty"`
	// Callers are unix:<cluster>/<protocol> or SPIFFE URIs with at most one *.
	Callers []string `json:"callers,omitempty"`
	// UIDs are users at the other end of a unix socket.
	UIDs []int `json:"uids,omitempty"`
	// Egress are names of egress selections: cluster, controlplane, etcd.
	Egress []string `json:"egress,omitempty"`
	// Flows are how requests come: dial (the default), and at an edge api, vpn, proxy and ingress.
	Flows []string `json:"flows,omitempty"`
	// Sources are CIDRs, addresses or @list: the caller's address.
	Sources []string `json:"sources,omitempty"`
	// Allow and Deny are CIDR[:ports], address[:ports], name[:ports],
	// *.suffix[:ports], *[:ports] or @list[:ports].
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}
