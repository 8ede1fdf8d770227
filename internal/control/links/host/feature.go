// SPDX-License-Identifier: Apache-2.0

// Package host accepts or refuses the ranges of linked clusters, in the host cluster. It writes of a Cluster what its
// member must not: the condition RangesAccepted, and the ranges for which it is true. It knows no member.
package host

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

// Feature judges all clusters.
func Feature() manager.Feature {
	return manager.Feature{Name: "links.host", Add: func(_ context.Context, h manager.Host) error {
		recorder := h.GetEventRecorder("tombolo-controller")
		return h.Add(leader{h, &loop{
			log: h.Log, told: telemetry.NewLinkHost(h.Metrics), reader: h.GetCache(), status: h.GetClient().Status(),
			wake: watch.NewLoop(gather),
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
	host manager.Host
	loop *loop
}

// NeedLeaderElection says that one replica writes.
func (leader) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (x leader) Start(ctx context.Context) error {
	for _, kind := range []client.Object{&objects.Cluster{}, &objects.ClusterNode{}} {
		if err := watch.Objects(ctx, x.host.GetCache(), kind, same, x.loop.wake.Wake); err != nil {
			return err
		}
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
		return true
	}
	read := func(c *objects.Cluster) []any {
		return []any{c.Status.PodCIDRs, c.Status.ServiceCIDRs, c.Status.Mapped, c.Status.Accepted,
			meta.FindStatusCondition(c.Status.Conditions, objects.ConditionRangesAccepted)}
	}
	return equality.Semantic.DeepEqual(read(a), read(b))
}
