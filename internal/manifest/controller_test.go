// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/manifest"
)

func TestController(t *testing.T) {
	o := manifest.ControllerDefaults()
	o.Image = "registry.example/tombolo:v1"
	out, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"name: accesspolicies.tombolo.dev", "name: edgetenants.tombolo.dev", "name: clusters.tombolo.dev",
		"name: clusternodes.tombolo.dev", "name: nodeconfigs.tombolo.dev", "kind: PodDisruptionBudget", "replicas: 2",
		"failurePolicy: Fail", "failurePolicy: Ignore", "readOnlyRootFilesystem: true", "runAsNonRoot: true",
		"resourceNames: [tombolo-controller-webhooks]", "automountServiceAccountToken: true",
	} {
		if !strings.Contains(string(out), part) {
			t.Errorf("there is no %q", part)
		}
	}
	if strings.Contains(string(out), `"*"`) || strings.Contains(string(out), "verbs: ['*']") {
		t.Error("a right has no bound")
	}
	for _, part := range []string{"shoot-info", "extensions.gardener.cloud", "/validate/shoot", "clusternodes]", "ippools"} {
		if strings.Contains(string(out), part) {
			t.Errorf("nobody asked for %q", part)
		}
	}
	all := o
	all.Gateways, all.Gardener, all.Answer, all.Shoots = []string{"istio-ingress"}, true, true, true
	if out, err = manifest.Controller(all); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"resourceNames: [shoot-info]", "resources: [extensions, clusters, infrastructures]",
		"resources: [extensions, extensions/status]", "path: /validate/shoot", "resources: [accesspolicies, edgetenants]",
		`extensions.extensions.gardener.cloud/acl: "true"`} {
		if !strings.Contains(string(out), part) {
			t.Errorf("there is no %q", part)
		}
	}
	all.Answer = false
	if out, _ = manifest.Controller(all); strings.Contains(string(out), "extensions/status") {
		t.Error("Extensions may be changed")
	}
	o.Gateways = []string{"istio-ingress"}
	if out, err = manifest.Controller(o); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"kind: MutatingWebhookConfiguration", "values: [istio-ingress, istio-system]", "reinvocationPolicy: IfNeeded",
		"name: adds-filter-chains",
		`request.userInfo.username != "system:serviceaccount:tombolo-system:tombolo-controller"`, "resources: [mutatingwebhookconfigurations]", "namespace: istio-system",
	} {
		if !strings.Contains(string(out), part) {
			t.Errorf("with a gateway there is no %q", part)
		}
	}
	o.MeshRoot = "mesh"
	if out, err = manifest.Controller(o); err != nil || !strings.Contains(string(out), "values: [istio-ingress, mesh]") ||
		!strings.Contains(string(out), "namespace: mesh\n") || strings.Contains(string(out), "istio-system") {
		t.Errorf("the mesh has another root namespace: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "tombolo-links") {
		t.Error("nobody asked for linked clusters")
	}
	if err := o.Suits("tombolo-controller", "", ":9443", ":8449"); err != nil {
		t.Error(err)
	}
	if err := o.Suits("other", "x", ":1", "127.0.0.1:8449"); err == nil || strings.Count(err.Error(), "must be") != 4 {
		t.Errorf("%v", err)
	}
	for _, wrong := range []func(*manifest.ControllerOptions){
		func(o *manifest.ControllerOptions) { o.Replicas = 0 },
		func(o *manifest.ControllerOptions) { o.HostNetwork = true },
		func(o *manifest.ControllerOptions) { o.Name = strings.Repeat("a", 41) },
		func(o *manifest.ControllerOptions) { o.Image = "" },
	} {
		bad := o
		wrong(&bad)
		if _, err := manifest.Controller(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestControllerOfALinkedCluster: it has the rights for that, and the credentials for the host cluster.
func TestControllerOfALinkedCluster(t *testing.T) {
	o := manifest.ControllerDefaults()
	o.Image, o.Linked, o.HostKubeconfig = "registry.example/tombolo:v1", true, "/etc/host/kubeconfig"
	out, err := manifest.Controller(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"resources: [clusters, clusternodes]", "resources: [clusters/status, clusternodes/status]",
		"resources: [members, nodeconfigs]", "resources: [ippools, blockaffinities]", "resources: [ciliumnodes, ciliumpodippools]",
		"namespace: kube-system", "secretName: tombolo-controller-host", "mountPath: /etc/host\n",
		"resourceNames: [kube-flannel-cfg, canal-config"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("there is no %q", part)
		}
	}
	for _, part := range []string{"shoot-info", "nodeconfigs/status]"} {
		if strings.Contains(string(out), part) {
			t.Errorf("nobody asked for %q", part)
		}
	}
	o.Gardener = true
	if out, err = manifest.Controller(o); err != nil || strings.Count(string(out), "namespace: kube-system") != 2 {
		t.Errorf("with Gardener: %v\n%s", err, out)
	}
	for _, file := range []string{"kubeconfig", "/kubeconfig", "/etc/tombolo/config/kubeconfig"} {
		o.HostKubeconfig = file
		if _, err := manifest.Controller(o); err == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}
