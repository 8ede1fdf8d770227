// SPDX-License-Identifier: Apache-2.0

package manifest

// The names by which a cluster joins.
const (
	// LinksNamespace has the accounts of members, each with the Secret of its token.
	LinksNamespace = linksNamespace
	// JoinNamespace has the accounts for one join each, and the secret of all meshes. The policy for members does not hold
	// for it: an account there may write the spec of its one Cluster.
	JoinNamespace = "tombolo-link-join"
	// MeshSecret is the Secret there with the secret that the nodes of all clusters share, under the key MeshSecretKey.
	MeshSecret    = "mesh-secret"
	MeshSecretKey = "secret"
	// JoinName begins the names of what an account for a join may do elsewhere; a dash and the cluster follow.
	JoinName = "tombolo-link-join"
	// LinkedLabel is on all that a join makes. Its value is the name of the cluster.
	LinkedLabel = "tombolo.dev/linked"
	// LinkNamespace is where both are, if nothing else is said. It is none of a controller: the pods of the mesh need a
	// namespace with more rights, and the host cluster may join itself.
	LinkNamespace = "tombolo-link"
	// LinkController is the name of the controller of a cluster that has joined, LinkMesh that of the mesh of its nodes.
	LinkController = "tombolo-link"
	LinkMesh       = "tombolo-mesh"
	// LinkHostFile is where that controller has the kubeconfig for the host cluster.
	LinkHostFile = "/etc/tombolo-host/kubeconfig"
	// LinkHostSecret is the Secret with it, under the key LinkHostKey.
	LinkHostSecret = LinkController + "-host"
	LinkHostKey    = "kubeconfig"
	// LinkMeshSecret is the Secret with the secret of the mesh, under the key MeshSecretKey.
	LinkMeshSecret = LinkMesh + "-secret"
)

// Invitation renders what a host cluster has for a cluster that is to join: the member's account with a token that does
// not expire, and an account for one join that may read this token, state the Cluster, and end itself.
func Invitation(cluster string) ([]byte, error) {
	var p problems
	if !isLabel(cluster) || len(cluster) > 63 {
		p.add("cluster", "%q is no name of a Cluster", cluster)
	}
	if err := p.fault("link token"); err != nil {
		return nil, err
	}
	of := labels{"app.kubernetes.io/part-of": "tombolo", LinkedLabel: cluster}
	once := JoinName + "-" + cluster
	member := meta{Name: cluster, Namespace: linksNamespace, Labels: of}
	joiner := []subject{{Kind: "ServiceAccount", Namespace: JoinNamespace, Name: cluster}}
	docs := linkHost([]string{cluster})[2:]
	for i := range docs {
		switch d := docs[i].(type) {
		case serviceAccount:
			d.Metadata.Labels = of
			docs[i] = d
		case clusterRoleBinding:
			d.Metadata.Labels = of
			docs[i] = d
		}
	}
	token := secret{"v1", "Secret", member, "kubernetes.io/service-account-token", nil}
	token.Metadata.Annotations = map[string]string{"kubernetes.io/service-account.name": cluster}
	docs = append(docs, token,
		namespace{"v1", "Namespace", meta{Name: JoinNamespace, Labels: labels{"app.kubernetes.io/part-of": "tombolo"}}},
		serviceAccount{"v1", "ServiceAccount", meta{Name: cluster, Namespace: JoinNamespace, Labels: of}, false})
	one := []string{cluster}
	grant := func(space, name string, rules ...roleRule) {
		kind, m := "Role", meta{Name: name, Namespace: space, Labels: of}
		if space == "" {
			kind = "ClusterRole"
		}
		docs = append(docs, role{rbacGroup + "/v1", kind, m, rules},
			clusterRoleBinding{rbacGroup + "/v1", kind + "Binding", m, roleRef{rbacGroup, kind, name}, joiner})
	}
	bindings := func(kind string) roleRule {
		return roleRule{[]string{rbacGroup}, []string{kind}, []string{once}, []string{"delete"}}
	}
	grant(linksNamespace, once, roleRule{[]string{""}, []string{"secrets"}, one, []string{"get"}},
		bindings("rolebindings"))
	grant("", once, roleRule{[]string{"tombolo.dev"}, []string{"clusters"}, one, []string{"get", "patch"}},
		bindings("clusterrolebindings"))
	grant(JoinNamespace, cluster, roleRule{[]string{""}, []string{"secrets"}, []string{MeshSecret}, []string{"get"}},
		roleRule{[]string{""}, []string{"serviceaccounts"}, one, []string{"delete"}})
	return render([]string{"Made by 'tombolo link token'."}, docs...)
}
