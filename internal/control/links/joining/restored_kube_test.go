// SPDX-License-Identifier: Apache-2.0

//go:build kube

package joining_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

// restored has the host cluster lose what it has of west, and have its Cluster again without a status: west joins with a
// line that has the secret of its nodes.
func restored(t *testing.T, there, west *api) {
	t.Helper()
	shared := west.secret(t, system, "tombolo-mesh-secret", "secret")
	file := filepath.Join(t.TempDir(), "mesh.secret")
	if err := os.WriteFile(file, []byte(shared), 0o600); err != nil {
		t.Fatal(err)
	}
	var backup objects.Cluster
	if err := there.Get(t.Context(), client.ObjectKey{Name: "west"}, &backup); err != nil {
		t.Fatal(err)
	}
	binding := &unstructured.Unstructured{}
	binding.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"})
	binding.SetName("tombolo-link-member-west")
	account := metav1.ObjectMeta{Namespace: "tombolo-links", Name: "west"}
	for _, o := range []client.Object{binding, &corev1.ServiceAccount{ObjectMeta: account}, &corev1.Secret{ObjectMeta: account},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tombolo-link-join", Name: "mesh-secret"}},
		&objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}} {
		if err := there.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := there.Create(t.Context(), &objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: backup.Labels},
		Spec: backup.Spec}); err != nil {
		t.Fatal(err)
	}
	line, said, code := tombolo(t, "", "link", "token", "west", "--server", there.url, "--kubeconfig", there.file,
		"--secret-file", file)
	if code != 0 || strings.Contains(said, "its token stays valid") {
		t.Fatalf("token: %d", code)
	}
	if _, _, code := tombolo(t, line, "link", "join", "-", "--kubeconfig", west.file, "--image",
		"registry.example/tombolo:v1", "--wait", "0"); code != 0 { // nothing starts the controller anew here
		t.Fatalf("join: %d", code)
	}
	for space, x := range map[string]*api{"tombolo-link-join": there, system: west} {
		name := map[string]string{"tombolo-link-join": "mesh-secret", system: "tombolo-mesh-secret"}[space]
		if x.secret(t, space, name, "secret") != shared {
			t.Errorf("%s/%s is another secret", space, name)
		}
	}
	token := there.secret(t, "tombolo-links", "west", "token")
	if err := there.as(t, token); err != nil || !strings.Contains(west.secret(t, system, "tombolo-link-host", "kubeconfig"),
		token) {
		t.Errorf("west does not have the token of its new account: %v", err)
	}
}
