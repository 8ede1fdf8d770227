// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

// What is kept of an object means the same, and an update of what is left out is none.
func TestWhatIsLeftOfAnObject(t *testing.T) {
	whole := func(version, image, egress string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: from[map[string]any](t, `{"apiVersion": "extensions.gardener.cloud/v1alpha1",
			"kind": "Infrastructure", "metadata": {"name": "s", "namespace": "n", "resourceVersion": "%s"},
			"spec": {"image": "%s"}, "status": {"egressCIDRs": ["%s"], "providerStatus": {}}}`, version, image, egress)}
		out, err := slim(u)
		if err != nil || out != any(u) || u.Object["spec"] != nil {
			t.Fatalf("%v, %v", out, err)
		}
		return u
	}
	a := whole("1", "x", "192.0.2.1/32")
	if changed(a, whole("2", "y", "192.0.2.1/32")) || !changed(a, whole("2", "x", "192.0.2.2/32")) {
		t.Error("a change")
	}
	if got := decodeOne(kindInfrastructure, a).value.(*gardener.Infrastructure); got.Status.EgressCIDRs[0] != "192.0.2.1/32" {
		t.Errorf("%+v", got)
	}
	cluster := &unstructured.Unstructured{Object: from[map[string]any](t, clusterText, "shoot--p--s")}
	cluster.SetKind(kindCluster)
	before := decodeOne(kindCluster, cluster).value.(*gardener.Cluster)
	if _, err := slim(cluster); err != nil || cluster.Object["spec"] == nil {
		t.Fatal(err)
	}
	after := decodeOne(kindCluster, cluster).value.(*gardener.Cluster)
	if before.Spec.Shoot.Status.TechnicalID != after.Spec.Shoot.Status.TechnicalID || after.Spec.Seed.Spec.Ingress.Domain == "" {
		t.Errorf("%+v", after)
	}
	broken := &unstructured.Unstructured{Object: from[map[string]any](t, `{"kind": "Cluster", "metadata": {"name": "c"}, "spec": {"shoot": 1}}`)}
	if _, err := slim(broken); err != nil || decodeOne(kindCluster, broken).why == "" {
		t.Error("it is not known to be broken")
	}
	other := &unstructured.Unstructured{Object: from[map[string]any](t, `{"kind": "Extension", "spec": {"type": "dns", "providerConfig": {}}, "status": {}}`)}
	if _, err := slim(other); err != nil || other.Object["status"] != nil {
		t.Error("an Extension of another type is kept")
	}
}
