// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

// calico has Calico know the accepted ranges of other clusters, and forget them.
func (f *federation) calico(t *testing.T) {
	kinds, err := os.ReadFile("../read/testdata/calico.crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f.b.create(t, string(kinds))
	pool := schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"}
	eventually(t, "the kinds of Calico are served", func() string {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": "10.2.0.0/16"}}}
		u.SetGroupVersionKind(pool)
		u.SetName("default-ipv4-ippool")
		if err := f.b.Create(t.Context(), u); err != nil {
			return err.Error()
		}
		return ""
	})
	f.change(t, "b", `{"spec":{"cni":"calico"}}`, false)
	accepted := `{"status":{"accepted":%s,"conditions":[{"type":"RangesAccepted","status":"%s","reason":"Distinct",` +
		`"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	f.change(t, "a", fmt.Sprintf(accepted, `["10.1.0.0/16"]`, "True"), true)
	has := func(want ...string) func() string {
		return func() string {
			all := &unstructured.UnstructuredList{}
			all.SetGroupVersionKind(pool.GroupVersion().WithKind("IPPoolList"))
			if err := f.b.List(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, u := range all.Items {
				disabled, _, _ := unstructured.NestedBool(u.Object, "spec", "disabled")
				cidr, _, _ := unstructured.NestedString(u.Object, "spec", "cidr")
				got = append(got, fmt.Sprint(u.GetName(), " ", cidr, " ", disabled))
				size, _, _ := unstructured.NestedInt64(u.Object, "spec", "blockSize")
				if want := map[bool]int64{true: 26}[disabled]; size != want {
					t.Errorf("%s has the block size %d, want %d", u.GetName(), size, want)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("%q, want %q", got, want)
			}
			return ""
		}
	}
	const own = "default-ipv4-ippool 10.2.0.0/16 false"
	eventually(t, "Calico knows the range of a", has(own, "tombolo-10-1-0-0-16 10.1.0.0/16 true"))
	f.host.says(t, "b", objects.ConditionPoolsMade, "True Made", "for each range")
	f.change(t, "a", fmt.Sprintf(accepted, `[]`, "False"), true)
	eventually(t, "and forgets it", has(own))
	theirs := bareOf(pool)
	theirs.SetName("tombolo-10-1-0-0-16")
	theirs.Object["spec"] = map[string]any{"cidr": "10.77.0.0/16"}
	if err := f.b.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	f.change(t, "a", fmt.Sprintf(accepted, `["10.1.0.0/16"]`, "True"), true)
	f.host.says(t, "b", objects.ConditionPoolsMade, "False NameTaken", "tombolo-10-1-0-0-16 (of 10.77.0.0/16); give it another name")
	f.change(t, "a", fmt.Sprintf(accepted, `[]`, "False"), true)
	f.host.says(t, "b", objects.ConditionPoolsMade, "True Made", "")
	f.b.remove(t, bareOf(pool), "tombolo-10-1-0-0-16")
	f.change(t, "a", fmt.Sprintf(accepted, `["10.1.0.0/16"]`, "True"), true)
	eventually(t, "and knows it again", has(own, "tombolo-10-1-0-0-16 10.1.0.0/16 true"))
	byHand := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": "10.9.0.0/16"}}}
	byHand.SetGroupVersionKind(pool)
	byHand.SetName("by-hand")
	byHand.SetLabels(map[string]string{labelManagedBy: managedBy})
	if err := f.b.Create(t.Context(), byHand); err != nil {
		t.Fatal(err)
	}
	f.b.remove(t, bareOf(pool), "default-ipv4-ippool")
	f.change(t, "b", `{"spec":{"cni":"auto"}}`, false)
	f.host.says(t, "b", objects.ConditionCNIKnown, "False CNIUnknown", "name it in spec.cni; IPPools of Calico")
	if wrong := has("by-hand 10.9.0.0/16 false", "tombolo-10-1-0-0-16 10.1.0.0/16 true")(); wrong != "" {
		t.Errorf("while the CNI cannot be told: %s", wrong)
	}
	f.change(t, "b", `{"spec":{"cni":"other"}}`, false)
	f.host.says(t, "b", objects.ConditionCNIKnown, "True Told", "other, by spec.cni")
	eventually(t, "without Calico it goes, and somebody else's stays", has("by-hand 10.9.0.0/16 false"))
	f.host.says(t, "b", objects.ConditionPoolsMade, "True NotNeeded", "no IPPool")
}

// change patches a Cluster at the host cluster.
func (f *federation) change(t *testing.T, cluster, text string, status bool) {
	t.Helper()
	c := &objects.Cluster{}
	c.Name = cluster
	patch := client.RawPatch(types.MergePatchType, []byte(text))
	to := f.host.Patch
	if status {
		to = func(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			return f.host.Status().Patch(ctx, o, p)
		}
	}
	if err := to(t.Context(), c, patch); err != nil {
		t.Fatal(err)
	}
}
