// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

func came(name, version, order string) objects.ClusterNode {
	n := objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name), ResourceVersion: version}}
	if order != "" {
		n.Annotations = map[string]string{objects.AnnotationOrder: order}
	}
	return n
}

// TestOrders: what is noted is how an object came, the first one first, and only where nothing is noted.
func TestOrders(t *testing.T) {
	var wrote []string
	fails := map[string]error{}
	x := newOrders(func(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
		data, err := p.Data(o)
		if fails[o.GetName()] == nil {
			wrote = append(wrote, o.GetName()+" "+string(data))
		}
		return cmp.Or(fails[o.GetName()], err)
	})
	a, b, c, odd, unseen := came("a", "10", ""), came("b", "9", ""), came("c", "8", "5"), came("odd", "x", ""), came("new", "11", "")
	for n, want := range map[*objects.ClusterNode]bool{&a: true, &b: true, &c: false, &odd: false} {
		if got := x.see(n); got != want {
			t.Errorf("%s needs an order: %v", n.Name, got)
		}
	}
	b.ResourceVersion = "12" // it has reported since
	nodes := []objects.ClusterNode{a, b, c, odd, unseen}
	of := func(name, version, order string) string {
		return fmt.Sprintf(`%s {"metadata":{"annotations":{"tombolo.dev/order":%q},"resourceVersion":%q,"uid":"u-%[1]s"}}`, name,
			order, version)
	}
	is := func(what string, again, failed bool, want ...string) {
		t.Helper()
		wrote = nil
		changed, err := x.write(t.Context(), nodes)
		if changed != again || (err != nil) != failed || !slices.Equal(wrote, want) {
			t.Errorf("%s: %v, %v, %q, want %q", what, changed, err, wrote, want)
		}
	}
	is("the first one first", false, false, of("b", "12", "9"), of("a", "10", "10"))
	kind := schema.GroupResource{Resource: "clusternodes"}
	for what, f := range map[string]struct {
		err           error
		again, failed bool
	}{"changed": {apierrors.NewConflict(kind, "b", nil), true, false}, "gone": {apierrors.NewNotFound(kind, "b"), false, false},
		"broken": {errors.New("broken"), false, true}} {
		fails["b"] = f.err
		is(what, f.again, f.failed, of("a", "10", "10"))
	}
	fails["b"] = apierrors.NewForbidden(kind, "b", nil)
	is("no right", false, true)
	x.forget(b.UID)
	is("b is gone", false, false, of("a", "10", "10"))
	nodes[0] = came("a", "13", "10")
	is("it is noted", false, false)
	nodes = nil
	for i := range mostNoted + 1 {
		n := came(fmt.Sprint("n", i), fmt.Sprint(100+i), "")
		x.see(&n)
		nodes = append(nodes, n)
	}
	if n := len(x.due(nodes)); n != mostNoted {
		t.Errorf("%d in one pass", n)
	}
}
