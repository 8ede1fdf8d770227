// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// fieldOwner is who changes fields, as the API server notes it.
const fieldOwner = client.FieldOwner("tombolo-controller")

// errForeign is the answer to writing over an object of somebody else.
var errForeign = errors.New("an object of this name is there, and somebody else's: remove or rename it")

// writer writes and removes objects of a plan.
type writer struct {
	client client.Client
	live   client.Reader // without a cache
}

// write applies an object. What is already so is not changed, and keeps its version.
func (w writer) write(ctx context.Context, p istio.Planned, r istio.Ref) error {
	u, err := find(p, r)
	if err != nil {
		return err
	}
	if r.Kind == istio.KindConfigMap { // caches have ours only
		there := bare(r)
		switch err := w.live.Get(ctx, client.ObjectKeyFromObject(there), there); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case there.GetLabels()[istio.LabelManagedBy] != istio.ManagedBy:
			return errForeign
		}
	}
	return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
}

// remove deletes an object. That it is gone already is no error.
func (w writer) remove(ctx context.Context, r istio.Ref) error {
	return client.IgnoreNotFound(w.client.Delete(ctx, bare(r)))
}

// bare is an object without content.
func bare(r istio.Ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetKind(r.Kind)
	switch r.Kind {
	case istio.KindEnvoyFilter:
		u.SetAPIVersion(istio.APINetworking)
	case istio.KindAuthorizationPolicy:
		u.SetAPIVersion(istio.APISecurity)
	default:
		u.SetAPIVersion("v1")
	}
	u.SetNamespace(r.Namespace)
	u.SetName(r.Name)
	return u
}

// find is an object of a plan as it is sent.
func find(p istio.Planned, r istio.Ref) (*unstructured.Unstructured, error) {
	is := func(m istio.Meta) bool { return m.Namespace == r.Namespace && m.Name == r.Name }
	var found any
	switch r.Kind {
	case istio.KindEnvoyFilter:
		for _, o := range p.EnvoyFilters {
			if is(o.Metadata) {
				found = o
			}
		}
	case istio.KindAuthorizationPolicy:
		for _, o := range p.AuthorizationPolicies {
			if is(o.Metadata) {
				found = o
			}
		}
	default:
		for _, o := range p.ConfigMaps {
			if is(o.Metadata) {
				found = o
			}
		}
	}
	if found == nil {
		return nil, errors.New("it is not planned")
	}
	data, err := json.Marshal(found)
	if err != nil {
		return nil, err
	}
	u := bare(r)
	err = json.Unmarshal(data, &u.Object)
	return u, err
}

// why is an error of the API server for people, without what changes from one answer to the next.
func why(err error) string {
	switch reason := apierrors.ReasonForError(err); reason {
	case metav1.StatusReasonForbidden:
		return "the controller has no right to it: apply what 'tombolo controller manifest' prints"
	case metav1.StatusReasonUnknown:
		return cut(err.Error(), 512)
	default:
		return string(reason) + ": " + cut(err.Error(), 512)
	}
}
