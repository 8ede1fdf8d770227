// SPDX-License-Identifier: Apache-2.0

//go:build kube

package host_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// waits: without its kinds the controller runs, and says which are missing.
func (x *world) waits(t *testing.T, namespace string) {
	t.Helper()
	const want = "Lease/tombolo-controller the host cluster lacks the CustomResourceDefinition clusternodes.tombolo.dev, " +
		"clusters.tombolo.dev; apply there what 'tombolo controller manifest' prints"
	eventually(t, "an event about the Lease", func() string {
		out := x.kube(t, "", "get", "events", "-n", namespace, "-o", "go-template={{range .items}}{{.reason}} "+
			`{{.involvedObject.kind}}/{{.involvedObject.name}} {{.message}}{{"\n"}}{{end}}`)
		if !strings.Contains(out, trouble.KindsMissing+" "+want) {
			return out
		}
		return ""
	})
}

// versions: the host says whether the version that a member's nodes say fits its own, which is v1.2.0.
func (x *world) versions(t *testing.T) {
	x.says(t, "ab", objects.ConditionVersionFits, trouble.Unversioned, "none that it says")
	for _, c := range []struct{ version, reason, words string }{
		{"v1.3.0", trouble.MemberNewer, "update the host cluster's controller"}, {"v2.0.0", trouble.Incompatible, "one major version"},
		{"v1.0.7", trouble.Fits, "the member's v1.0.7"},
	} {
		text := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, objects.AnnotationVersion, c.version)
		n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: "ab.n1"}}
		if err := x.members["ab"].Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
		x.says(t, "ab", objects.ConditionVersionFits, c.reason, c.words)
	}
	text := []byte(`{"status":{"nodeStatus":"Ready","lastHeard":"2026-01-01T00:00:00Z"}}`)
	n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: "ab.n1"}}
	if err := x.members["ab"].Status().Patch(t.Context(), n, client.RawPatch(types.MergePatchType, text)); err != nil {
		t.Fatal(err)
	}
	x.learns(t, "ab", "240.8.0.0/17") // what nodes report wakes nobody
	x.says(t, "ab", objects.ConditionMemberHeard, trouble.Heard, "alive")
}

// many: a member creates nodes until it is refused, and no other member is. Then it may create as many as it removes.
func (x *world) many(t *testing.T) {
	create := func(as string, i int) error {
		n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.m%d", as, i)},
			Spec: v1alpha1.ClusterNodeSpec{ClusterName: as, NodeName: fmt.Sprintf("m%d", i)}}
		return x.members[as].Create(t.Context(), n)
	}
	const most, workers = 3 * trouble.MostNodes, 8
	var refusals [workers]error
	var created [workers]int
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < most && refusals[w] == nil; i += workers {
				if refusals[w] = create("ab", i); refusals[w] == nil {
					created[w]++
				}
			}
		})
	}
	all.Wait()
	n := 0
	for w, err := range refusals {
		if n += created[w]; err == nil || !strings.Contains(err.Error(), "has as many ClusterNodes as it may") {
			t.Errorf("%d were created, and then: %v", created[w], err)
		}
	}
	t.Attr("figure", fmt.Sprintf("a member that creates nodes as fast as it can gets %d, of %d", n, trouble.MostNodes))
	if n > 2*trouble.MostNodes {
		t.Errorf("%d nodes were created", n)
	}
	x.says(t, "ab", objects.ConditionNodesWithinBound, trouble.TooManyNodes, "spec.excludeNodes")
	if _, err := x.as(t, "ab", owned("ab.n1", "ab.n1"), "create", "-f", "-"); err == nil ||
		!strings.Contains(err.Error(), "as many ClusterNodes") {
		t.Errorf("a configuration: %v", err)
	}
	if err := create("a", 0); err != nil {
		t.Errorf("another member: %v", err)
	}
	var list objects.ClusterNodeList
	if err := x.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "ab.m") {
			if err := x.members["ab"].Delete(t.Context(), &list.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.says(t, "ab", objects.ConditionNodesWithinBound, trouble.WithinBound, "")
	eventually(t, "it may create again", func() string {
		if err := create("ab", 0); err != nil {
			return err.Error()
		}
		return ""
	})
}
