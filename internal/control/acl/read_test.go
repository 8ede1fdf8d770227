// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

// 40 and 42: an update of an Infrastructure counts if its egress ranges changed. 41: one that only orders them anew leads
// to the same policy, as package gardener shows.
func TestWhichUpdatesOfAnInfrastructureCount(t *testing.T) {
	at := func(status string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: from[map[string]any](t, `{"apiVersion": "extensions.gardener.cloud/v1alpha1",
			"kind": "Infrastructure", "metadata": {"name": "s", "namespace": "n"}, "status": %s}`, status)}
		if _, err := slim(u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := at(`{"egressCIDRs": ["192.0.2.1/32"], "nodesCIDR": "10.0.0.0/8"}`)
	for name, c := range map[string]struct {
		status string
		same   bool
	}{
		"41: the same":           {`{"egressCIDRs": ["192.0.2.1/32"], "nodesCIDR": "10.0.0.0/8"}`, true},
		"40: another range":      {`{"egressCIDRs": ["192.0.2.2/32"]}`, false},
		"40: one more":           {`{"egressCIDRs": ["192.0.2.1/32", "192.0.2.2/32"]}`, false},
		"40: none":               {`{}`, false},
		"42: another field":      {`{"egressCIDRs": ["192.0.2.1/32"], "nodesCIDR": "10.1.0.0/16"}`, true},
		"42: the provider's own": {`{"egressCIDRs": ["192.0.2.1/32"], "providerStatus": {"x": 1}, "lastOperation": {"progress": 7}}`, true},
	} {
		if got := same(before, at(c.status)); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

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
