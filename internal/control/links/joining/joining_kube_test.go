// SPDX-License-Identifier: Apache-2.0

//go:build kube

package joining_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/host"
	"github.com/tombolo-io/tombolo/internal/control/links/member"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// TestJoinAndUnjoin links a cluster and unlinks it, with the programs and two real API servers. Controllers run in this
// process as soon as their Deployment is there, as no kubelet starts them.
func TestJoinAndUnjoin(t *testing.T) {
	there, west := start(t)
	if _, said, code := tombolo(t, "", "link", "token", "west", "--server", there.url, "--kubeconfig", there.file); code != 1 ||
		!strings.Contains(said, "no kind Cluster") || !strings.Contains(said, "tombolo controller manifest") {
		t.Fatalf("a host cluster without kinds: %d", code)
	}
	o := manifest.ControllerDefaults()
	o.Image, o.LinkHost, o.NoNamespace = "registry.example/tombolo:v1", true, false
	text, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	there.apply(t, string(text))
	if err := west.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	before, empty := there.all(t), west.all(t)
	there.tokens(t)
	there.control(t, "tombolo-controller", host.Feature())
	proxy := startProxy(t)
	file := invited(t, there, proxy)
	refusals(t, there, west, file, empty)
	west.runs(t, file)
	_, said, code := tombolo(t, "", "link", "join", "@"+file, "--kubeconfig", west.file, "--image", "registry.example/tombolo:v1",
		"--cluster-pod-cidr", "10.1.0.0/16", "--node-elastic-ip", "a=203.0.113.7", "--network-type", "gateway",
		"--wait", "90s")
	if code != 0 || !strings.Contains(said, "no other cluster") {
		t.Fatalf("join: %d", code)
	}
	joined(t, there, west)
	if proxy.count() == 0 {
		t.Error("the host cluster was not reached through the proxy")
	}
	if _, said, code = tombolo(t, "", "link", "join", "@"+file, "--kubeconfig", west.file, "--image", "x/y"); code != 4 ||
		!strings.Contains(said, "token_used") {
		t.Errorf("the line is used twice: %d", code)
	}
	if _, said, code = tombolo(t, "", "link", "join", "@"+file, "--kubeconfig", west.file, "--image", "x/y", "--namespace",
		"apart"); code != 4 || !strings.Contains(said, "tombolo link join west --namespace apart") {
		t.Errorf("a hint for another namespace: %d", code)
	}
	interrupted(t, there, west)
	if _, _, code = tombolo(t, "", "link", "join", "west", "--kubeconfig", west.file, "--image",
		"registry.example/tombolo:v1"); code != 0 {
		t.Errorf("joined again: %d", code)
	}
	renewed(t, there, west)
	restored(t, there, west)
	west.apply(t, calico)
	if _, _, code = tombolo(t, "", "link", "unjoin", "west", "--kubeconfig", west.file, "--host-kubeconfig",
		there.file); code != 0 {
		t.Fatalf("unjoin: %d", code)
	}
	empty = append(empty, "CustomResourceDefinition /ippools.crd.projectcalico.org", "IPPool /theirs", "IPPool /tombolo-10-8-0-0-16")
	eventually(t, "nothing is left, and no pool of somebody else is removed", func() string {
		return difference("host", before, there.all(t)) + difference("west", empty, west.all(t))
	})
}

