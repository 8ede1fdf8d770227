// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/objects/crds"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// manifests: kube-apiserver takes what `tombolo discovery manifest service|announce` prints without a field that
// it does not know, and its Pod Security admission the pods that come of it; the announcement's account may write
// the Member of its node and of no other.
func (w *members) manifests(t *testing.T) {
	for name, want := range map[string]struct {
		change func(m *manifest.MeetOptions)
		pods   int
	}{
		"memory": {func(o *manifest.MeetOptions) { o.Hosts = []string{"discovery.example.com"} }, 1},
		"etcd": {func(o *manifest.MeetOptions) {
			o.TLSSecret, o.Etcd, o.EtcdSecret, o.Replicas = "tls", []string{"https://etcd:2379"}, "etcd", 2
		}, 2},
		"node-port": {func(o *manifest.MeetOptions) { // TCP and UDP of one number
			o.Hosts, o.ServiceType, o.NodePort = []string{"discovery.example.com"}, "NodePort", 30446
		}, 1},
		"host": {func(o *manifest.MeetOptions) {
			o.NoTLS, o.HostNetwork, o.TrustedProxies = true, true, []string{"10.0.0.0/8"}
		}, 1},
	} {
		o := manifest.MeetDefaults()
		o.Image, o.Namespace = "tombolo.local/tombolo:dev", "meet-"+name
		want.change(&o)
		text, err := manifest.Meet(o)
		if err != nil {
			t.Fatal(err)
		}
		w.takes(t, text, o.Namespace, want.pods)
	}
	w.AddNode(t, "m1")
	w.AddNode(t, "m2")
	defer w.DeleteNode(t, "m1")
	defer w.DeleteNode(t, "m2")
	nodes, err := w.Kubectl(t.Context(), "get", "nodes", "-o", "name") // some are of the tests before
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *manifest.AnnounceOptions){
		"pod":  func(o *manifest.AnnounceOptions) { o.HostNetwork, o.NodeAnnotations = false, true },
		"host": func(o *manifest.AnnounceOptions) { o.StateHostPath = "/var/lib/tombolo/mesh" },
	} {
		o := manifest.AnnounceDefaults()
		o.Image, o.Namespace, o.Secret = "tombolo.local/tombolo:dev", "announce-"+name, "cluster"
		change(&o)
		text, err := manifest.Announce(o)
		if err != nil {
			t.Fatal(err)
		}
		w.takes(t, text, o.Namespace, strings.Count(nodes, "node/"))
		as := "--as=system:serviceaccount:" + o.Namespace + ":" + o.Name
		for _, can := range []struct {
			verb, what string
			want       bool
		}{
			{"patch", "members.tombolo.dev", true}, {"watch", "members.tombolo.dev", true}, {"update", "members.tombolo.dev", false},
			{"get", "nodes", true}, {"list", "nodes", o.NodeAnnotations}, {"patch", "nodes", false}, {"get", "secrets", false},
		} {
			// It exits with 1 for a no.
			said, _ := w.Kubectl(t.Context(), "auth", "can-i", can.verb, can.what, "-A", as)
			if got := strings.HasPrefix(strings.TrimSpace(said), "yes"); got != can.want {
				t.Errorf("%s: %s %s: %q", name, can.verb, can.what, said)
			}
		}
	}
}

// meshManifests: the same for `tombolo mesh manifest`, as it is for linked clusters and with all that it may have. Its
// account may write Members, of which the policy leaves it that of its node, and read linked clusters.
func (w *members) meshManifests(t *testing.T) {
	w.AddNode(t, "m1")
	defer w.DeleteNode(t, "m1")
	if _, err := w.Kubectl(t.Context(), "label", "node", "m1", "kubernetes.io/os=linux"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{crds.Clusters(), crds.ClusterNodes()} { // can-i asks for kinds that are there
		if err := w.Apply(t.Context(), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "crd/clusters.tombolo.dev",
		"crd/clusternodes.tombolo.dev"); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *manifest.MeshOptions){
		"plain": func(*manifest.MeshOptions) {},
		"whole": func(o *manifest.MeshOptions) {
			o.LinkCluster, o.SecretText, o.Accept, o.Keep, o.PodRanges = "east", "x", []string{"10.0.0.0/8"}, true, true
			o.Join, o.Policies, o.ImagePullSecret, o.MemoryLimit = "tombolo://x", "policy", "pull", "1Gi"
		},
	} {
		o := manifest.MeshDefaults()
		o.Image, o.Namespace = "tombolo.local/tombolo:dev", "mesh-"+name
		change(&o)
		text, err := manifest.Mesh(o)
		if err != nil {
			t.Fatal(err)
		}
		w.takes(t, text, o.Namespace, 1)
		as := "--as=system:serviceaccount:" + o.Namespace + ":" + o.Name
		for what, want := range map[string]bool{
			"patch members.tombolo.dev": true, "update members.tombolo.dev": false, "get nodes": true, "list nodes": false,
			"watch clusters.tombolo.dev": true, "patch clusters.tombolo.dev": false, "watch clusternodes.tombolo.dev": true,
			"patch clusternodes.tombolo.dev": false, "get secrets": false,
		} {
			said, _ := w.Kubectl(t.Context(), append(append([]string{"auth", "can-i"}, strings.Fields(what)...), "-A", as)...)
			if got := strings.HasPrefix(strings.TrimSpace(said), "yes"); got != want { // it exits with 1 for a no
				t.Errorf("%s: %s: %q", name, what, said)
			}
		}
	}
}

// takes applies a manifest and waits for the pods that its controllers make. No node runs them.
func (w *members) takes(t *testing.T, text []byte, namespace string, pods int) {
	t.Helper()
	if out, err := w.KubectlInput(t.Context(), bytes.NewReader(text), "apply", "--validate=strict", "-f", "-"); err != nil || strings.Contains(out, "Warning") {
		t.Errorf("%s: %v\n%s", namespace, err, out)
		return
	}
	defer func() {
		if t.Failed() {
			out, _ := w.Kubectl(t.Context(), "-n", namespace, "get", "daemonsets,statefulsets,deployments,pods,events", "-o", "wide")
			t.Log(out)
		}
	}()
	runtest.Eventually(t, namespace+": pods are admitted", func() bool {
		out, err := w.Kubectl(t.Context(), "-n", namespace, "get", "pods", "-o", "name")
		return err == nil && strings.Count(out, "pod/") == pods
	})
	if _, err := w.Kubectl(t.Context(), "delete", "namespace", namespace, "--wait=false"); err != nil {
		t.Error(err)
	}
}
