// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// watchers are the accounts of two edges: one may read the tenants of all namespaces, one those of west.
const watchers = `{apiVersion: v1, kind: Namespace, metadata: {name: east}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: west}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: watch-all, namespace: default}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: watch-one, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watch-all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tombolo-edge-tenants}
subjects: [{kind: ServiceAccount, name: watch-all, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: watch-one, namespace: west}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tombolo-edge-tenants}
subjects: [{kind: ServiceAccount, name: watch-one, namespace: default}]
`

// edgeObjects: two edges watch EdgeTenants at a real kube-apiserver, with the rights of the manifest and no others.
func (x *cluster) edgeObjects(t *testing.T) {
	begin := time.Now()
	manifest, err := os.ReadFile("../../deploy/kubernetes/edgetenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	x.apply(t, string(manifest)+"---\n"+watchers)
	x.kubectl(t, "wait", "--for=condition=Established", "crd/edgetenants.tombolo.dev", "--timeout=30s")
	all := x.watching(t, rig.EdgeOptions{Name: "watch-all", Address: rig.AllAddress}, "")
	one := x.watching(t, rig.EdgeOptions{Name: "watch-one", Address: rig.OneAddress}, ", namespace: west")

	x.apply(t, object("east", "c1", x.EdgeName(), x.APIServer()))
	all.answers(t)
	live, err := all.StartKubectl(x.within(t, 5*time.Minute), io.Discard, x.Cluster, "get", "--raw",
		"/api/v1/namespaces?watch=1&timeoutSeconds=300")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { live.Stop(0) })
	all.tunnels(t, 1)
	x.apply(t, object("west", "w1", "w1.test", "192.0.2.1:6443"))
	all.inForce(t, 2)
	one.inForce(t, 1)
	one.refuses(t, "unrecognized name") // what is in east

	good := object("west", "w1", "w1.test", "192.0.2.1:1")
	for text, want := range map[string]string{ // refused by the schema
		strings.Replace(good, "flow: api", "flow: web", 1): `spec.ways[0].flow: Unsupported value: "web"`,
		strings.Replace(good, "names:", "name:", 1):        `unknown field "spec.ways[0].name"`,
	} {
		err := x.Apply(x.within(t, time.Minute), strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	x.apply(t, object("west", "w1", "bad name", "192.0.2.1:6443")+"---\n"+
		object("west", "thief", x.EdgeName(), "192.0.2.1:6443")) // refused by the edge
	all.refusal(t, "Kubernetes west/w1", `spec.ways[0].names[0]: name "bad name" has`)
	all.refusal(t, "Kubernetes west/thief", `is claimed by tenant "c1"`)
	one.refusal(t, "Kubernetes west/w1", `spec.ways[0].names[0]`)
	all.inForce(t, 2)
	x.kubectl(t, "delete", "edgetenants", "-n", "west", "--all")
	all.inForce(t, 1)
	one.inForce(t, 0)

	x.kubectl(t, "patch", "edgetenant", "c1", "-n", "east", "--type=json",
		`-p=[{"op":"replace","path":"/spec/ways/0/names/0","value":"moved.test"}]`)
	all.refuses(t, "unrecognized name")
	x.apply(t, object("east", "c1", x.EdgeName(), x.APIServer()))
	all.answers(t)
	all.tunnels(t, 1) // that of the watch
	t.Logf("%.1fs: tenants come, change and go", time.Since(begin).Seconds())

	restarted := make(chan error, 1)
	go func() { restarted <- x.UseEgress(x.ctx, rig.ConnectTLS) }()
	for _, e := range []*watching{all, one} {
		e.eventually(t, "the edge says that Kubernetes is away", func(st admin.EdgeTenants) bool { return len(st.Away) == 1 })
	}
	all.inForce(t, 1)
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	all.answers(t)
	x.apply(t, object("west", "w2", "w2.test", "192.0.2.1:6443"))
	all.inForce(t, 2)
	one.inForce(t, 1)
	for _, e := range []*watching{all, one} {
		e.eventually(t, "Kubernetes is back", func(st admin.EdgeTenants) bool { return len(st.Away) == 0 })
	}
	t.Logf("%.1fs: kube-apiserver was away", time.Since(begin).Seconds())

	x.kubectl(t, "delete", "crd", "edgetenants.tombolo.dev") // and all objects with it
	all.inForce(t, 0)
	one.inForce(t, 0)
	all.refuses(t, "unrecognized name")
	t.Logf("%.1fs in all", time.Since(begin).Seconds())
}

// object is a tenant with one name.
func object(namespace, name, host, upstream string) string {
	return fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: EdgeTenant
metadata: {name: %s, namespace: %s}
spec: {protected: true, ways: [{flow: api, names: [%q], upstreams: [%q]}]}
`, name, namespace, host, upstream)
}

func (x *cluster) apply(t *testing.T, text string) {
	t.Helper()
	if err := x.Apply(x.within(t, time.Minute), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func (x *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := x.Kubectl(x.within(t, time.Minute), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// watching is an edge whose tenants are objects.
type watching struct {
	*rig.Edge
	x *cluster
}

// watching starts an edge with the token of the service account of its name.
func (x *cluster) watching(t *testing.T, o rig.EdgeOptions, more string) *watching {
	t.Helper()
	access, err := x.TokenKubeconfig(o.Name, x.kubectl(t, "create", "token", o.Name))
	if err != nil {
		t.Fatal(err)
	}
	o.Rules, o.Kubernetes = officeOnly, fmt.Sprintf("{kubeconfig: %q%s}", access, more)
	e, err := x.rig.StartEdge(x.ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- end of the log of %s\n%s", o.Name, e.Log())
		}
	})
	return &watching{e, x}
}

// answers waits until kube-apiserver answers by way of the edge.
func (w *watching) answers(t *testing.T) {
	t.Helper()
	w.says(t, func(out string, err error) bool { return err == nil && strings.Contains(out, "ok") })
}

func (w *watching) refuses(t *testing.T, reason string) {
	t.Helper()
	w.says(t, func(_ string, err error) bool { return err != nil && strings.Contains(err.Error(), reason) })
}

func (w *watching) says(t *testing.T, good func(string, error) bool) {
	t.Helper()
	var out string
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("kubectl through %s: %q, %v", w.Name, out, err)
		}
	}()
	runtest.Eventually(t, "kubectl through "+w.Name, func() bool {
		out, err = w.Kubectl(w.x.within(t, time.Minute), w.x.Cluster, "get", "--raw", "/readyz")
		return good(out, err)
	})
}

func (w *watching) eventually(t *testing.T, what string, holds func(admin.EdgeTenants) bool) {
	t.Helper()
	var st admin.EdgeStatus
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", w.Name, st.Tenants)
		}
	}()
	runtest.Eventually(t, w.Name+": "+what, func() (ok bool) {
		var err error
		if st, err = w.Status(w.x.within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		return holds(st.Tenants)
	})
}

// tunnels waits until so many are open.
func (w *watching) tunnels(t *testing.T, n int) {
	t.Helper()
	runtest.Eventually(t, fmt.Sprintf("%s: %d tunnels open", w.Name, n), func() bool {
		st, err := w.Status(w.x.within(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return st.Tunnels.Open == n
	})
}

func (w *watching) inForce(t *testing.T, n int) {
	t.Helper()
	w.eventually(t, fmt.Sprint(n, " in force"), func(st admin.EdgeTenants) bool { return st.InForce == n })
}

// refusal waits until an object is refused for a reason.
func (w *watching) refusal(t *testing.T, file, reason string) {
	t.Helper()
	w.eventually(t, file+" is refused: "+reason, func(st admin.EdgeTenants) bool {
		for _, r := range st.Refusals {
			if strings.Contains(r.File+" "+r.Reason, file) && strings.Contains(r.Reason, reason) {
				return true
			}
		}
		return false
	})
}
