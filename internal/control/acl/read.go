// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

const (
	kindExtension      = "Extension"
	kindCluster        = "Cluster"
	kindInfrastructure = "Infrastructure"
	kindService        = "Service"
	kindConfigMap      = "ConfigMap"
)

// kinds are those of others that are read.
func kinds() []schema.GroupKind {
	const theirs = "extensions.gardener.cloud"
	return []schema.GroupKind{{Group: theirs, Kind: kindExtension}, {Group: theirs, Kind: kindCluster},
		{Group: theirs, Kind: kindInfrastructure}, {Kind: kindService}, {Kind: kindConfigMap}}
}

// slim leaves of an object of others what is read of it: a seed has thousands, and a Cluster is large. What cannot be
// decoded stays whole, and is found again by whoever reads it.
func slim(in any) (any, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	u.SetManagedFields(nil)
	var parts map[string]any
	switch u.GetKind() {
	case kindExtension:
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); kind != gardener.Type {
			u.Object["spec"] = map[string]any{"type": kind}
			delete(u.Object, "status")
		}
		return u, nil
	case kindCluster:
		parts = rest(u, &gardener.Cluster{}, "spec")
	case kindInfrastructure:
		parts = rest(u, &gardener.Infrastructure{}, "status")
	case kindService:
		parts = rest(u, &gardener.Service{}, "status")
	}
	for _, field := range []string{"spec", "status"} {
		if parts != nil {
			delete(u.Object, field)
		}
	}
	maps.Copy(u.Object, parts)
	return u, nil
}

// rest is a field of an object, as far as a type has it; nil: it cannot be decoded.
func rest(u *unstructured.Unstructured, into any, field string) map[string]any {
	if decode(u, into) != nil {
		return nil
	}
	data, err := json.Marshal(into)
	if err != nil {
		return nil
	}
	var all map[string]any
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	return map[string]any{field: all[field]}
}

func decode(u *unstructured.Unstructured, into any) error {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// changed reports whether an update of an object of others has something new.
func changed(old, next *unstructured.Unstructured) bool {
	bare := func(u *unstructured.Unstructured) map[string]any {
		out := maps.Clone(u.Object)
		meta, _ := out["metadata"].(map[string]any)
		meta = maps.Clone(meta)
		delete(meta, "resourceVersion")
		out["metadata"] = meta
		return out
	}
	return !reflect.DeepEqual(bare(old), bare(next))
}

// reader reads caches. It keeps what it decoded, so that a change costs one object. It belongs to one goroutine.
type reader struct {
	ours, theirs client.Reader
	kinds        []schema.GroupVersionKind
	known        map[string]decoded // by kind and name
}

type decoded struct {
	version string
	value   any
	why     string // it cannot be decoded
}

// read lists everything.
func (r *reader) read(ctx context.Context) (facts, error) {
	f := facts{Clusters: map[string]gardener.Cluster{}, Infrastructures: map[string]gardener.Infrastructure{},
		Broken: map[string]string{}}
	known := make(map[string]decoded, len(r.known))
	for _, kind := range r.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.theirs.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return f, err
		}
		for i := range list.Items {
			u := &list.Items[i]
			key := nameOf(kind.Kind, u)
			one, there := r.known[key]
			if !there || one.version != u.GetResourceVersion() {
				one = decodeOne(kind.Kind, u)
			}
			known[key] = one
			f.add(key, one)
		}
	}
	r.known = known
	var policies objects.AccessPolicyList
	var tenants objects.EdgeTenantList
	if err := r.ours.List(ctx, &policies); err != nil {
		return f, err
	}
	if err := r.ours.List(ctx, &tenants); err != nil {
		return f, err
	}
	f.Policies, f.Tenants = policies.Items, tenants.Items
	return f, nil
}

// nameOf is an object for people, as package gardener names it.
func nameOf(kind string, u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return kind + " " + u.GetName()
	}
	return kind + " " + u.GetNamespace() + "/" + u.GetName()
}

func decodeOne(kind string, u *unstructured.Unstructured) decoded {
	out := decoded{version: u.GetResourceVersion()}
	switch kind {
	case kindExtension:
		e := &extension{UID: string(u.GetUID()), Version: u.GetResourceVersion(), Generation: u.GetGeneration(),
			Finalizers: u.GetFinalizers()}
		var of struct {
			gardener.Extension
			Status status `json:"status"`
		}
		if err := decode(u, &of); err != nil {
			out.why = err.Error()
			of.Extension.Metadata = gardener.Metadata{Name: u.GetName(), Namespace: u.GetNamespace(),
				Annotations: u.GetAnnotations()}
			of.Spec.Type, _, _ = unstructured.NestedString(u.Object, "spec", "type")
		}
		e.Extension, e.Status = of.Extension, of.Status
		out.value = e
		return out
	case kindCluster:
		out.value = &gardener.Cluster{}
	case kindInfrastructure:
		out.value = &gardener.Infrastructure{}
	case kindService:
		out.value = &gardener.Service{}
	default:
		out.value = &gardener.ConfigMap{}
	}
	if err := decode(u, out.value); err != nil {
		out.why = err.Error()
	}
	return out
}

// add adds an object. What cannot be decoded is noted.
func (f *facts) add(key string, one decoded) {
	if one.why != "" {
		f.Broken[key] = one.why
	}
	switch o := one.value.(type) {
	case *extension:
		if o.Spec.Type == gardener.Type {
			f.Extensions = append(f.Extensions, *o)
		}
	case *gardener.Cluster:
		f.Clusters[o.Metadata.Name] = *o
	case *gardener.Infrastructure:
		f.Infrastructures[o.Metadata.Namespace+"/"+o.Metadata.Name] = *o
	case *gardener.Service:
		f.Gateways = append(f.Gateways, *o)
	case *gardener.ConfigMap:
		f.ShootInfo = o
	}
}
