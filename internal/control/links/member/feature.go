// SPDX-License-Identifier: Apache-2.0

// Package member writes to the host cluster what the cluster of this controller states about itself, and copies from
// there what all linked clusters state, so that nodes read it with credentials of their own cluster. It does not decide
// what is stated: package share does.
package member

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

// gather is how long changes of one moment are gathered for one pass.
const gather = 50 * time.Millisecond

// Features is the feature if it is on.
func Features(cfg *controlconf.Links) []manager.Feature { return features(cfg, time.Now) }

// features are the same with a clock.
func features(cfg *controlconf.Links, now func() time.Time) []manager.Feature {
	if cfg == nil || cfg.Cluster == "" {
		return nil
	}
	return []manager.Feature{{Name: "links, as a member", Add: func(_ context.Context, h manager.Host) error {
		wake := watch.NewLoop(gather)
		there, err := newThere(*cfg, h, wake.Wake, now)
		if err != nil {
			return err
		}
		own, err := client.New(h.GetConfig(), client.Options{HTTPClient: h.GetHTTPClient(), Scheme: h.GetScheme(),
			Mapper: h.GetRESTMapper()})
		if err != nil {
			return err
		}
		return h.Add(leader{h, &loop{
			cfg: *cfg, there: there, own: own, wake: wake, notes: notes{log: h.Log},
			pools: pools{client: own}, events: kinds.New(h), told: telling{version: h.Version},
			learner: newLearner(own, h.Namespace, wake.Wake), reports: newReports(h, there, notes{log: h.Log}, wake.Wake),
			nodes: newMemo(nodeOf), members: newMemo(memberOf),
		}})
	}}}
}

// leader runs the loop on the replica that leads, as soon as the API server has all kinds.
type leader struct {
	host manager.Host
	loop *loop
}

// NeedLeaderElection says that one replica writes.
func (leader) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (x leader) Start(ctx context.Context) error {
	g := run.NewGroup(ctx)
	g.Go("host cluster", x.loop.there.run)
	g.Go("ranges", func(ctx context.Context) error { x.loop.learner.run(ctx); return nil })
	g.Go("reports", func(ctx context.Context) error { x.loop.reports.run(ctx); return nil })
	g.Go("linked cluster", func(ctx context.Context) error {
		return watch.Source{
			Host: x.host, Log: x.host.Log,
			Theirs: []schema.GroupKind{{Kind: kindNode}, {Group: objects.GroupVersion().Group, Kind: kindMember}},
			Ours:   []client.Object{&objects.Cluster{}, &objects.ClusterNode{}}, Options: options, Same: same,
			Wake: x.loop.wake.Wake, Until: "this cluster is not linked", Missing: x.loop.waits,
		}.Run(ctx, func(theirs cache.Cache, versions []schema.GroupVersionKind) error {
			x.loop.reader = reader{theirs: theirs, ours: x.host.GetCache(), kinds: versions}
			x.loop.run(ctx)
			return nil
		})
	})
	return g.Wait()
}
