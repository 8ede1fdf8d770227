// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	_ "embed"
	"slices"
)

// linksNamespace has the service accounts of members; the policy names it too.
const linksNamespace = "tombolo-links"

// linksName is that of the policy and its binding.
const linksName = "links.tombolo.dev"

//go:embed links.policy.yaml
var linksPolicy string

// LinksBound is the ConfigMap in the namespace LinksNamespace by which the controller of a host cluster says which
// clusters get no further nodes; the second policy names it too.
const LinksBound = "tombolo-link-bound"

//go:embed linksbound.policy.yaml
var linksBoundPolicy string

// linksRights are those everywhere of a controller of the host cluster. Events about objects without a namespace are in
// the namespace default.
func linksRights() []roleRule {
	return []roleRule{
		{[]string{"tombolo.dev"}, []string{"clusters", "clusternodes"}, nil, []string{"list", "watch"}},
		{[]string{"tombolo.dev"}, []string{"clusters/status", "clusternodes"}, nil, []string{"patch"}},
		{[]string{"events.k8s.io"}, []string{"events"}, nil, []string{"create", "patch"}},
	}
}

// linkMemberRights are those of a member; the policy restricts what it writes to its own cluster. What nodes plan is
// read by nobody but people of the host cluster.
func linkMemberRights() []roleRule {
	write := []string{"create", "update", "patch", "delete"}
	return []roleRule{
		{[]string{"tombolo.dev"}, []string{"clusters", "clusternodes"}, nil, []string{"get", "list", "watch"}},
		{[]string{"tombolo.dev"}, []string{"clusters/status", "clusternodes/status"}, nil, []string{"get"}}, // kubectl does
		{[]string{"tombolo.dev"}, []string{"clusternodes", "nodeconfigs"}, nil, write},
		{[]string{"tombolo.dev"}, []string{"clusters/status", "clusternodes/status", "nodeconfigs/status"}, nil,
			[]string{"update", "patch"}},
		// To check that the policy exists.
		{[]string{admissionGroup}, []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
			[]string{linksName}, []string{"get"}},
	}
}

// linkHost are the objects of a host cluster: where members have their accounts, what these may do, and an account for
// each one that is named. An account has a binding of its own, so that one is removed without the others.
func linkHost(members []string) []document {
	const role = "tombolo-link-member"
	part := labels{"app.kubernetes.io/part-of": "tombolo"}
	out := []document{
		namespace{"v1", "Namespace", meta{Name: linksNamespace, Labels: part}},
		clusterRole{rbacGroup + "/v1", "ClusterRole", meta{Name: role, Labels: part}, linkMemberRights()},
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(members))) {
		out = append(out,
			serviceAccount{"v1", "ServiceAccount", meta{Name: name, Namespace: linksNamespace, Labels: part}, false},
			clusterRoleBinding{rbacGroup + "/v1", "ClusterRoleBinding", meta{Name: role + "-" + name, Labels: part},
				roleRef{rbacGroup, "ClusterRole", role},
				[]subject{{Kind: "ServiceAccount", Namespace: linksNamespace, Name: name}}})
	}
	return out
}

// linkBound are that ConfigMap, and the right of the controller to change it.
func linkBound(c Common) []document {
	m := meta{Name: LinksBound, Namespace: linksNamespace, Labels: labels{"app.kubernetes.io/part-of": "tombolo"}}
	return []document{
		configMap{"v1", "ConfigMap", m, nil},
		role{rbacGroup + "/v1", "Role", m, []roleRule{
			{[]string{""}, []string{"configmaps"}, []string{LinksBound}, []string{"patch"}}}},
		clusterRoleBinding{rbacGroup + "/v1", "RoleBinding", m, roleRef{rbacGroup, "Role", LinksBound},
			[]subject{{Kind: "ServiceAccount", Namespace: c.Namespace, Name: c.Name}}},
	}
}

// linkMembers checks the names of members.
func (p *problems) linkMembers(o ControllerOptions) {
	if len(o.LinkMembers) > 0 && !o.LinkHost {
		p.add("link-member", "means nothing: features.links.host is not set in the configuration")
	}
	for _, name := range o.LinkMembers {
		if !isLabel(name) || len(name) > 63 {
			p.add("link-member", "%q is no name of a Cluster", name)
		}
	}
	if o.LinkHost && o.Namespace == linksNamespace {
		p.add("namespace", "%s is for the accounts of members: the controller needs another one", linksNamespace)
	}
}
