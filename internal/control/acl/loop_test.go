// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Passes over objects that are stored: a list is written and answered, a bad one changes nothing, and nothing is left.
func TestPasses(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := objects.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	theirs := schema.GroupVersion{Group: "extensions.gardener.cloud", Version: "v1alpha1"}
	var versions []schema.GroupVersionKind
	for _, k := range kinds()[:3] {
		scheme.AddKnownTypeWithName(theirs.WithKind(k.Kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(theirs.WithKind(k.Kind+"List"), &unstructured.UnstructuredList{})
		versions = append(versions, theirs.WithKind(k.Kind))
	}
	object := func(kind, text string, args ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: from[map[string]any](t, text, args...)}
		u.SetGroupVersionKind(theirs.WithKind(kind))
		return u
	}
	ext := object(kindExtension, extensionText, "shoot--p--s", "allow", "203.0.113.0/24")
	ext.SetAnnotations(map[string]string{annotationOperation: "reconcile", "other": "stays"})
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(ext, &objects.AccessPolicy{}, &objects.EdgeTenant{}).WithObjects(ext,
		object(kindCluster, clusterText, "shoot--p--s"),
		object(kindInfrastructure, `{"metadata": {"name": "s", "namespace": "shoot--p--s"}}`)).Build()
	var events []string
	l := &loop{
		options: options{Most: 50}, answers: true, log: slog.New(slog.DiscardHandler), client: c, live: c,
		told: telemetry.NewACL(prometheus.NewRegistry()), kind: versions[0],
		reader: reader{ours: c, theirs: c, kinds: versions},
		say:    func(_ runtime.Object, _ bool, reason, note string) { events = append(events, reason+" "+note) },
	}
	see := func(when, state string, objectsWanted int) {
		t.Helper()
		if !l.pass(t.Context()) {
			t.Fatalf("%s: it failed", when)
		}
		var policies objects.AccessPolicyList
		var tenants objects.EdgeTenantList
		if err := c.List(t.Context(), &policies); err != nil {
			t.Fatal(err)
		}
		if err := c.List(t.Context(), &tenants); err != nil {
			t.Fatal(err)
		}
		if len(policies.Items) != objectsWanted || len(tenants.Items) != objectsWanted {
			t.Fatalf("%s: %v, %v", when, policies.Items, tenants.Items)
		}
		if state == "" {
			return
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(ext), ext); err != nil {
			t.Fatal(err)
		}
		kind, _, _ := unstructured.NestedString(ext.Object, "status", "lastOperation", "type")
		got, _, _ := unstructured.NestedString(ext.Object, "status", "lastOperation", "state")
		_, bad, _ := unstructured.NestedMap(ext.Object, "status", "lastError")
		if fmt.Sprint(kind, " ", got, " ", bad) != state || ext.GetAnnotations()[annotationOperation] != "" || ext.GetAnnotations()["other"] == "" {
			t.Fatalf("%s: %v", when, ext.Object)
		}
	}
	enforce := func() { // as package access does
		t.Helper()
		var p objects.AccessPolicy
		var o objects.EdgeTenant
		for key, x := range map[client.ObjectKey]client.Object{{Name: "shoot--p--s"}: &p, {Namespace: "shoot--p--s", Name: "shoot--p--s"}: &o} {
			if err := c.Get(t.Context(), key, x); err != nil {
				t.Fatal(err)
			}
		}
		p.Status.Conditions = []metav1.Condition{{Type: objects.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation}}
		o.Status.Conditions = []metav1.Condition{{Type: objects.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: o.Generation}}
		for _, x := range []client.Object{&p, &o} {
			if err := c.Status().Update(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	see("the first", "Create Processing false", 1)
	see("it waits", "Create Processing false", 1)
	enforce()
	see("it is in force", "Create Succeeded false", 1)
	version := ext.GetResourceVersion()
	see("nothing new", "Create Succeeded false", 1)
	if ext.GetResourceVersion() != version {
		t.Error("nothing is new, and the Extension changed")
	}
	edit := func(cidr string) {
		t.Helper()
		next := object(kindExtension, extensionText, "shoot--p--s", "ALLOW", cidr)
		ext.Object["spec"] = next.Object["spec"]
		if err := c.Update(t.Context(), ext); err != nil {
			t.Fatal(err)
		}
	}
	edit("203.0.113.1/24")
	see("a bad list", "Reconcile Error true", 1)
	if len(events) != 1 || !strings.HasPrefix(events[0], "ListRefused what was in force stays: spec.providerConfig.rule.cidrs[0]: ") {
		t.Errorf("%q", events)
	}
	see("the same again", "Reconcile Error true", 1)
	edit("203.0.113.0/25")
	see("a good list", "Reconcile Processing false", 1)
	enforce()
	see("it is in force", "Reconcile Succeeded false", 1)
	if len(events) != 2 {
		t.Errorf("%q", events)
	}
	var p objects.AccessPolicy
	if err := c.Get(t.Context(), client.ObjectKey{Name: "shoot--p--s"}, &p); err != nil || p.Rules[0].Sources[0] != "203.0.113.0/25" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := c.Delete(t.Context(), ext); err != nil {
		t.Fatal(err)
	}
	see("it is gone", "", 0)
}
