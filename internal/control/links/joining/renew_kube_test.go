// SPDX-License-Identifier: Apache-2.0

//go:build kube

package joining_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

// secret is what a Secret has under a key.
func (x *api) secret(t *testing.T, space, name, key string) string {
	t.Helper()
	var s corev1.Secret
	if err := x.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, &s); err != nil || len(s.Data[key]) == 0 {
		t.Fatalf("%s/%s has no %s: %v", space, name, key, err)
	}
	return string(s.Data[key])
}

// as asks for the Cluster west with a token.
func (x *api) as(t *testing.T, token string) error {
	t.Helper()
	config := rest.AnonymousClientConfig(x.config)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: kinds(), Mapper: x.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c.Get(t.Context(), client.ObjectKey{Name: "west"}, &objects.Cluster{})
}

// locksOut waits until a token is not taken any longer: an API server knows those that it has taken for 10 s.
func (x *api) locksOut(t *testing.T, token string) {
	t.Helper()
	eventually(t, "the old token is void", func() string {
		if err := x.as(t, token); !apierrors.IsUnauthorized(err) {
			return "it is taken"
		}
		return ""
	})
}

// started says by which account the controller was started.
func (x *api) started(t *testing.T) string {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err := x.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "tombolo-link"}, u); err != nil {
		t.Fatal(err)
	}
	out, _, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", "tombolo.dev/link-account")
	if out == "" {
		t.Error("the controller would not be started with another account")
	}
	return out
}

// renewed replaces the token of a cluster that has joined; its nodes keep their secret.
func renewed(t *testing.T, there, west *api) {
	t.Helper()
	line := func(flags ...string) (line, said string) {
		line, said, code := tombolo(t, "", append([]string{"link", "token", "west", "--server", there.url, "--kubeconfig",
			there.file}, flags...)...)
		if code != 0 {
			t.Fatalf("token: %d", code)
		}
		return line, said
	}
	token, shared := there.secret(t, "tombolo-links", "west", "token"), west.secret(t, system, "tombolo-mesh-secret", "secret")
	account, started := west.secret(t, system, "tombolo-link-host", "kubeconfig"), west.started(t)
	if !strings.Contains(account, token) {
		t.Error("the member has another token than the host cluster")
	}
	if line(); there.secret(t, "tombolo-links", "west", "token") != token || there.as(t, token) != nil {
		t.Error("another line locks out a cluster that has joined")
	}
	text, said := line("--renew")
	if !strings.Contains(said, "until it has joined again") {
		t.Error("it is not said what follows")
	}
	there.locksOut(t, token)
	for _, word := range []string{"-", "west"} { // the second time nothing is new
		if _, _, code := tombolo(t, text, "link", "join", word, "--kubeconfig", west.file, "--image",
			"registry.example/tombolo:v1", "--wait", "60s"); code != 0 {
			t.Fatalf("join %s: %d", word, code)
		}
		now := there.secret(t, "tombolo-links", "west", "token")
		if is := west.secret(t, system, "tombolo-link-host", "kubeconfig"); is == account || !strings.Contains(is, now) {
			t.Errorf("join %s: the member does not have the new token", word)
		}
		if err := there.as(t, now); err != nil {
			t.Errorf("join %s: %v", word, err)
		}
		is := west.started(t)
		if (is == started) != (word == "west") {
			t.Errorf("join %s: the controller is started by %s, before by %s", word, is, started)
		}
		started = is
		if is := west.secret(t, system, "tombolo-mesh-secret", "secret"); is != shared {
			t.Errorf("join %s: the nodes have another secret of the mesh", word)
		}
	}
}
