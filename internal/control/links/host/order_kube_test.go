// SPDX-License-Identifier: Apache-2.0

//go:build kube

package host_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// order: a member claims the key of another one's new node as fast as it can, before that one's first report, and comes
// second for the host. It cannot write the order itself.
func (x *world) order(t *testing.T) {
	const key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	x.apply(t, "", fmt.Sprintf(cluster, "c0", "")+fmt.Sprintf(cluster, "c1", ""))
	for i, name := range []string{"c0", "c1"} {
		x.learns(t, name, fmt.Sprintf("10.%d.0.0/16", 8+i))
		x.judged(t, name, objects.ReasonDistinct, name)
	}
	create := func(as string) *objects.ClusterNode {
		t.Helper()
		n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: as + ".o"}, Spec: v1alpha1.ClusterNodeSpec{
			ClusterName: as, NodeName: "o", ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{PublicKey: key}}}
		if err := x.members[as].Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	victim := create("c1")
	attacker := create("c0")
	report := client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeStatus":"Ready"}}`))
	changed := victim.DeepCopy()
	if err := x.members["c1"].Status().Patch(t.Context(), changed, report); err != nil {
		t.Fatal(err)
	}
	if changed.ResourceVersion == victim.ResourceVersion {
		t.Fatal("the report is no change")
	}
	for _, n := range []*objects.ClusterNode{victim, attacker} {
		eventually(t, "the order of "+n.Name, func() string {
			var is objects.ClusterNode
			if err := x.client.Get(t.Context(), client.ObjectKeyFromObject(n), &is); err != nil {
				return err.Error()
			}
			if got := is.Annotations[objects.AnnotationOrder]; got != n.ResourceVersion {
				return fmt.Sprintf("%q, and it came as %s", got, n.ResourceVersion)
			}
			return ""
		})
	}
	if victim.CreationTimestamp.Equal(&attacker.CreationTimestamp) { // else the second decides
		x.judged(t, "c0", objects.ReasonDistinct, "node o of cluster c0 has the public key of node o of cluster c1")
	}

	mark := func(n *objects.ClusterNode) string {
		var is objects.ClusterNode
		if err := x.client.Get(t.Context(), client.ObjectKeyFromObject(n), &is); err != nil {
			return err.Error()
		}
		return is.Annotations[objects.AnnotationDoubled]
	}
	marked := func() {
		t.Helper()
		eventually(t, "the mark", func() string {
			if got := mark(attacker); !strings.Contains(got, "has the public key of node o of cluster c1") {
				return got + " is no mark"
			}
			return ""
		})
	}
	marked()
	if err := x.members["c1"].Delete(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	x.judged(t, "c0", objects.ReasonDistinct, "node o of cluster c0 is marked, and does not count")
	victim = create("c1") // as with another key: the one that waits gets nothing of it
	x.judged(t, "c0", objects.ReasonDistinct, "node o of cluster c0 has the public key of node o of cluster c1")
	if got := mark(victim); got != "" {
		t.Errorf("the one that is made anew is marked: %s", got)
	}

	body := func(order string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, objects.AnnotationOrder, order)
	}
	unmarked := func(value string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, objects.AnnotationDoubled, value)
	}
	another := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: "c0.p",
		Annotations: map[string]string{objects.AnnotationOrder: "1"}},
		Spec: v1alpha1.ClusterNodeSpec{ClusterName: "c0", NodeName: "p"}}
	m := x.members["c0"]
	patch := func(text []byte) error {
		return m.Patch(t.Context(), attacker.DeepCopy(), client.RawPatch(types.MergePatchType, text))
	}
	var is objects.ClusterNode
	if err := x.client.Get(t.Context(), client.ObjectKeyFromObject(attacker), &is); err != nil {
		t.Fatal(err)
	}
	without := is.DeepCopy()
	without.Annotations = nil
	for what, err := range map[string]error{"a node with an order": m.Create(t.Context(), another),
		"another order": patch(body(`"1"`)), "an empty one": patch(body(`""`)), "none": patch(body("null")),
		"no mark": patch(unmarked("null")), "another mark": patch(unmarked(`"x"`)),
		"no annotations": patch([]byte(`{"metadata":{"annotations":null}}`)), "a node without": m.Update(t.Context(), without)} {
		if err == nil || !strings.Contains(err.Error(), "writes the annotations tombolo.dev/order and tombolo.dev/doubled") {
			t.Errorf("%s is not refused: %v", what, err)
		}
	}
	// The rest of the object is its own, also as its controller writes it.
	if err := patch([]byte(`{"metadata":{"annotations":{"tombolo.dev/version":"v1.2.0"}}}`)); err != nil {
		t.Error(err)
	}
	x.apply(t, "c0", nodeOf("c0", "o", "podCIDRs: [10.8.7.0/24], publicKey: "+key))
	if err := m.Status().Patch(t.Context(), attacker.DeepCopy(), report); err != nil {
		t.Error(err)
	}
	if err := x.client.Get(t.Context(), client.ObjectKeyFromObject(attacker), &is); err != nil {
		t.Fatal(err)
	}
	if got := is.Annotations[objects.AnnotationOrder]; got != attacker.ResourceVersion || len(is.Spec.PodCIDRs) != 1 {
		t.Errorf("order %s, %+v", got, is.Spec)
	}
	for _, n := range []*objects.ClusterNode{victim, attacker} {
		if err := x.members[n.Spec.ClusterName].Delete(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
	x.kube(t, "", "delete", "clusters", "c0", "c1")
}
