// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
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
			client: h.GetClient(), live: h.GetAPIReader(), wake: watch.NewLoop(gather),
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
	return watch.Source{
		Host: x.host, Log: x.host.Log, Theirs: kinds(), Ours: []client.Object{&objects.AccessPolicy{}, &objects.EdgeTenant{}},
		Options: x.options, Same: same, Wake: x.loop.wake.Wake,
		Until: "no Extension is read",
	}.Run(ctx, func(theirs cache.Cache, versions []schema.GroupVersionKind) error {
		x.loop.kind = versions[0]
		x.loop.reader = reader{ours: x.host.GetCache(), theirs: theirs, kinds: versions}
		x.loop.run(ctx)
		return nil
	})
}

// options narrows what is kept of others.
func (x leader) options(versions []schema.GroupVersionKind) cache.Options {
	by := map[client.Object]cache.ByObject{}
	for _, kind := range versions {
		switch kind.Kind {
		case kindConfigMap:
			by[watch.Bare(kind)] = one(infoName, infoNamespace)
		case kindService:
			var spaces []string
			for _, g := range x.gateways {
				spaces = append(spaces, g.Namespace)
			}
			by[watch.Bare(kind)] = one(gatewayService, spaces...)
		}
	}
	return cache.Options{ByObject: by, DefaultTransform: slim}
}

// one is the object of a name in some namespaces.
func one(name string, namespaces ...string) cache.ByObject {
	spaces := map[string]cache.Config{}
	for _, ns := range namespaces {
		spaces[ns] = cache.Config{}
	}
	return cache.ByObject{Namespaces: spaces, Field: fields.OneTermEqualSelector("metadata.name", name)}
}

// same reports whether nothing changed that is read of an object.
func same(old, next client.Object) bool {
	a, ok := old.(*unstructured.Unstructured)
	b, is := next.(*unstructured.Unstructured)
	return ok && is && !changed(a, b)
}
