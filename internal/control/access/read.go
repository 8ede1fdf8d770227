// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

// kinds are those of others that are read, and ours that are written, in the groups that Istio has them in.
func kinds() []schema.GroupKind {
	return []schema.GroupKind{
		{Group: "networking.istio.io", Kind: "Gateway"}, {Group: "networking.istio.io", Kind: "VirtualService"},
		{Group: "networking.istio.io", Kind: istio.KindEnvoyFilter},
		{Group: "security.istio.io", Kind: istio.KindAuthorizationPolicy},
		{Kind: "Service"}, {Kind: istio.KindConfigMap},
	}
}

// seen is what there was in the caches at one moment.
type seen struct {
	facts    istio.Facts
	policies []objects.AccessPolicy
	tenants  []objects.EdgeTenant
	versions map[istio.Ref]string // of what is ours
	others   bool                 // something changed that others wrote
}

// reader reads caches. It keeps what it decoded, so that a change costs one object. It belongs to one goroutine.
type reader struct {
	ours, theirs client.Reader
	kinds        []schema.GroupVersionKind
	known        map[istio.Ref]decoded
}

type decoded struct {
	version string
	foreign bool
	value   any
}

// read lists everything.
func (r *reader) read(ctx context.Context) (seen, error) {
	out := seen{versions: map[istio.Ref]string{}}
	known := make(map[istio.Ref]decoded, len(r.known))
	changed := false
	for _, kind := range r.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.theirs.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return out, err
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
			return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
		})
		for i := range list.Items {
			u := &list.Items[i]
			ref := istio.Ref{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
			one, there := r.known[ref]
			if !there || one.version != u.GetResourceVersion() {
				next, err := decode(kind.Kind, u)
				if err != nil {
					return out, err
				}
				changed = changed || next.foreign && !(there && onlyGuards(one, next))
				one = next
			}
			known[ref] = one
			out.add(ref, one)
		}
	}
	for ref, one := range r.known {
		if _, there := known[ref]; !there && one.foreign {
			changed = true
		}
	}
	r.known = known
	out.others = changed
	var err error
	out.policies, out.tenants, err = own(ctx, r.ours)
	return out, err
}

// own lists our kinds.
func own(ctx context.Context, from client.Reader) ([]objects.AccessPolicy, []objects.EdgeTenant, error) {
	var policies objects.AccessPolicyList
	var tenants objects.EdgeTenantList
	if err := from.List(ctx, &policies); err != nil {
		return nil, nil, err
	}
	if err := from.List(ctx, &tenants); err != nil {
		return nil, nil, err
	}
	leaves := func(m metav1.ObjectMeta) bool { return m.DeletionTimestamp != nil && len(m.Finalizers) == 0 }
	return slices.DeleteFunc(policies.Items, func(o objects.AccessPolicy) bool { return leaves(o.ObjectMeta) }),
		slices.DeleteFunc(tenants.Items, func(o objects.EdgeTenant) bool { return leaves(o.ObjectMeta) }), nil
}

// onlyGuards reports whether an EnvoyFilter of somebody else differs in guards alone, which count as ours.
func onlyGuards(old, next decoded) bool {
	a, ok := old.value.(*istio.EnvoyFilter)
	b, is := next.value.(*istio.EnvoyFilter)
	return ok && is && old.foreign && istio.SameButGuards(*a, *b)
}

func decode(kind string, u *unstructured.Unstructured) (decoded, error) {
	out := decoded{version: u.GetResourceVersion(), foreign: u.GetLabels()[istio.LabelManagedBy] != istio.ManagedBy}
	switch kind {
	case "Gateway":
		out.value = &istio.Gateway{}
	case "VirtualService":
		out.value = &istio.VirtualService{}
	case istio.KindEnvoyFilter:
		out.value = &istio.EnvoyFilter{}
	case istio.KindAuthorizationPolicy:
		out.value = &istio.AuthorizationPolicy{}
	case "Service":
		out.value = &istio.Service{}
	default:
		out.value = &istio.ConfigMap{}
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(data, out.value); err != nil {
		return out, err
	}
	if e, is := out.value.(*istio.EnvoyFilter); is {
		e.Prepare()
	}
	return out, nil
}

func (s *seen) add(ref istio.Ref, one decoded) {
	if !one.foreign {
		s.versions[ref] = one.version
	}
	switch o := one.value.(type) {
	case *istio.Gateway:
		s.facts.Gateways = append(s.facts.Gateways, *o)
	case *istio.VirtualService:
		s.facts.VirtualServices = append(s.facts.VirtualServices, *o)
	case *istio.EnvoyFilter:
		s.facts.EnvoyFilters = append(s.facts.EnvoyFilters, *o)
	case *istio.AuthorizationPolicy:
		s.facts.AuthorizationPolicies = append(s.facts.AuthorizationPolicies, *o)
	case *istio.Service:
		s.facts.Services = append(s.facts.Services, *o)
	case *istio.ConfigMap:
		s.facts.ConfigMaps = append(s.facts.ConfigMaps, *o)
	}
}

// inputs are what package clusters reads of objects.
func inputs(ps []objects.AccessPolicy, ts []objects.EdgeTenant) ([]clusters.Policy, []clusters.Tenant) {
	var policies []clusters.Policy
	var tenants []clusters.Tenant
	for _, o := range ps {
		p := clusters.Policy{Name: o.Name, Version: version(o.UID, o.Generation), Content: o.AccessContent}
		if o.Status.Refused != nil {
			p.Kept = o.Status.Refused.InForce
		}
		policies = append(policies, p)
	}
	for _, o := range ts {
		t := clusters.Tenant{Namespace: o.Namespace, Name: o.Name, Spec: o.Spec, Seen: o.Status.ObservedGeneration > 0,
			Created: o.CreationTimestamp.UTC().Format(time.RFC3339), Version: version(o.UID, o.Generation)}
		if o.Status.Refused != nil {
			t.Refused, t.Kept = true, o.Status.Refused.InForce
		}
		tenants = append(tenants, t)
	}
	return policies, tenants
}

func version(uid types.UID, generation int64) string {
	return string(uid) + "/" + strconv.FormatInt(generation, 10)
}
