// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

func TestWhatAWorldIsMadeOf(t *testing.T) {
	of := func(generation int64, status objects.AccessPolicyStatus) *objects.AccessPolicy {
		return &objects.AccessPolicy{ObjectMeta: metav1.ObjectMeta{UID: types.UID("1"), Generation: generation}, Status: status}
	}
	refused := objects.AccessPolicyStatus{Refused: &objects.Refusal{Why: "nonsense"}}
	for _, one := range []struct {
		a, b client.Object
		same bool
	}{
		{of(1, refused), of(1, refused), true},
		{of(1, objects.AccessPolicyStatus{}), of(1, objects.AccessPolicyStatus{Covered: "2/2"}), true},
		{of(1, objects.AccessPolicyStatus{}), of(1, refused), false},
		{of(1, refused), of(2, refused), false},
		{&objects.EdgeTenant{}, &objects.EdgeTenant{ObjectMeta: metav1.ObjectMeta{UID: types.UID("2")}}, false},
		{&objects.EdgeTenant{}, &objects.EdgeTenant{}, true},
		{&objects.EdgeTenant{}, &objects.EdgeTenant{Status: objects.EdgeTenantStatus{Refused: &objects.TenantRefusal{}}}, false},
	} {
		if got := same(one.a, one.b); got != one.same {
			t.Errorf("%+v, %+v: %v", one.a, one.b, got)
		}
	}
}

func TestNobodyIsAnsweredBeforeTheCachesAreRead(t *testing.T) {
	x := &webhook{}
	if _, err := x.now(t.Context(), nil); err == nil || x.unready() == nil {
		t.Error(err)
	}
}

func TestWhatHasToBeKnownAboutFiltersOfOthers(t *testing.T) {
	w := known(true)
	w.Tenants = []clusters.Ways{{Namespace: "ns", Name: "c1", Lost: true}}
	if got := unknown(w); len(got) > 0 {
		t.Errorf("a part of it is known: %q", got)
	}
	w.Tenants[0].Name = "c2"
	if got := unknown(w); !slices.Equal(got, []string{"EdgeTenant ns/c2"}) {
		t.Errorf("%q", got)
	}
	w.Policies = []clusters.Rules{{Name: "office", Lost: true}}
	if got := unknown(w); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
