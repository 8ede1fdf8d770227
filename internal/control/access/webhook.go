// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/manager"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

// webhookPath is where the API server asks, as the manifest has it.
const webhookPath = "/mutate/envoyfilter"

// webhook puts guards into EnvoyFilters of others when they are written. It runs on every replica, and knows the lists
// by the caches of that replica.
type webhook struct {
	cfg    controlconf.Access
	host   manager.Host
	wake   chan struct{}
	ready  atomic.Bool // the caches have been read
	stale  atomic.Bool // something changed since world was read
	mu     sync.Mutex
	memory clusters.Memory
	world  clusters.World
}

func newWebhook(cfg controlconf.Access, h manager.Host) *webhook {
	return &webhook{cfg: cfg, host: h, wake: make(chan struct{}, 1),
		memory: clusters.Memory{Always: istio.ReadAlways(cfg.AdditionalRanges)}}
}

// NeedLeaderElection says that all replicas answer.
func (*webhook) NeedLeaderElection() bool { return false }

// Start follows the lists until ctx ends. It reads each change at once: of an object that is refused, what was in force
// has to be known, and the next question should not wait.
func (x *webhook) Start(ctx context.Context) error {
	x.stale.Store(true)
	for _, kind := range ours() {
		if err := watch.Objects(ctx, x.host.GetCache(), kind, same, x.changed); err != nil {
			return err
		}
	}
	x.ready.Store(x.host.GetCache().WaitForCacheSync(ctx))
	for said := ""; ; {
		now := ""
		if _, err := x.now(ctx, x.host.GetCache()); err != nil && ctx.Err() == nil {
			now = err.Error()
		}
		if now != said && now != "" {
			x.host.Log.Warn("EnvoyFilters of others that add filter chains are refused", telemetry.AttrCode,
				fault.CodeKubeAway, telemetry.AttrReason, now)
		}
		said = now
		select {
		case <-ctx.Done():
			return nil
		case <-x.wake:
		}
	}
}

// changed may be called by anybody.
func (x *webhook) changed() {
	x.stale.Store(true)
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// unready says that this replica should not be asked yet.
func (x *webhook) unready() *fault.Fault {
	if x.ready.Load() {
		return nil
	}
	return fault.New(fault.CodeKubeAway, "webhooks cannot answer yet").Because(errNotReady)
}

var errNotReady = errors.New("the access lists have not been read yet")

// now are the clusters with their lists.
func (x *webhook) now(ctx context.Context, from cache.Cache) (clusters.World, error) {
	if !x.ready.Load() {
		return clusters.World{}, errNotReady
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stale.Swap(false) {
		policies, tenants, err := own(ctx, from)
		if err != nil {
			x.stale.Store(true)
			return clusters.World{}, err
		}
		x.world = x.memory.Read(inputs(policies, tenants))
	}
	if held := unknown(x.world); len(held) > 0 {
		return clusters.World{}, errors.New("it is not known what was in force of " +
			strings.Join(held[:min(len(held), 8)], ", ") + ": mend it")
	}
	return x.world, nil
}

// unknown is what has to be known to say which guards a chain needs: every policy, and of every tenant at least some
// names or destinations. No guard is taken out here, so that what is missing of a tenant changes nothing.
func unknown(w clusters.World) []string {
	out := w.Held()
	for _, t := range w.Tenants {
		if t.Lost && !slices.ContainsFunc(w.Clusters, func(c istio.Cluster) bool { return c.Name == t.Name }) {
			out = append(out, "EdgeTenant "+t.Namespace+"/"+t.Name)
		}
	}
	return out
}

// Handle answers the API server. What cannot be judged is an error, and is not stored.
func (x *webhook) Handle(ctx context.Context, r admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	out, err := x.answer(ctx, r)
	code := fault.Code("")
	if err != nil {
		code = fault.CodeKubeAway
		out = admission.Errored(http.StatusServiceUnavailable,
			fault.New(code, "an EnvoyFilter that adds filter chains cannot be given its guards").Because(err).
				Hint("write it again in a moment"))
	}
	x.host.Reviews.WithLabelValues(istio.KindEnvoyFilter, telemetry.Outcome(code)).Inc()
	return out
}

func (x *webhook) answer(ctx context.Context, r admission.Request) (admission.Response, error) {
	w, err := x.now(ctx, x.host.GetCache())
	if err != nil {
		return admission.Response{}, err
	}
	data, err := answer(r.Object.Raw, r.Namespace, w.Clusters, x.cfg.Gateways)
	if err != nil {
		return admission.Response{}, err
	}
	out := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: data}}
	if kind := admissionv1.PatchTypeJSONPatch; data != nil {
		out.PatchType = &kind
	}
	return out, nil
}

// answer is the patch of an EnvoyFilter in a namespace; nil: it stays as it is. No guard is taken out: that is left to
// the replica that leads, which knows when it may go.
func answer(raw []byte, namespace string, all []istio.Cluster, gateways []istio.Workload) ([]byte, error) {
	var e istio.EnvoyFilter
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	e.Metadata.Namespace = cmp.Or(e.Metadata.Namespace, namespace)
	e.Prepare()
	after, changed := istio.Insert(e, istio.Facts{Clusters: all}, gateways...)
	if !changed {
		return nil, nil
	}
	return patchOf(istio.Injection{Before: e, After: after}, "")
}
