// SPDX-License-Identifier: Apache-2.0

// Package read reads of a cluster what package learn needs to tell its ranges. An API that the cluster does not have is
// no error, and a right that is missing is a fact, which learn makes a problem of. It changes nothing: the one Service
// that it creates has an address that no Service can have, and is a dry run besides.
package read

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/link/learn"
)

// Cluster is what is needed of the client of a cluster. It must not be one with a cache, which would keep and watch all
// that is read.
type Cluster interface {
	Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error
	List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error
	Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error
	RESTMapper() meta.RESTMapper
}

const (
	// pageSize is how many objects are asked for at once: some MiB of Nodes with many annotations.
	pageSize = 200
	// mostNodes bounds Nodes and CiliumNodes: Kubernetes itself promises 5,000.
	mostNodes = 10_000
	// mostBlocks bounds the blocks of Calico: a node has one for each 64 pods.
	mostBlocks = 50_000
	// mostPools bounds pools, ServiceCIDRs and API servers each, of which there are a few.
	mostPools = 1000
)

const kubeSystem = "kube-system"

// reader reads one cluster once.
type reader struct {
	from  Cluster
	facts learn.Facts
}

// Facts reads a cluster. The Service that is refused would be in a namespace, in which the reader must be allowed to
// create Services. The error is that of a request which may succeed when it is done again.
func Facts(ctx context.Context, from Cluster, spec learn.Spec, namespace string) (learn.Facts, error) {
	r := &reader{from: from}
	for _, step := range []func(context.Context, learn.Spec) error{r.nodes, r.calico, r.cilium, r.configs, r.services} {
		if err := step(ctx, spec); err != nil {
			return learn.Facts{}, err
		}
	}
	if learn.AskService(r.facts, spec) {
		if err := r.ask(ctx, namespace); err != nil {
			return learn.Facts{}, err
		}
	}
	return r.facts, nil
}

func (r *reader) nodes(ctx context.Context, _ learn.Spec) (err error) {
	r.facts.Nodes, err = list[learn.Node](ctx, r, schema.GroupKind{Kind: "Node"}, mostNodes)
	return err
}

func (r *reader) calico(ctx context.Context, spec learn.Spec) (err error) {
	const stored, served = "crd.projectcalico.org", "projectcalico.org" // the second alone: version 3 as definitions
	if !spec.Matters(learn.Calico) {
		return nil
	}
	kind := schema.GroupKind{Group: stored, Kind: "IPPool"}
	if m, err := r.mapping(kind); err != nil {
		return err
	} else if m == nil {
		kind.Group = served
	}
	r.facts.Pools, err = list[learn.IPPool](ctx, r, kind, mostPools)
	if err != nil {
		return err
	}
	kind.Kind = "BlockAffinity"
	r.facts.Blocks, err = list[learn.BlockAffinity](ctx, r, kind, mostBlocks)
	return err
}

func (r *reader) cilium(ctx context.Context, spec learn.Spec) (err error) {
	const group = "cilium.io"
	if !spec.Matters(learn.Cilium) {
		return nil
	}
	kind := schema.GroupKind{Group: group, Kind: "CiliumNode"}
	r.facts.CiliumNodes, err = list[learn.CiliumNode](ctx, r, kind, mostNodes)
	if err != nil {
		return err
	}
	kind = schema.GroupKind{Group: group, Kind: "CiliumPodIPPool"}
	r.facts.CiliumPools, err = list[learn.CiliumPodIPPool](ctx, r, kind, mostPools)
	return err
}

// configs gets ConfigMaps by name: others are nobody's business here.
func (r *reader) configs(ctx context.Context, spec learn.Spec) error {
	for _, at := range learn.ConfigMaps() {
		if !spec.Matters(at.CNI) {
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		err := r.from.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, u)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			r.deny("get", "configmaps", at.Namespace, at.Name)
			continue
		case err != nil:
			return err
		}
		if one, ok := decode[learn.ConfigMap](r, u); ok {
			r.facts.ConfigMaps = append(r.facts.ConfigMaps, one)
		}
	}
	return nil
}

