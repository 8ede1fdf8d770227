// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/watch"
	"github.com/tombolo-io/tombolo/internal/link/accept"
)

const (
	gather  = 100 * time.Millisecond // changes of one moment are one pass
	retry   = 2 * time.Second        // after a failure
	patient = time.Minute            // a pass with all that it writes

	fieldOwner = client.FieldOwner("tombolo-host")
)

// loop does passes: it is the one goroutine that writes.
type loop struct {
	log    *slog.Logger
	told   *telemetry.LinkHost
	reader client.Reader
	status client.SubResourceWriter
	wake   *watch.Loop
	say    func(about client.Object, warning bool, reason, note string) // an event
	// apply writes an object of the host cluster.
	apply   func(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error
	version string // of this program

	bounded []string // the clusters that get no further nodes, as it was written last; nil: it was not
	hearing hearing
	orders  *orders
}

// run does passes until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.wake.Run(ctx, func(ctx context.Context) time.Duration {
		if !l.pass(ctx) {
			return retry
		}
		return lookAgain
	})
}

// pass judges all clusters, and writes what changed. What it writes is a change, so a cluster that was refused for one
// that is refused itself is judged again. It reports whether all of that succeeded.
func (l *loop) pass(parent context.Context) bool {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	began := time.Now()
	var clusters objects.ClusterList
	var nodes objects.ClusterNodeList
	for _, list := range []client.ObjectList{&clusters, &nodes} {
		if err := l.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			l.log.Warn("objects cannot be read", broken(err)...)
			return false
		}
	}
	in := inputs(clusters.Items, nodes.Items)
	verdicts := accept.Decide(in)
	l.told.Seconds.Observe(time.Since(began).Seconds())
	refused, warnings, fine := 0, 0, true
	said := see(nodes.Items)
	if err := l.bound(ctx, full(said)); err != nil {
		l.log.Warn("the number of nodes cannot be bounded", broken(err)...)
		fine = false
	}
	for i, v := range verdicts[:len(clusters.Items)] {
		c := &clusters.Items[i]
		warnings += len(v.Warnings)
		if !v.Accepted && v.Reason != accept.Unlearned {
			refused++
		}
		status, tell, changed := next(c, v, l.around(c.Name, said[c.Name], began), began)
		if !changed {
			continue
		}
		if err := l.write(ctx, c, status); err != nil {
			l.log.Warn("a status cannot be stored", append(broken(err), telemetry.AttrCluster, c.Name)...)
			fine = false
			continue
		}
		if tell != nil {
			l.log.Info("a cluster is judged", telemetry.AttrCluster, c.Name, telemetry.AttrReason, tell.note)
			l.say(c.DeepCopy(), tell.warning, tell.reason, tell.note)
		}
	}
	if !l.order(ctx, nodes.Items, marks(in, verdicts, nodes.Items)) {
		fine = false
	}
	l.told.Clusters.Set(float64(len(clusters.Items)))
	l.told.Refused.Set(float64(refused))
	l.told.Warnings.Set(float64(warnings))
	return fine
}

// order notes in which order nodes came, and which of them are marked. It reports whether that succeeded.
func (l *loop) order(ctx context.Context, nodes []objects.ClusterNode, marks []annotation) bool {
	changed, err := l.orders.write(ctx, nodes)
	again, bad := l.orders.annotate(ctx, marks)
	if changed || again { // which the cache has soon
		l.wake.Wake()
	}
	if err = cmp.Or(err, bad); err != nil {
		l.log.Warn("the order of nodes, or which of them are doubled, cannot be noted", broken(err)...)
	}
	return err == nil
}

// write applies what this package writes of a status. An object that is gone, or another one of its name, is judged
// when the cache has it.
func (l *loop) write(ctx context.Context, c *objects.Cluster, status written) error {
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return err
	}
	u.SetGroupVersionKind(objects.GroupVersion().WithKind(v1alpha1.KindCluster))
	u.SetName(c.Name)
	u.SetUID(c.UID)
	err = l.status.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
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
	return cut(err.Error(), mostEvent)
}
