// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

const (
	gather  = 100 * time.Millisecond // changes of one moment are one pass
	retry   = 2 * time.Second        // after a failure
	patient = time.Minute            // a pass with all that it writes

	fieldOwner = client.FieldOwner("tombolo-acl")
)

// errForeign is the answer to writing over an object of somebody else.
var errForeign = errors.New("an object of this name is there, and somebody else's: remove or rename it")

// loop does passes: it is the one goroutine that writes.
type loop struct {
	options options
	answers bool // gardenlet waits for us
	log     *slog.Logger
	told    *telemetry.ACL
	reader  reader
	client  client.Client
	live    client.Reader                                                 // without a cache
	kind    schema.GroupVersionKind                                       // of Extensions
	say     func(about runtime.Object, warning bool, reason, note string) // an event
	wake    *watch.Loop
	said    map[string]said // by namespace and name
}

// said is what was last told of an Extension.
type said struct{ refusal, notice string }

// run does passes until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.wake.Run(ctx, func(ctx context.Context) time.Duration {
		if !l.pass(ctx) {
			return retry
		}
		return 0
	})
}

// pass writes what Extensions say. It reports whether all of that succeeded.
func (l *loop) pass(parent context.Context) bool {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	f, err := l.reader.read(ctx)
	if err != nil {
		l.log.Warn("objects cannot be read", broken(err)...)
		return false
	}
	p := decide(f, l.options)
	failed := map[string]string{} // by the namespace of the Extension
	note := func(action string, o client.Object, err error) {
		name := "AccessPolicy " + o.GetName()
		if o.GetNamespace() != "" {
			name = "EdgeTenant " + o.GetNamespace() + "/" + o.GetName()
		}
		if err == nil {
			l.log.Info("an object changed", "object", name, "action", action)
			return
		}
		failed[o.GetLabels()[LabelNamespace]] = name + ": " + why(err)
		l.log.Warn("an object cannot be changed", append(broken(err), "object", name, "action", action)...)
	}
	for _, o := range p.write {
		if failed[o.GetLabels()[LabelNamespace]] == "" {
			note("write", o, l.write(ctx, o, f))
		}
	}
	for _, o := range p.remove {
		uid, version := o.GetUID(), o.GetResourceVersion()
		err := l.client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
		note("remove", o, client.IgnoreNotFound(err))
	}
	fine, refused := len(failed) == 0, 0
	known := map[string]said{}
	for _, o := range p.outcomes {
		if o.refused() {
			refused++
		}
		known[o.Metadata.Namespace+"/"+o.Metadata.Name] = l.tell(o)
		if l.answers {
			err := l.answer(ctx, o, done{problems: o.problems, closed: o.closed,
				failed: failed[o.Metadata.Namespace], waits: o.waits()})
			if err != nil {
				fine = false
				l.log.Warn("an Extension cannot be answered", append(broken(err), "namespace", o.Metadata.Namespace)...)
			}
		}
	}
	l.said = known
	l.told.Lists.Set(float64(len(p.outcomes)))
	l.told.Refused.Set(float64(refused))
	return fine
}

// write applies an object, unless somebody else has one of its name.
func (l *loop) write(ctx context.Context, o client.Object, f facts) error {
	var is client.Object = &objects.AccessPolicy{}
	if _, tenant := o.(*objects.EdgeTenant); tenant {
		is = &objects.EdgeTenant{}
	}
	if !f.has(o) { // caches may be behind
		switch err := l.live.Get(ctx, client.ObjectKeyFromObject(o), is); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case !ours(is, o.GetLabels()[LabelNamespace]):
			return errForeign
		}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return err
	}
	delete(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return l.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
}

// has reports whether an object of this kind and name was read.
func (f facts) has(o client.Object) bool {
	switch o.(type) {
	case *objects.AccessPolicy:
		for i := range f.Policies {
			if f.Policies[i].Name == o.GetName() {
				return true
			}
		}
	case *objects.EdgeTenant:
		for i := range f.Tenants {
			if f.Tenants[i].Namespace == o.GetNamespace() && f.Tenants[i].Name == o.GetName() {
				return true
			}
		}
	}
	return false
}

