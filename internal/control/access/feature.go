// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

// Feature keeps the objects of some gateways.
func Feature(cfg controlconf.Access) manager.Feature {
	return manager.Feature{Name: "access", Add: func(_ context.Context, h manager.Host) error {
		recorder := h.GetEventRecorder("tombolo-controller")
		hook := newWebhook(cfg, h)
		h.GetWebhookServer().Register(webhookPath, &admission.Webhook{Handler: hook})
		h.Unready(hook.unready)
		if err := h.Add(hook); err != nil {
			return err
		}
		return h.Add(leader{&loop{
			cfg: cfg, log: h.Log, wake: watch.NewLoop(gather),
			told: telemetry.NewAccess(h.Metrics,
				[]string{istio.KindEnvoyFilter, istio.KindAuthorizationPolicy, istio.KindConfigMap}, gaps()),
			writer: writer{h.GetClient(), h.GetAPIReader()}, status: h.GetClient().Status(),
			say: func(about client.Object, warning bool, reason, note string) {
				kind := corev1.EventTypeNormal
				if warning {
					kind = corev1.EventTypeWarning
				}
				recorder.Eventf(about, nil, kind, reason, "Enforce", "%s", cut(note, 1024))
			},
		}, h})
	}}
}

// leader runs a loop on the replica that leads, as soon as the API server has Istio's kinds.
type leader struct {
	loop *loop
	host manager.Host
}

// NeedLeaderElection says that one replica writes.
func (leader) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (x leader) Start(ctx context.Context) error {
	return watch.Source{
		Host: x.host, Log: x.host.Log, Theirs: kinds(), Ours: ours(), Options: x.options, Same: same, Wake: x.loop.changed,
		Edited: func() { x.loop.edited.Store(true) }, Until: "lists are not enforced",
	}.Run(ctx, func(theirs cache.Cache, versions []schema.GroupVersionKind) error {
		x.loop.reader = reader{ours: x.host.GetCache(), theirs: theirs, kinds: versions}
		x.loop.run(ctx)
		return nil
	})
}

// ours are our kinds that are read.
func ours() []client.Object { return []client.Object{&objects.AccessPolicy{}, &objects.EdgeTenant{}} }

// options keeps of ConfigMaps ours only.
func (x leader) options(versions []schema.GroupVersionKind) cache.Options {
	by := map[client.Object]cache.ByObject{}
	for _, kind := range versions {
		if kind.Kind != istio.KindConfigMap {
			continue
		}
		spaces := map[string]cache.Config{}
		for _, ns := range x.loop.cfg.Namespaces() {
			spaces[ns] = cache.Config{}
		}
		by[watch.Bare(kind)] = cache.ByObject{Namespaces: spaces,
			Label: labels.SelectorFromSet(labels.Set{istio.LabelManagedBy: istio.ManagedBy})}
	}
	return cache.Options{ByObject: by, DefaultTransform: cache.TransformStripManagedFields()}
}

// same reports whether an update changed nothing that is read of an object. What is in force of one that is refused is
// in its status, where another replica may have noted it.
func same(old, next client.Object) bool {
	if old.GetUID() != next.GetUID() || old.GetGeneration() != next.GetGeneration() ||
		old.GetGeneration() == 0 && old.GetResourceVersion() != next.GetResourceVersion() ||
		!maps.Equal(old.GetLabels(), next.GetLabels()) {
		return false
	}
	switch o := old.(type) {
	case *objects.AccessPolicy:
		n, ok := next.(*objects.AccessPolicy)
		return ok && equality.Semantic.DeepEqual(o.Status.Refused, n.Status.Refused)
	case *objects.EdgeTenant:
		n, ok := next.(*objects.EdgeTenant)
		return ok && equality.Semantic.DeepEqual(o.Status.Refused, n.Status.Refused)
	}
	return true
}