// services reads what tells the ranges of services. Flags are read where the API has nothing.
func (r *reader) services(ctx context.Context, spec learn.Spec) (err error) {
	kind := schema.GroupKind{Group: "networking.k8s.io", Kind: "ServiceCIDR"}
	m, err := r.mapping(kind)
	if err != nil {
		return err
	}
	// The final version came in 1.33 with the allocator that names no range in its refusals.
	r.facts.ServiceCIDRAPI = m != nil && m.GroupVersionKind.Version == "v1"
	r.facts.ServiceCIDRs, err = list[learn.ServiceCIDR](ctx, r, kind, mostPools)
	if err != nil || len(r.facts.ServiceCIDRs) > 0 || spec.ExternalAPIServer {
		return err
	}
	r.facts.APIServers, err = list[learn.Pod](ctx, r, schema.GroupKind{Kind: "Pod"}, mostPools,
		client.InNamespace(kubeSystem), client.MatchingLabels{"component": "kube-apiserver"})
	return err
}

// mapping says how the API server has a kind, nil if it does not.
func (r *reader) mapping(kind schema.GroupKind) (*meta.RESTMapping, error) {
	m, err := r.from.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) && kind.Group != "" { // each API server has the kinds without a group
		return nil, nil
	}
	return m, err
}

// list lists a kind, in pages. Rights that are missing, and objects that are too many or cannot be decoded, are facts.
func list[T learn.Object](ctx context.Context, r *reader, kind schema.GroupKind, most int,
	opts ...client.ListOption) (out []T, err error) {
	m, err := r.mapping(kind)
	if m == nil || err != nil {
		return nil, err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	o.Limit = pageSize
	resource := m.Resource.GroupResource().String()
	for {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(m.GroupVersionKind)
		err := r.from.List(ctx, page, &o)
		switch {
		case apierrors.IsForbidden(err):
			r.deny("list", resource, o.Namespace, "")
			return nil, nil
		case apierrors.IsNotFound(err): // its definition was deleted a moment ago
			return nil, nil
		case err != nil:
			return nil, err
		}
		for i := range page.Items {
			if len(out) == most {
				r.facts.TooMany = append(r.facts.TooMany, resource)
				return out, nil
			}
			if one, ok := decode[T](r, &page.Items[i]); ok {
				out = append(out, one)
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return out, nil
		}
	}
}

func (r *reader) deny(verb, resource, namespace, name string) {
	r.facts.Denied = append(r.facts.Denied, learn.Right{Verb: verb, Resource: resource, Namespace: namespace, Name: name})
}

// mostBroken bounds the objects that are noted because they cannot be decoded.
const mostBroken = 100

func decode[T learn.Object](r *reader, u *unstructured.Unstructured) (T, bool) {
	data, err := json.Marshal(u.Object)
	var out T
	if err == nil {
		out, err = learn.Decode[T](data)
	}
	if err != nil && len(r.facts.Broken) < mostBroken {
		r.facts.Broken = append(r.facts.Broken, learn.Broken{Object: u.GetKind() + " " + u.GetName(), Why: err.Error()})
	}
	return out, err == nil
}

// ask asks the API server for Services with an address of each family that is in no range.
func (r *reader) ask(ctx context.Context, namespace string) error {
	for _, family := range [][2]string{{"IPv4", "0.0.0.0"}, {"IPv6", "::"}} {
		err := r.from.Create(ctx, invalid(namespace, family[0], family[1]), client.DryRunAll)
		var status apierrors.APIStatus
		switch {
		case err == nil:
			r.facts.Answers = append(r.facts.Answers, "a Service with the address "+family[1]+" is accepted")
			continue
		case !errors.As(err, &status), !refuses(status.Status().Code):
			return err
		}
		if apierrors.IsForbidden(err) {
			r.deny("create", "services", namespace, "")
		}
		r.facts.Answers = append(r.facts.Answers, status.Status().Message)
		if apierrors.IsForbidden(err) {
			return nil // the other family is, too
		}
	}
	return nil
}

// invalid is a Service with an address of a family.
func invalid(namespace, family, address string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "tombolo-invalid", "namespace": namespace},
		"spec": map[string]any{"clusterIP": address, "ipFamilies": []any{family},
			"ports": []any{map[string]any{"port": int64(443), "protocol": "TCP"}}},
	}}
}

// refuses reports whether a code of HTTP means that asking again gives the same answer.
func refuses(code int32) bool {
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests &&
		code != http.StatusUnauthorized && code != http.StatusRequestTimeout && code != http.StatusConflict
}
