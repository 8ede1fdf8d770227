// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
)

// MembersOptions configure who may be a member through the Kubernetes API.
type MembersOptions struct {
	// Kubelets admits nodes with kubelet's credentials. ServiceAccounts, as
	// NAMESPACE/NAME, admits their pods, each for the node on which it runs.
	Kubelets        bool
	ServiceAccounts []string
	// NodeAnnotations permits all of them to list Nodes, which a kubelet cannot since
	// Kubernetes 1.32.
	NodeAnnotations bool
}

// MembersDefaults returns the default options.
func MembersDefaults() MembersOptions { return MembersOptions{Kubelets: true} }

//go:embed members.crd.yaml
var membersDefinition string

//go:embed members.policy.yaml
var membersPolicy string

type clusterRole struct {
	APIVersion string     `yaml:"apiVersion"`
	Kind       string     `yaml:"kind"`
	Metadata   meta       `yaml:"metadata"`
	Rules      []roleRule `yaml:"rules"`
}

type roleRule struct {
	APIGroups []string `yaml:"apiGroups,flow"`
	Resources []string `yaml:"resources,flow"`
	Names     []string `yaml:"resourceNames,flow,omitempty"`
	Verbs     []string `yaml:"verbs,flow"`
}

type clusterRoleBinding struct {
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Metadata   meta      `yaml:"metadata"`
	RoleRef    roleRef   `yaml:"roleRef"`
	Subjects   []subject `yaml:"subjects"`
}

type roleRef struct {
	APIGroup string `yaml:"apiGroup"`
	Kind     string `yaml:"kind"`
	Name     string `yaml:"name"`
}

type subject struct {
	APIGroup  string `yaml:"apiGroup,omitempty"`
	Kind      string `yaml:"kind"`
	Namespace string `yaml:"namespace,omitempty"`
	Name      string `yaml:"name"`
}

// Members renders the objects that the API server needs for members: the kind, policies
// that restrict each node to the objects of its own name, and roles.
func Members(o MembersOptions) ([]byte, error) {
	var p problems
	subjects := p.members(o)
	if err := p.fault("discovery manifest"); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("# Made by 'tombolo discovery manifest'.\n")
	for _, text := range []string{membersDefinition, membersPolicy} {
		out.WriteString("---\n" + text)
	}
	objects := granted("tombolo-member", memberRules(o.NodeAnnotations), subjects)
	pods := slices.DeleteFunc(subjects, func(s subject) bool { return s.Kind != "ServiceAccount" })
	if len(pods) > 0 { // a kubelet may get its own Node, and needs no other
		objects = append(objects, granted("tombolo-member-pod", []roleRule{podRule()}, pods)...)
	}
	rest, err := render(nil, objects...)
	out.Write(rest)
	return out.Bytes(), err
}

// granted returns a role and its binding.
func granted(name string, rules []roleRule, to []subject) []document {
	const group = "rbac.authorization.k8s.io"
	m := meta{Name: name, Labels: labels{"app.kubernetes.io/part-of": "tombolo"}}
	return []document{
		clusterRole{group + "/v1", "ClusterRole", m, rules},
		clusterRoleBinding{group + "/v1", "ClusterRoleBinding", m, roleRef{group, "ClusterRole", name}, slices.Clone(to)},
	}
}

// memberRules returns the permissions of a member; the policies restrict it to its own name.
func memberRules(annotations bool) []roleRule {
	rules := []roleRule{
		// No update: the policy lets anybody with that verb write all members.
		{APIGroups: []string{"tombolo.dev"}, Resources: []string{"members"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		// What a node knows of linked clusters.
		{APIGroups: []string{"tombolo.dev"}, Resources: []string{"clusters", "clusternodes"},
			Verbs: []string{"get", "list", "watch"}},
		// What a node plans towards them. Nodes read no NodeConfig, and the policy restricts each to its own.
		{APIGroups: []string{"tombolo.dev"}, Resources: []string{"nodeconfigs"},
			Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{"tombolo.dev"}, Resources: []string{"nodeconfigs/status"}, Verbs: []string{"patch"}},
		// To check that the policy exists.
		{APIGroups: []string{"admissionregistration.k8s.io"},
			Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
			Names:     []string{"members.tombolo.dev"}, Verbs: []string{"get"}},
	}
	if annotations {
		rules = append(rules, roleRule{APIGroups: []string{""}, Resources: []string{"nodes"},
			Verbs: []string{"list", "watch"}})
	}
	return rules
}

// podRule returns the further permission of a service account, which a kubelet has for its own
// Node: to read the uid by which the Node owns the object. No role can be restricted to one Node.
func podRule() roleRule {
	return roleRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}
}

// members checks the options, and returns the subjects of the roles.
func (p *problems) members(o MembersOptions) []subject {
	var out []subject
	if o.Kubelets {
		out = append(out, subject{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "system:nodes"})
	}
	for _, text := range o.ServiceAccounts {
		space, name, ok := strings.Cut(text, "/")
		if !ok || !isLabel(space) || !isSubdomain(name) {
			p.add("service-account", "%q is not NAMESPACE/NAME", text)
			continue
		}
		out = append(out, subject{Kind: "ServiceAccount", Namespace: space, Name: name})
	}
	if len(out) == 0 && len(o.ServiceAccounts) == 0 {
		p.add("service-account", "is missing: without kubelets nobody would be a member")
	}
	return out
}
