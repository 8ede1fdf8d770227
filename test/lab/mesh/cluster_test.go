// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/kube/kubetest"
)

// requireRefused starts a node, whose start must be refused, and the kernel be as it was.
func requireRefused(t *testing.T, n *node, code string, says ...string) {
	t.Helper()
	before := n.rig.kernel(n.host)
	said, exit := refused(t, n, false)
	_, said, _ = strings.Cut(said, "error: ")
	for _, say := range append(says, code+": ", "hint: ") {
		if exit != 2 || !strings.HasPrefix(said, code+": ") || !strings.Contains(said, say) {
			t.Errorf("exit %d, and it said %q; want 2, %s and %q", exit, said, code, say)
		}
	}
	t.Log(strings.TrimSpace(said))
	if after := n.rig.kernel(n.host); after != before {
		t.Errorf("the refusal has left\n%s\nof what was\n%s", after, before)
	}
}

// TestMeshClusterOfAnotherName: a new node whose cluster.id is not that of the others is
// refused before anything is changed. One that ran with its own comes up.
func TestMeshClusterOfAnotherName(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{more: map[string]map[string]any{"cluster": {"id": "one"}}})
	together(a)
	requireRefused(t, b, "mesh_cluster", `"one"`, a.host.Name(), "the others have no cluster.id")
	b.edit(func(whole map[string]any) { delete(section(whole, "cluster"), "id") })
	together(b)
	known(a, b)
	a.stop()
	a.edit(func(whole map[string]any) { section(whole, "cluster")["id"] = "one" })
	requireRefused(t, a, "mesh_cluster", b.host.Name(), "--leave")
	a.edit(func(whole map[string]any) { delete(section(whole, "cluster"), "id") })
	together(a)
	known(a, b)
}

// TestMeshAnotherSecretInKubernetes: objects of kind Member tell under which secrets nodes are. A new node with
// another one is refused before anything is changed; who was there comes up, and waits for nobody.
func TestMeshAnotherSecretInKubernetes(t *testing.T) {
	t.Parallel()
	k := withKubernetes(t, "open", "open")
	other := filepath.Join(k.dir, "other.secret")
	id := strings.TrimSpace(k.verb(nil, "discovery", "secret", "create", other))
	k.plantFile("the other cluster's secret", other)
	a, b := k.node(k.grid.All[0], "members"), k.node(k.grid.All[1], "members")
	right := k.secret
	use := func(n *node, file string) {
		n.edit(func(whole map[string]any) { section(whole, "cluster")["secretFiles"] = []string{file} })
	}
	together(a)
	k.eventually("a has told its key", a.role, func() error {
		if spec, _ := k.api.Object(kubetest.Members, "a")["spec"].(map[string]any); spec["publicKey"] == nil {
			return errNotYet
		}
		return nil
	})
	use(b, other)
	requireRefused(t, b, "secret_invalid", a.host.Name()+" has ", id, "kubectl delete members.tombolo.dev --all")
	use(b, right)
	together(b)
	known(a, b)
	a.stop()
	use(a, other)
	requireRefused(t, a, "secret_invalid", b.host.Name()+" has ", id)
	use(a, right)
	k.api.Away(true) // who was there waits for nobody
	a.begin()
	a.awaitUp()
	k.api.Away(false)
	known(a, b)
}

// TestMeshSecretOfBefore: at a discovery service another secret looks like an empty cluster. A node that was
// under another one before says so at once, in its log and its status, and comes up.
func TestMeshSecretOfBefore(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open")
	other := filepath.Join(r.dir, "other.secret")
	id := strings.TrimSpace(r.verb(nil, "discovery", "secret", "create", other))
	r.plantFile("the other cluster's secret", other)
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	together(a, b)
	known(a, b)
	b.stop()
	b.edit(func(whole map[string]any) { section(whole, "cluster")["secretFiles"] = []string{other} })
	together(b)
	text, _ := b.mustStatus()
	if !strings.Contains(text, "warning: secret_invalid: this node was a member under another secret") || !strings.Contains(text, id) || b.said("code=secret_invalid") == 0 {
		t.Errorf("the status says\n%s", text)
	}
	t.Log(text)
}
