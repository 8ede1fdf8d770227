// SPDX-License-Identifier: Apache-2.0

package access

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
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
