// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// fieldOwner is who changes fields, as the API server notes it.
const fieldOwner = client.FieldOwner("tombolo-member")

// atOnce is how many objects are written at the same time: the host cluster may be far away.
const atOnce = 8

// do does changes, and last those that remove: what takes the place of another object is there before that one goes.
// The error has that of the first one that failed, and how many did.
func do(ctx context.Context, to client.Client, changes []change) error {
	failed := make([]error, len(changes))
	for _, remove := range []bool{false, true} {
		if err := each(ctx, to, changes, failed, remove); err != nil {
			return err
		}
	}
	var first error
	n := 0
	for i, err := range failed {
		if err == nil {
			continue
		}
		if n++; first == nil {
			first = fmt.Errorf("%s %s: %w", changes[i].kind, changes[i].name, err)
		}
	}
	if n > 1 {
		return fmt.Errorf("%w (and %d more)", first, n-1)
	}
	return first
}

// each does those changes that remove, or the others.
//
//	failed: gets the error of each
func each(ctx context.Context, to client.Client, changes []change, failed []error, remove bool) error {
	var next atomic.Int64
	g := run.NewGroup(ctx)
	for range min(atOnce, len(changes)) {
		g.Go("writes", func(ctx context.Context) error {
			for {
				i := int(next.Add(1) - 1)
				if i >= len(changes) {
					return nil
				}
				if removes(changes[i]) == remove {
					failed[i] = one(ctx, to, changes[i])
				}
			}
		})
	}
	return g.Wait()
}

// one does one change. That an object is gone already is no error.
func one(ctx context.Context, to client.Client, c change) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(objects.GroupVersion().WithKind(c.kind))
	u.SetName(c.name)
	if c.remove != "" {
		err := to.Delete(ctx, u, client.Preconditions{UID: &c.remove})
		if apierrors.IsConflict(err) { // it is another one by now, which the next pass sees
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	if c.gone {
		return client.IgnoreNotFound(to.Delete(ctx, u))
	}
	if c.spec != nil {
		if _, err := apply(ctx, to, c); err != nil {
			return err
		}
	}
	if c.status == nil {
		return nil
	}
	if err := put(u, "status", c.status); err != nil {
		return err
	}
	return to.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
}

// apply writes the spec of an object. It gives the object's generation.
func apply(ctx context.Context, to client.Client, c change) (int64, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(objects.GroupVersion().WithKind(c.kind))
	o.SetName(c.name)
	o.SetLabels(c.labels)
	o.SetAnnotations(c.annotations)
	if c.owner != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*c.owner})
	}
	if err := put(o, "spec", c.spec); err != nil {
		return 0, err
	}
	err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
	return o.GetGeneration(), err // it is the object as it is now
}

// put sets a field of an object.
func put(u *unstructured.Unstructured, field string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	u.Object[field] = content
	return nil
}

// notes says once what does not work, and once that it does again.
type notes struct {
	log  *slog.Logger
	said map[string]metav1.StatusReason
}

func (n *notes) say(what string, err error) {
	last, known := n.said[what]
	reason := apierrors.ReasonForError(err)
	switch {
	case err == nil && known:
		delete(n.said, what)
		n.log.Info("a part of a linked cluster works again", "what", what)
	case err != nil && (!known || last != reason):
		if n.said == nil {
			n.said = map[string]metav1.StatusReason{}
		}
		n.said[what] = reason
		n.log.Warn("a part of a linked cluster does not work, and is tried again", "what", what, telemetry.AttrCode,
			fault.CodeKubeAway, telemetry.AttrReason, why(err))
	}
}

// fails reports whether something was last said not to work.
func (n *notes) fails(what string) bool {
	_, known := n.said[what]
	return known
}

// why is an error of an API server for people.
func why(err error) string {
	if lacking := kinds.Lacking(err, v1alpha1.KindCluster); lacking != nil {
		return trouble.Kinds("the API server", lacking).Message
	}
	if apierrors.IsForbidden(err) {
		return "the controller has no right to it: " + cut(err.Error(), 512)
	}
	return cut(err.Error(), 512)
}

// answered reports whether an error is the answer of an API server that works.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}
