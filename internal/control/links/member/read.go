// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

const (
	kindNode   = "Node"
	kindMember = v1alpha1.KindMember
)

// options has caches keep of Nodes and Members what is read.
func options([]schema.GroupVersionKind) cache.Options {
	strip := cache.TransformStripManagedFields()
	return cache.Options{DefaultTransform: func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == kindNode {
			unstructured.RemoveNestedField(u.Object, "status", "images")
		}
		return strip(o)
	}}
}

// same reports whether an update changed nothing that a pass reads: most of them are signs of life.
func same(old, next client.Object) bool {
	if old.GetUID() != next.GetUID() {
		return false
	}
	switch o := old.(type) {
	case *unstructured.Unstructured:
		n, ok := next.(*unstructured.Unstructured)
		if ok && o.GetKind() == kindNode {
			return reflect.DeepEqual(nodeOf(o), nodeOf(n))
		}
		return ok && reflect.DeepEqual(memberOf(o), memberOf(n))
	case *objects.Cluster:
		n, ok := next.(*objects.Cluster)
		return ok && o.Generation == n.Generation && maps.Equal(o.Labels, n.Labels) &&
			equality.Semantic.DeepEqual(o.Status, n.Status)
	case *objects.ClusterNode:
		n, ok := next.(*objects.ClusterNode)
		return ok && o.Generation == n.Generation && maps.Equal(o.Labels, n.Labels) &&
			o.Annotations[objects.AnnotationOrder] == n.Annotations[objects.AnnotationOrder] &&
			o.Annotations[objects.AnnotationDoubled] == n.Annotations[objects.AnnotationDoubled] &&
			equality.Semantic.DeepEqual(o.Status, n.Status)
	case *objects.NodeConfig:
		n, ok := next.(*objects.NodeConfig)
		return ok && o.Generation == n.Generation && equality.Semantic.DeepEqual(o.Status, n.Status)
	}
	return false
}

// node is what is read of a Node. It is compared as a whole.
type node struct {
	share.Node
	Ranges []string // of its spec, which CNIs may use
	UID    string
}

func nodeOf(u *unstructured.Unstructured) (out node) {
	var n corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &n); err != nil {
		return node{Node: share.Node{Name: u.GetName()}} // it is not ready
	}
	out = node{share.Node{Name: n.Name, Labels: n.Labels}, n.Spec.PodCIDRs, string(n.UID)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	for _, a := range n.Status.Addresses {
		if parsed, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			out.Addresses = append(out.Addresses, parsed.Unmap())
		}
	}
	return out
}

func memberOf(u *unstructured.Unstructured) v1alpha1.MemberObjectSpec {
	var m v1alpha1.Member
	data, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return v1alpha1.MemberObjectSpec{}
	}
	return m.Spec
}

// memo reads objects again only if they changed. It belongs to one goroutine.
type memo[T any] struct {
	read func(*unstructured.Unstructured) T
	last map[string]memoized[T]
}

type memoized[T any] struct {
	version string
	value   T
}

func newMemo[T any](read func(*unstructured.Unstructured) T) *memo[T] { return &memo[T]{read: read} }

// all are the values of objects, by name.
func (m *memo[T]) all(items []unstructured.Unstructured) map[string]T {
	next, out := map[string]memoized[T]{}, map[string]T{}
	for i := range items {
		u := &items[i]
		got, ok := m.last[u.GetName()]
		if version := string(u.GetUID()) + " " + u.GetResourceVersion(); !ok || got.version != version {
			got = memoized[T]{version, m.read(u)}
		}
		next[u.GetName()], out[u.GetName()] = got, got.value
	}
	m.last = next
	return out
}

// reader reads the own cluster.
type reader struct {
	theirs, ours client.Reader // caches
	kinds        []schema.GroupVersionKind
}

func (r reader) list(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	for _, k := range r.kinds {
		if k.Kind == kind {
			l.SetGroupVersionKind(k)
		}
	}
	err := r.theirs.List(ctx, l, client.UnsafeDisableDeepCopy)
	return l.Items, err
}

// linked are the objects of linked clusters that a cluster has. They are not to be changed.
type linked struct {
	clusters map[string]*objects.Cluster
	nodes    map[string]*objects.ClusterNode
}

// has reports whether a cluster is linked, and not about to go.
func (l linked) has(cluster string) bool {
	of := l.clusters[cluster]
	return of != nil && of.DeletionTimestamp == nil
}

func readLinked(ctx context.Context, from client.Reader) (linked, error) {
	out := linked{map[string]*objects.Cluster{}, map[string]*objects.ClusterNode{}}
	var clusters objects.ClusterList
	if err := from.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		return out, err
	}
	for i := range clusters.Items {
		out.clusters[clusters.Items[i].Name] = &clusters.Items[i]
	}
	var nodes objects.ClusterNodeList
	if err := from.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return out, err
	}
	for i := range nodes.Items {
		out.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return out, nil
}
