// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
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
			cfg: cfg, log: h.Log, wake: make(chan struct{}, 1),
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
	versions, ok := x.kinds(ctx)
	if !ok {
		return nil
	}
	theirs, err := x.cache(versions)
	if err != nil {
		return err
	}
	g := run.NewGroup(ctx)
	g.Go("caches", theirs.Start)
	defer func() {
		g.Stop()
		_ = g.Wait() // it ends with its context
	}()
	for _, kind := range versions {
		if err := watch(ctx, theirs, bareOf(kind), x.loop.changed); err != nil {
			return err
		}
	}
	for _, kind := range []client.Object{&objects.AccessPolicy{}, &objects.EdgeTenant{}} {
		if err := watch(ctx, x.host.GetCache(), kind, x.loop.changed); err != nil {
			return err
		}
	}
	if !theirs.WaitForCacheSync(ctx) || !x.host.GetCache().WaitForCacheSync(ctx) {
		return nil
	}
	x.loop.reader = reader{ours: x.host.GetCache(), theirs: theirs, kinds: versions}
	return x.loop.run(ctx)
}

// kinds waits until the API server knows all kinds that are read.
func (x leader) kinds(ctx context.Context) (out []schema.GroupVersionKind, ok bool) {
	said := ""
	for {
		out = nil
		var missing []string
		for _, kind := range kinds() {
			m, err := x.host.GetRESTMapper().RESTMapping(kind)
			if err != nil {
				missing = append(missing, kind.String())
				continue
			}
			out = append(out, m.GroupVersionKind)
		}
		if len(missing) == 0 {
			return out, true
		}
		if now := strings.Join(missing, ", "); now != said {
			said = now
			x.host.Log.Warn("the API server does not have kinds of Istio: lists are not enforced until it has",
				"kinds", now)
		}
		if !run.Wait(ctx, retry) {
			return nil, false
		}
	}
}

// cache keeps what is read of others; of ConfigMaps ours only.
func (x leader) cache(versions []schema.GroupVersionKind) (cache.Cache, error) {
	by := map[client.Object]cache.ByObject{}
	for _, kind := range versions {
		if kind.Kind != istio.KindConfigMap {
			continue
		}
		spaces := map[string]cache.Config{}
		for _, ns := range x.loop.cfg.Namespaces() {
			spaces[ns] = cache.Config{}
		}
		by[bareOf(kind)] = cache.ByObject{Namespaces: spaces,
			Label: labels.SelectorFromSet(labels.Set{istio.LabelManagedBy: istio.ManagedBy})}
	}
	return cache.New(x.host.GetConfig(), cache.Options{
		HTTPClient: x.host.GetHTTPClient(), Scheme: x.host.GetScheme(), Mapper: x.host.GetRESTMapper(), ByObject: by,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
}

func bareOf(kind schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// watch tells when an object of a kind changes.
func watch(ctx context.Context, c cache.Cache, kind client.Object, changed func()) error {
	i, err := c.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		DeleteFunc: func(any) { changed() },
		UpdateFunc: func(old, next any) {
			if !same(old, next) {
				changed()
			}
		},
	})
	return err
}

// same reports whether an update changed nothing that is read of an object. What is in force of a refused policy is in
// its status, where another replica may have noted it.
func same(old, next any) bool {
	a, ok := old.(client.Object)
	b, is := next.(client.Object)
	if !ok || !is || a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() ||
		a.GetGeneration() == 0 && a.GetResourceVersion() != b.GetResourceVersion() ||
		!maps.Equal(a.GetLabels(), b.GetLabels()) {
		return false
	}
	p, ok := old.(*objects.AccessPolicy)
	q, is := next.(*objects.AccessPolicy)
	return !ok || !is || equality.Semantic.DeepEqual(p.Status.Refused, q.Status.Refused)
}