// calico is what has pools: one that Tombolo has made, one with its label, and one with a name such as it gives.
const calico = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: IPPool, listKind: IPPoolList, plural: ippools, singular: ippool}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: tombolo-10-9-0-0-16, labels: {app.kubernetes.io/managed-by: tombolo}}
spec: {cidr: 10.9.0.0/16, disabled: true}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: theirs, labels: {app.kubernetes.io/managed-by: tombolo}}
spec: {cidr: 10.7.0.0/16}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: tombolo-10-8-0-0-16}
spec: {cidr: 10.8.0.0/16, disabled: true}
`

// interrupted has a join end at each step in which it uses up its line: the next run says how to continue, and leaves
// nothing of the line.
func interrupted(t *testing.T, there, west *api) {
	t.Helper()
	const name = "tombolo-link-join-west"
	bare := func(kind, space string) client.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind})
		u.SetNamespace(space)
		u.SetName(name)
		return u
	}
	reads, states := bare("RoleBinding", "tombolo-links"), bare("ClusterRoleBinding", "")
	for removed, done := range [][]client.Object{{reads}, {reads, states}} {
		line, _, code := tombolo(t, "", "link", "token", "west", "--server", there.url, "--kubeconfig", there.file)
		if code != 0 {
			t.Fatalf("token: %d", code)
		}
		for _, o := range done {
			if err := there.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		_, said, code := tombolo(t, line, "link", "join", "-", "--kubeconfig", west.file, "--image", "x/y", "--network-type", "p2p")
		if code != 4 || !strings.Contains(said, "token_used") || !strings.Contains(said, "tombolo link join west") {
			t.Errorf("interrupted after %d steps: %d", removed+1, code)
		}
		left := there.all(t)
		for _, what := range []string{"ServiceAccount tombolo-link-join/west", "ClusterRoleBinding /" + name} {
			if slices.Contains(left, what) {
				t.Errorf("interrupted after %d steps, %s is left", removed+1, what)
			}
		}
	}
}

// invited makes a line, and another one in its place.
func invited(t *testing.T, there *api, through *proxy) (file string) {
	t.Helper()
	token := func() string {
		out, _, code := tombolo(t, "", "link", "token", "west", "--server", there.url, "--kubeconfig", there.file,
			"--proxy-url", through.url)
		if code != 0 || strings.Count(out, "\n") != 1 || len(out) > 4096 {
			t.Fatalf("token: %d, %d bytes", code, len(out))
		}
		return out
	}
	old := token()
	leaked := there.secret(t, "tombolo-links", "west", "token")
	file = filepath.Join(t.TempDir(), "line")
	if err := os.WriteFile(file, []byte(token()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, code := tombolo(t, old, "link", "join", "-", "--kubeconfig", there.file, "--image", "x/y", "--dry-run"); code != 4 ||
		!strings.Contains(said, "token_used") {
		t.Errorf("a line that was replaced: %d", code)
	}
	there.locksOut(t, leaked)
	out, _, code := tombolo(t, "", "link", "list", "--kubeconfig", there.file, "-o", "json")
	var list struct {
		Pending []struct{ Cluster string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Pending) != 1 ||
		list.Pending[0].Cluster != "west" {
		t.Errorf("pending: %+v, %d, %v", list, code, err)
	}
	return file
}

// refusals are of what is wrong: nothing is changed by them.
func refusals(t *testing.T, there, west *api, file string, empty []string) {
	t.Helper()
	for _, c := range []struct {
		flag, value, why string
		code             int
	}{
		{"--node-elastic-ip", "b=203.0.113.7", "no node b", 2},
		{"--node-elastic-ip", "a=256.0.0.1", "NODE=IP", 2},
		{"--cluster-pod-cidr", "10.1.0.1/16", "host bits", 2},
		{"--map", "10.1.0.0/16=10.2.0.0/17", "same IP version and length", 2},
		{"--dry-run", "", "nothing was changed", 0},
	} {
		args := []string{"link", "join", "@" + file, "--kubeconfig", west.file, "--image", "registry.example/tombolo:v1", c.flag}
		if c.value != "" {
			args = append(args, c.value)
		}
		if _, said, code := tombolo(t, "", args...); code != c.code || !strings.Contains(said, c.why) {
			t.Errorf("%s %s: %d", c.flag, c.value, code)
		}
	}
	if d := difference("west", empty, west.all(t)); d != "" {
		t.Error(d)
	}
}

// runs plays kubelet: a pod of the controller runs as long as there is its Deployment. A node announces itself.
func (x *api) runs(t *testing.T, dir string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	there := func() bool {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(deployment)
		return x.Get(ctx, client.ObjectKey{Namespace: system, Name: "tombolo-link"}, u) == nil
	}
	wait := func(is bool) bool {
		for there() != is {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(50 * time.Millisecond):
			}
		}
		return true
	}
	go func() {
		defer close(done)
		if !wait(true) {
			return
		}
		var s corev1.Secret
		if err := x.Get(ctx, client.ObjectKey{Namespace: system, Name: "tombolo-link-host"}, &s); err != nil {
			t.Error(err)
			return
		}
		kubeconfig := filepath.Join(filepath.Dir(dir), "member")
		if !strings.Contains(string(s.Data["kubeconfig"]), "proxy-url") {
			t.Error("the controller does not use the proxy")
		}
		if err := os.WriteFile(kubeconfig, s.Data["kubeconfig"], 0o600); err != nil {
			t.Error(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: system, Labels: map[string]string{
			"app.kubernetes.io/name": "tombolo", "app.kubernetes.io/instance": "tombolo-link"}},
			Spec: corev1.PodSpec{ServiceAccountName: "tombolo-link", NodeName: "a",
				Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := x.Create(ctx, pod); err != nil {
			t.Error(err)
		}
		stop := x.control(t, "tombolo-link", member.Features(&controlconf.Links{Cluster: "west", HostKubeconfig: kubeconfig,
			Gateways: 2})...)
		x.announce(ctx, t)
		if wait(false) {
			stop()
			_ = x.Delete(ctx, pod, client.GracePeriodSeconds(0)) // the test sees if it is left
		}
	}()
}

// announce writes the Member of node a, as the mesh there does.
func (x *api) announce(ctx context.Context, t *testing.T) { x.announceNode(ctx, t, "a") }

func (x *api) announceNode(ctx context.Context, t *testing.T, node string) {
	key := strings.Repeat(strings.ToUpper(node), 42) + "A="
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"publicKey": key,
		"nodename": node, "addresses": []any{"192.168.0.1"}, "endpoints": []any{"203.0.113.7:51820"}}}}
	u.SetGroupVersionKind(objects.GroupVersion().WithKind("Member"))
	u.SetName(node)
	for ctx.Err() == nil {
		err := x.Create(ctx, u.DeepCopy())
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "no matches") && !strings.Contains(err.Error(), "could not find") {
			t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// joined checks what a join has left on both sides.
func joined(t *testing.T, there, west *api) {
	t.Helper()
	var c objects.Cluster
	if err := there.Get(t.Context(), client.ObjectKey{Name: "west"}, &c); err != nil {
		t.Fatal(err)
	}
	if c.Spec.NetworkType != "gateway" || c.Spec.NodeElasticIPMap["a"] != "203.0.113.7" || c.Spec.Engine != "auto" ||
		!slices.Equal(c.Spec.ClusterPodCIDRs, []string{"10.1.0.0/16"}) {
		t.Errorf("spec: %+v", c.Spec)
	}
	for _, want := range []string{"DaemonSet " + system + "/tombolo-mesh", "Deployment " + system + "/tombolo-link",
		"Secret " + system + "/tombolo-link-host", "Secret " + system + "/tombolo-mesh-secret", "Cluster /west",
		"CustomResourceDefinition /members.tombolo.dev", "ClusterNode /west.a"} {
		eventually(t, want, func() string {
			if !slices.Contains(west.all(t), want) {
				return "is not there"
			}
			return ""
		})
	}
	left := there.all(t)
	if slices.Contains(left, "ServiceAccount tombolo-link-join/west") || slices.Contains(left, "ClusterRoleBinding /tombolo-link-join-west") {
		t.Error("the account for the join is left")
	}
}

// difference is what is missing and what is more.
func difference(where string, before, after []string) string {
	var out []string
	for _, s := range before {
		if !slices.Contains(after, s) {
			out = append(out, where+": "+s+" is missing")
		}
	}
	for _, s := range after {
		if !slices.Contains(before, s) {
			out = append(out, where+": "+s+" is left")
		}
	}
	return strings.Join(out, "\n")
}
