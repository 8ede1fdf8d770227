// SPDX-License-Identifier: Apache-2.0

// Package host accepts or refuses the ranges of linked clusters, in the host cluster. It writes of a Cluster what its
// member must not: the condition RangesAccepted, and the ranges for which it is true; and on ClusterNodes the order in
// which they came and which of them have what is another one's. It knows no member.
package host

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// Feature judges all clusters.
func Feature() manager.Feature {
	return manager.Feature{Name: "links.host", Add: func(_ context.Context, h manager.Host) error {
		recorder := h.GetEventRecorder("tombolo-controller")
		return h.Add(leader{h, kinds.New(h), &loop{
			log: h.Log, told: telemetry.NewLinkHost(h.Metrics), reader: h.GetCache(), status: h.GetClient().Status(),
			wake: watch.NewLoop(gather), apply: h.GetClient().Apply, version: h.Version, hearing: hearing{},
			orders: newOrders(h.GetClient().Patch),
			say: func(about client.Object, warning bool, reason, note string) {
				kind := corev1.EventTypeNormal
				if warning {
					kind = corev1.EventTypeWarning
				}
				recorder.Eventf(about, nil, kind, reason, "Judge", "%s", cut(note, mostEvent))
			},
		}})
	}}
}

// leader runs a loop on the replica that leads.
type leader struct {
	host   manager.Host
	events *kinds.Events
	loop   *loop
}

// NeedLeaderElection says that one replica writes.
func (leader) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (x leader) Start(ctx context.Context) error {
	ours := []client.Object{&objects.Cluster{}, &objects.ClusterNode{}}
	wait := watch.Source{Host: x.host, Log: x.host.Log, Ours: ours, Until: "no cluster is judged",
		Missing: func(_ context.Context, missing []schema.GroupKind) {
			x.events.Say(trouble.Kinds("the host cluster", kinds.Definitions(missing)))
		}}
	if !wait.Kinds(ctx) {
		return nil
	}
	for _, kind := range ours {
		if err := watch.Objects(ctx, x.host.GetCache(), kind, same, x.loop.wake.Wake); err != nil {
			return err
		}
	}
	if err := x.loop.orders.follow(ctx, x.host.GetCache(), x.loop.wake.Wake); err != nil {
		return err
	}
	if x.host.GetCache().WaitForCacheSync(ctx) {
		x.loop.run(ctx)
	}
	return nil
}

// same reports whether an update changed nothing that is read of an object. A node's status is not.
func same(old, next client.Object) bool {
	if old.GetUID() != next.GetUID() || old.GetGeneration() != next.GetGeneration() {
		return false
	}
	a, ok := old.(*objects.Cluster)
	b, is := next.(*objects.Cluster)
	if !ok || !is {
		was, is := old.GetAnnotations(), next.GetAnnotations()
		return was[objects.AnnotationVersion] == is[objects.AnnotationVersion] &&
			was[objects.AnnotationOrder] == is[objects.AnnotationOrder] &&
			was[objects.AnnotationDoubled] == is[objects.AnnotationDoubled]
	}
	read := func(c *objects.Cluster) []any {
		out := []any{c.Status.PodCIDRs, c.Status.ServiceCIDRs, c.Status.Mapped, c.Status.Accepted}
		for _, kind := range theirs {
			out = append(out, meta.FindStatusCondition(c.Status.Conditions, kind))
		}
		return out
	}
	return equality.Semantic.DeepEqual(read(a), read(b))
}
