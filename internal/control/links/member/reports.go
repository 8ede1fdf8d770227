// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/control/watch"
)

const (
	partReports      = "what nodes report" // for the log
	partReportCopies = "the copies of what nodes report at the host cluster"

	// gatherReports is how long reports are gathered: in a large cluster some node has always a new one.
	gatherReports = time.Second
	// mostReports is how many are copied in a pass, and so in a second.
	mostReports = 4
)

// reports reads NodeConfigs of the own cluster, beside the loop: there are many, and nobody waits for them. It copies
// them to the host cluster.
type reports struct {
	host    watch.Host
	there   *there
	wake    *watch.Loop
	changed func() // the health of a node; it must not block
	notes   notes
	sent    map[string]sent // by name, while the host cluster has it, or may have
	asked   bool            // what was there at the start was looked at

	mu     sync.Mutex
	may    map[string]types.UID // ClusterNodes of the own cluster at the host cluster; nil: nothing is copied now
	most   int                  // entries of each list of a copy
	health map[string]health    // by the name of the ClusterNode; nil: nothing was read yet
}

// sent is what was copied last.
type sent struct {
	version string // of the own object; empty: it is not known what the host cluster has
	at      time.Time
}

func newReports(host watch.Host, there *there, notes notes, changed func()) *reports {
	return &reports{host: host, there: there, wake: watch.NewLoop(gatherReports), changed: changed, notes: notes,
		sent: map[string]sent{}}
}

// run follows until ctx ends, as soon as the API server has the kind.
func (r *reports) run(ctx context.Context) {
	for {
		err := watch.Objects(ctx, r.host.GetCache(), &objects.NodeConfig{}, same, r.wake.Wake)
		r.notes.say(partReports, err)
		if err == nil {
			break
		}
		if !run.Wait(ctx, retry) {
			return
		}
	}
	r.wake.Run(ctx, r.pass)
}

// of is what is known of the health of nodes; nil: nothing yet.
func (r *reports) of() map[string]health {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health
}

// copyTo says which ClusterNodes of the own cluster the host cluster has, so that their NodeConfigs are copied; nil:
// that one cannot be reached, or is the own one.
//
//	all: how many nodes all clusters have
func (r *reports) copyTo(nodes map[string]types.UID, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most = entries(all); (r.may == nil) != (nodes == nil) || !maps.Equal(r.may, nodes) {
		r.may = nodes
		r.wake.Wake()
	}
}

// pass looks at all reports, and copies some.
func (r *reports) pass(parent context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(parent, patient)
	defer cancel()
	var all objects.NodeConfigList
	err := r.host.GetCache().List(ctx, &all, client.UnsafeDisableDeepCopy)
	if parent.Err() != nil {
		return 0
	}
	r.notes.say(partReports, err)
	if err != nil {
		return retry
	}
	own := map[string]*objects.NodeConfig{}
	now := map[string]health{}
	for i := range all.Items {
		o := &all.Items[i]
		own[o.Name], now[o.Name] = o, healthOf(o)
	}
	r.mu.Lock()
	differs, may, most := r.health == nil || !maps.EqualFunc(r.health, now, health.equal), r.may, r.most
	r.health = now
	r.mu.Unlock()
	if differs {
		r.changed()
	}
	if may == nil {
		return 0
	}
	if !r.asked { // an earlier run may have copied what is not there any longer
		r.asked = true
		for name := range may {
			r.sent[name] = sent{}
		}
	}
	copies, again := due(own, may, r.sent, time.Now())
	for i, c := range copies {
		if err := r.copy(ctx, c, own[c.name], most); err != nil {
			if !answered(err) { // the loop finds out whether the host cluster is away
				r.there.doubted(err)
			} else {
				r.notes.say(partReportCopies, err)
			}
			return retry
		}
		if i == len(copies)-1 {
			r.notes.say(partReportCopies, nil)
		}
	}
	return again
}

// copy does a copy, and notes it.
func (r *reports) copy(ctx context.Context, c change, of *objects.NodeConfig, most int) error {
	if of == nil || c.gone {
		err := one(ctx, r.there.client, c)
		if err == nil {
			delete(r.sent, c.name)
		}
		return err
	}
	r.sent[c.name] = sent{at: time.Now()}
	c.spec = shortSpec(of.Spec, most)
	generation, err := apply(ctx, r.there.client, c)
	if err != nil {
		return err
	}
	status := shortStatus(of.Status, most)
	status.AppliedGeneration = generation // of the copy
	if of.Status.AppliedGeneration != of.Generation {
		status.AppliedGeneration--
	}
	if err := one(ctx, r.there.client, change{kind: c.kind, name: c.name, status: status}); err != nil {
		return err
	}
	r.sent[c.name] = sent{versionOf(of), time.Now()}
	return nil
}

func versionOf(of *objects.NodeConfig) string { return string(of.UID) + " " + of.ResourceVersion }

// due decides which copies are made now, those first that were made the longest ago, and when to look again; 0: when
// something changes.
//
//	may: the ClusterNodes for which there are copies
func due(own map[string]*objects.NodeConfig, may map[string]types.UID, was map[string]sent,
	now time.Time) (out []change, again time.Duration) {
	every := reportEvery(len(may))
	for name := range was {
		if _, is := may[name]; !is || own[name] == nil {
			out = append(out, change{kind: v1alpha1.KindNodeConfig, name: name, gone: true})
		}
	}
	for name, uid := range may {
		of, last := own[name], was[name]
		if of == nil || last.version == versionOf(of) {
			continue
		}
		if left := every - now.Sub(last.at); left > 0 {
			if again == 0 || left < again {
				again = left
			}
			continue
		}
		// Kubernetes removes the copy with the ClusterNode.
		out = append(out, change{kind: v1alpha1.KindNodeConfig, name: name, spec: of.Spec,
			labels: map[string]string{labelManagedBy: managedBy}, owner: &metav1.OwnerReference{
				APIVersion: v1alpha1.Version, Kind: v1alpha1.KindClusterNode, Name: name, UID: uid}})
	}
	slices.SortFunc(out, func(a, b change) int {
		if c := was[a.name].at.Compare(was[b.name].at); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	if len(out) > mostReports {
		out, again = out[:mostReports], gatherReports
	}
	return out, again
}
