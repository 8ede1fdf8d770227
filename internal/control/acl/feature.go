// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
)

// The objects of which there is one in a namespace.
const (
	gatewayService = "istio-ingressgateway"
	infoNamespace  = "kube-system"
	infoName       = "shoot-info"
)

// Feature reads Extensions of type acl.
func Feature(cfg controlconf.Access) manager.Feature {
	return manager.Feature{Name: "gardener", Add: func(_ context.Context, h manager.Host) error {
		recorder := h.GetEventRecorder("tombolo-controller")
		return h.Add(leader{host: h, gateways: cfg.Gateways, loop: &loop{
			options: options{Most: cfg.MaxRanges, Additional: istio.ReadAlways(cfg.AdditionalRanges),
				Closes: cfg.Gardener.Answer},
			answers: cfg.Gardener.Answer, log: h.Log, told: telemetry.NewACL(h.Metrics),
			client: h.GetClient(), live: h.GetAPIReader(), wake: make(chan struct{}, 1),
			say: func(about runtime.Object, warning bool, reason, note string) {
				kind := corev1.EventTypeNormal
				if warning {
					kind = corev1.EventTypeWarning
				}
				recorder.Eventf(about, nil, kind, reason, "Read", "%s", note)
			},
		}})
	}}
}

// leader runs a loop on the replica that leads, as soon as the API server has Gardener's kinds.
type leader struct {
	loop     *loop
	host     manager.Host
	gateways []istio.Workload
}

// NeedLeaderElection says that one replica writes.
func (leader) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (x leader) Start(ctx context.Context) error {
	versions, ok := x.kinds(ctx)
	if !ok {
		return nil
	}
	x.loop.kind = versions[0]
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
		if err := x.watch(ctx, theirs, bareOf(kind)); err != nil {
			return err
		}
	}
	for _, kind := range []client.Object{&objects.AccessPolicy{}, &objects.EdgeTenant{}} {
		if err := x.watch(ctx, x.host.GetCache(), kind); err != nil {
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
			x.host.Log.Warn("the API server does not have kinds of Gardener: no Extension is read until it has",
				"kinds", now)
		}
		if !run.Wait(ctx, retry) {
			return nil, false
		}
	}
}

// cache keeps what is read of others.
func (x leader) cache(versions []schema.GroupVersionKind) (cache.Cache, error) {
	by := map[client.Object]cache.ByObject{}
	for _, kind := range versions {
		switch kind.Kind {
		case kindConfigMap:
			by[bareOf(kind)] = one(infoName, infoNamespace)
		case kindService:
			var spaces []string
			for _, g := range x.gateways {
				spaces = append(spaces, g.Namespace)
			}
			by[bareOf(kind)] = one(gatewayService, spaces...)
		}
	}
	return cache.New(x.host.GetConfig(), cache.Options{
		HTTPClient: x.host.GetHTTPClient(), Scheme: x.host.GetScheme(), Mapper: x.host.GetRESTMapper(), ByObject: by,
		DefaultTransform: slim,
	})
}

// one is the object of a name in some namespaces.
func one(name string, namespaces ...string) cache.ByObject {
	spaces := map[string]cache.Config{}
	for _, ns := range namespaces {
		spaces[ns] = cache.Config{}
	}
	return cache.ByObject{Namespaces: spaces, Field: fields.OneTermEqualSelector("metadata.name", name)}
}

func bareOf(kind schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// watch wakes the loop when what is read of an object changes.
func (x leader) watch(ctx context.Context, c cache.Cache, kind client.Object) error {
	i, err := c.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { x.loop.changed() },
		DeleteFunc: func(any) { x.loop.changed() },
		UpdateFunc: func(old, next any) {
			a, ok := old.(*unstructured.Unstructured)
			b, is := next.(*unstructured.Unstructured)
			if !ok || !is || changed(a, b) {
				x.loop.changed()
			}
		},
	})
	return err
}