// waits says why the gateways do not have the list as it should be; empty: they have it, or there is none. The tenant's
// status counts too: a policy is in force as soon as it is read, also when nobody knows the shoot yet.
func (o outcome) waits() string {
	p, t := o.stored, o.way
	if o.policy == nil || o.tenant == nil || !samePolicy(p, o.policy) || !sameTenant(t, o.tenant) {
		return "the list is being written"
	}
	wrong := func(object string, all []metav1.Condition, generation int64) string {
		c := meta.FindStatusCondition(all, objects.ConditionReady)
		switch {
		case c == nil || c.ObservedGeneration != generation:
			return "the list is written, and not yet in force"
		case c.Status != metav1.ConditionTrue:
			return cut(object + " is not ready: " + c.Message)
		}
		return ""
	}
	if why := wrong("EdgeTenant "+t.Namespace+"/"+t.Name, t.Status.Conditions, t.Generation); why != "" {
		return why
	}
	c := meta.FindStatusCondition(p.Status.Conditions, objects.ConditionCovered)
	if c != nil && c.ObservedGeneration == p.Generation && c.Reason == objects.ReasonNoGateway {
		return ""
	}
	return wrong("AccessPolicy "+p.Name, p.Status.Conditions, p.Generation)
}

// tell says what is new about an Extension.
func (l *loop) tell(o outcome) said {
	last := l.said[o.Metadata.Namespace+"/"+o.Metadata.Name]
	var now said
	now.refusal, _ = refusal(o.problems)
	now.notice = notice(o.problems)
	about := l.bare(o.extension)
	about.SetUID(types.UID(o.UID))
	if now.refusal != "" && now.refusal != last.refusal {
		stays := "what was in force stays: "
		if o.closed {
			stays = "only the platform gets in until a list is accepted: "
		}
		l.say(about, true, "ListRefused", stays+now.refusal)
	}
	if now.refusal == "" && last.refusal != "" {
		l.say(about, false, "ListAccepted", "the list is written")
	}
	if now.notice != "" && now.notice != last.notice {
		l.say(about, true, "ListOdd", now.notice)
	}
	return now
}

func (l *loop) bare(e extension) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(l.kind)
	u.SetNamespace(e.Metadata.Namespace)
	u.SetName(e.Metadata.Name)
	return u
}

// answer tells gardenlet. Each step names the version that it is about, so that a question that comes meanwhile stays.
func (l *loop) answer(ctx context.Context, o outcome, d done) error {
	next, clears := answer(o.extension, d, time.Now())
	rest, releases := o.released()
	u := l.bare(o.extension)
	u.SetResourceVersion(o.Version)
	patch := func(fields, metadata map[string]any, do func(client.Patch) error) error {
		metadata["resourceVersion"] = u.GetResourceVersion()
		fields["metadata"] = metadata
		data, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		return do(client.RawPatch(types.MergePatchType, data))
	}
	var err error
	if next != nil {
		fields := map[string]any{"observedGeneration": next.ObservedGeneration, "lastOperation": next.LastOperation,
			"lastError": nil}
		if next.LastError != nil {
			fields["lastError"] = next.LastError
		}
		err = patch(map[string]any{"status": fields}, map[string]any{}, func(p client.Patch) error {
			return l.client.Status().Patch(ctx, u, p, fieldOwner)
		})
	}
	metadata := map[string]any{}
	if clears {
		metadata["annotations"] = map[string]any{annotationOperation: nil}
	}
	if releases {
		metadata["finalizers"] = rest
	}
	if err == nil && len(metadata) > 0 {
		err = patch(map[string]any{}, metadata, func(p client.Patch) error { return l.client.Patch(ctx, u, p, fieldOwner) })
	}
	if apierrors.IsConflict(err) { // it is looked at again as soon as the cache has it
		return nil
	}
	return client.IgnoreNotFound(err)
}

// broken are the attributes of an error of the API server.
func broken(err error) []any {
	return []any{telemetry.AttrCode, fault.CodeKubeAway, telemetry.AttrReason, why(err)}
}

// why is an error of the API server for people.
func why(err error) string {
	if apierrors.IsForbidden(err) {
		return "the controller has no right to it: apply what 'tombolo controller manifest' prints"
	}
	return cut(err.Error())
}
