// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/manifest"
)

// routeManifests: kube-apiserver takes what `tombolo route manifest` prints, without a field that it does not know; the
// sidecar is added to a workload that somebody else applied, and stays when they apply it again.
func (w *members) routeManifests(t *testing.T) {
	o := manifest.RouteDefaults()
	o.Image, o.Namespace, o.Cluster, o.Secret = "tombolo.local/tombolo:dev", "route-own", "c1", "c1"
	o.Hubs, o.Maps = []string{"hub.example.com:8443"}, []string{"10.244.0.0/16=240.2.0.0/16"}
	o.DNS, o.Zone, o.Nameservers = "10.244.0.10", "c1.internal", []string{"10.96.0.10"}
	o.Run, o.RunArgs = "example/shell:v1", []string{"sleep", "infinity"}
	text, err := manifest.Route(o)
	if err != nil {
		t.Fatal(err)
	}
	w.takes(t, text, o.Namespace, 1)

	const there = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: backup, namespace: shop}
spec:
  selector: {matchLabels: {app: backup}}
  template:
    metadata: {labels: {app: backup}}
    spec:
      initContainers: [{name: prepare, image: example/prepare}]
      containers: [{name: backup, image: example/backup, volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, emptyDir: {}}]
`
	apply := func(text []byte) {
		t.Helper()
		args := []string{"apply", "--validate=strict", "-f", "-"}
		if out, err := w.KubectlInput(t.Context(), bytes.NewReader(text), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	get := func(path string) string {
		out, err := w.Kubectl(t.Context(), "-n", "shop", "get", "deployment", "backup", "-o",
			"jsonpath={.spec.template.spec"+path+"}")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	apply([]byte(there))
	o.Kind, o.Workload, o.Namespace, o.Run, o.RunArgs = manifest.RouteSidecar, "backup", "shop", "", nil
	patch := func(change func(*manifest.RouteOptions)) {
		t.Helper()
		o := o
		change(&o)
		o.Only = manifest.RouteObjects
		objects, err := manifest.Route(o)
		if err != nil {
			t.Fatal(err)
		}
		apply(objects)
		o.Only = manifest.RoutePatch
		text, err := manifest.Route(o)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"-n", "shop", "patch", "deployment", "backup", "--patch-file", "/dev/stdin"}
		out, err := w.KubectlInput(t.Context(), bytes.NewReader(text), args...)
		if err != nil || !strings.Contains(out, " patched") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		dns  string
	}{
		{"without names", func() {
			patch(func(o *manifest.RouteOptions) { o.DNS, o.Zone, o.Nameservers = "", "", nil })
		}, "ClusterFirst"},
		{"with names", func() { patch(func(*manifest.RouteOptions) {}) }, "None192.0.0.53 10.96.0.10"},
		{"the owner applies again", func() { apply([]byte(strings.Replace(there, "/backup,", "/backup:v2,", 1))) },
			"None192.0.0.53 10.96.0.10"},
	} {
		step.do()
		if got := get(".initContainers[*].name"); got != "tombolo-route prepare" {
			t.Errorf("%s: init containers %s", step.what, got)
		}
		if got := get(".containers[*].name"); got != "backup" {
			t.Errorf("%s: containers %s", step.what, got)
		}
		if got := get(".volumes[*].name"); strings.Count(got, "tombolo-route-") != 4 || !strings.Contains(got, "data") {
			t.Errorf("%s: volumes %s", step.what, got)
		}
		if got := get(".dnsPolicy") + get(".dnsConfig.nameservers[*]"); got != step.dns {
			t.Errorf("%s: %s, want %s", step.what, got, step.dns)
		}
	}
	runtest.Eventually(t, "a pod with the sidecar is admitted", func() bool {
		out, err := w.Kubectl(t.Context(), "-n", "shop", "get", "pods", "-o",
			"jsonpath={.items[*].spec.initContainers[*].restartPolicy}")
		return err == nil && strings.Contains(out, "Always")
	})
	if _, err := w.Kubectl(t.Context(), "delete", "namespace", "shop", "--wait=false"); err != nil {
		t.Error(err)
	}
}
