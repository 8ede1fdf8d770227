// SPDX-License-Identifier: Apache-2.0

package member

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
)

// TestLacking: a kind of which nothing can be created is about to go.
func TestLacking(t *testing.T) {
	all, going := metav1.Verbs{"create", "delete", "get", "list", "watch"}, metav1.Verbs{"delete", "get", "list", "watch"}
	clusters := func(v metav1.Verbs) metav1.APIResource {
		return metav1.APIResource{Name: "clusters", Kind: v1alpha1.KindCluster, Verbs: v}
	}
	nodes := func(v metav1.Verbs) metav1.APIResource {
		return metav1.APIResource{Name: "clusternodes", Kind: v1alpha1.KindClusterNode, Verbs: v}
	}
	status := metav1.APIResource{Name: "clusternodes/status", Kind: v1alpha1.KindClusterNode, Verbs: all}
	for name, c := range map[string]struct {
		served []metav1.APIResource
		want   string
	}{
		"both are there":       {[]metav1.APIResource{nodes(all), status, clusters(all)}, ""},
		"nothing is":           {nil, "clusters.tombolo.dev"},
		"a status alone":       {[]metav1.APIResource{status, clusters(all)}, "clusternodes.tombolo.dev"},
		"one is about to go":   {[]metav1.APIResource{nodes(going), clusters(all)}, "clusternodes.tombolo.dev"},
		"the other one is too": {[]metav1.APIResource{nodes(all), clusters(going)}, "clusters.tombolo.dev"},
	} {
		err := lacking(c.served)
		if got := strings.Join(kinds.Lacking(err, v1alpha1.KindCluster), " "); got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestIsLinked: a Cluster that is about to go is not linked any longer.
func TestIsLinked(t *testing.T) {
	here, going := &objects.Cluster{}, &objects.Cluster{}
	now := metav1.Now()
	going.DeletionTimestamp = &now
	l := linked{clusters: map[string]*objects.Cluster{"a": here, "b": going}}
	var got []string
	for _, name := range []string{"a", "b", "c"} {
		if l.has(name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, []string{"a"}) {
		t.Errorf("it has %q", got)
	}
}
