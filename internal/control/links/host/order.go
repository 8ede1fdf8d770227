// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
)

// mostNoted is how many orders, and how many marks, are noted in one pass: what is noted is a change, so another pass
// follows. A pass also bounds how many nodes a member has: with 256, one that creates them as fast as it can got 1,700
// to 2,100 of 1,000, and with 32 it gets 1,050 to 1,150.
const mostNoted = 32

// orders notes on ClusterNodes in which order they came: creation times are those of seconds, and resourceVersions of
// one API server grow. It remembers the one with which an object came until it is written: what the cache has a moment
// later may have been changed since, after the object of somebody who saw it come.
type orders struct {
	patch func(context.Context, client.Object, client.Patch, ...client.PatchOption) error

	mu   sync.Mutex
	came map[types.UID]uint64 // objects without an order
}

func newOrders(patch func(context.Context, client.Object, client.Patch, ...client.PatchOption) error) *orders {
	return &orders{patch: patch, came: map[types.UID]uint64{}}
}

// follow remembers how objects come, and calls wake about those that need an order.
func (x *orders) follow(ctx context.Context, c cache.Cache, wake func()) error {
	i, err := c.GetInformer(ctx, &objects.ClusterNode{})
	if err != nil {
		return err
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if n, ok := o.(*objects.ClusterNode); ok && x.see(n) {
				wake()
			}
		},
		UpdateFunc: func(old, next any) {
			was, ok := old.(*objects.ClusterNode)
			is, also := next.(*objects.ClusterNode)
			if !ok || !also {
				return
			}
			if another := was.UID != is.UID; another || is.Annotations[objects.AnnotationOrder] != "" {
				x.forget(was.UID)
				if another && x.see(is) {
					wake()
				}
			}
		},
		DeleteFunc: func(o any) {
			if last, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
				o = last.Obj
			}
			if n, ok := o.(*objects.ClusterNode); ok {
				x.forget(n.UID)
			}
		},
	})
	return err
}

// see remembers an object that comes, and reports whether it needs an order.
func (x *orders) see(n *objects.ClusterNode) bool {
	order, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil || n.Annotations[objects.AnnotationOrder] != "" {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.came[n.UID] = order
	return true
}

func (x *orders) forget(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.came, uid)
}

// due is an order that has to be noted.
type due struct {
	order uint64
	node  *objects.ClusterNode
}

// due are the first objects that need an order.
func (x *orders) due(nodes []objects.ClusterNode) (out []due) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range nodes {
		n := &nodes[i]
		if order, there := x.came[n.UID]; there && n.Annotations[objects.AnnotationOrder] == "" {
			out = append(out, due{order, n})
		}
	}
	slices.SortFunc(out, func(a, b due) int { return cmp.Compare(a.order, b.order) })
	return out[:min(len(out), mostNoted)]
}

// write notes orders, the first ones first.
func (x *orders) write(ctx context.Context, nodes []objects.ClusterNode) (changed bool, failed error) {
	var all []annotation
	for _, d := range x.due(nodes) {
		all = append(all, annotation{d.node, objects.AnnotationOrder, strconv.FormatUint(d.order, 10)})
	}
	return x.annotate(ctx, all)
}

// annotation is one that has to be written.
type annotation struct {
	node        *objects.ClusterNode
	name, value string
}

// annotate writes annotations on objects that are as the cache has them, so that one which is noted by then stays. It
// reports whether some are not. One that fails keeps no other one from it, but for a right that is missing.
func (x *orders) annotate(ctx context.Context, all []annotation) (changed bool, failed error) {
	for _, a := range all {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.node.UID,
			"resourceVersion": a.node.ResourceVersion, "annotations": map[string]string{a.name: a.value}}})
		if err == nil {
			n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: a.node.Name}}
			err = x.patch(ctx, n, client.RawPatch(types.MergePatchType, text), fieldOwner)
		}
		switch {
		case apierrors.IsConflict(err):
			changed = true
		case apierrors.IsForbidden(err):
			return changed, err
		case !apierrors.IsNotFound(err):
			failed = cmp.Or(failed, err)
		}
	}
	return changed, failed
}
