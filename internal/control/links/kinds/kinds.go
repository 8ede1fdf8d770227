// SPDX-License-Identifier: Apache-2.0

// Package kinds says what kinds an API server lacks where no object of linked clusters can: in an event about the
// Lease of the controller. It does not decide what is missing.
package kinds

import (
	"errors"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// mostEvent bounds the note of an event, as the API server does.
const mostEvent = 1024

// Events says something once, until something else is said.
type Events struct {
	recorder events.EventRecorder
	lease    *metav1.PartialObjectMetadata

	mu   sync.Mutex
	last string
}

// New is for the controller of a host.
func New(h manager.Host) *Events {
	lease := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name}}
	lease.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
	return &Events{recorder: h.GetEventRecorder("tombolo-controller"), lease: lease}
}

// Say makes an event of a verdict. One that all is well only ends what was said.
func (e *Events) Say(v trouble.Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v.Status == trouble.Yes {
		e.last = ""
	} else if v.Message != e.last {
		e.last = v.Message
		note := v.Message[:min(len(v.Message), mostEvent)]
		e.recorder.Eventf(e.lease, nil, corev1.EventTypeWarning, v.Reason, "Wait", "%s", note)
	}
}

// Definitions are the names of the definitions of kinds.
func Definitions(kinds []schema.GroupKind) (out []string) {
	for _, kind := range kinds {
		name := strings.ToLower(kind.Kind) + "s"
		if kind.Group != "" {
			name += "." + kind.Group
		}
		out = append(out, name)
	}
	return out
}

// Lacking are the definitions whose lack an error says; none: it says something else.
//
//	asked: the kind of linked clusters that was asked for
func Lacking(err error, asked string) []string {
	var kind *meta.NoKindMatchError
	switch {
	case errors.As(err, &kind):
		return Definitions([]schema.GroupKind{kind.GroupKind})
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) &&
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse): // there is no such path
		return Definitions([]schema.GroupKind{objects.GroupVersion().WithKind(asked).GroupKind()})
	}
	return nil
}
