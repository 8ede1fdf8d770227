// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// gaps are all kinds of them.
func gaps() []string {
	return []string{string(istio.Open), string(istio.Doubled), string(istio.Differs), string(istio.Unknown)}
}

// tell sets the metrics.
func (l *loop) tell(o *outcome) {
	l.told.Clusters.Set(float64(len(o.facts.Clusters)))
	held := 0.0
	if len(o.world.Held())+len(o.world.Lost()) > 0 {
		held = 1
	}
	l.told.Held.Set(held)
	l.told.Problems.Set(float64(len(o.problems)))
	said := slices.Clone(o.hidden)
	for _, p := range o.problems {
		said = append(said, p.String())
	}
	for _, text := range said {
		if !slices.Contains(l.said, text) {
			l.log.Warn("a gateway is not as access lists need it", telemetry.AttrCode, fault.CodeConfig,
				telemetry.AttrReason, text)
		}
	}
	l.said = said
	counts := map[istio.Gap]int{}
	l.told.Unguarded.Reset()
	named := map[[3]string]bool{}
	for _, u := range o.coverage.all() {
		counts[u.Kind]++
		key := [3]string{u.Cluster, u.Flow, string(u.Kind)}
		if !named[key] && len(named) == telemetry.MostUnguarded {
			continue
		}
		named[key] = true
		l.told.Unguarded.WithLabelValues(key[:]...).Inc()
	}
	for _, gap := range gaps() {
		l.told.Gaps.WithLabelValues(gap).Set(float64(counts[istio.Gap(gap)]))
	}
}

// events tells of conditions that changed.
func (l *loop) events(about client.Object, old, next objects.AccessPolicyStatus) {
	for _, c := range next.Conditions {
		was := meta.FindStatusCondition(old.Conditions, c.Type)
		switch {
		case was != nil && was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message:
		case c.Status == metav1.ConditionFalse && c.Reason != objects.ReasonPending:
			l.say(about, true, c.Type+c.Reason, c.Message)
		case c.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
			l.say(about, false, c.Type, c.Message)
		}
	}
}

// broken are the attributes of an error of the API server.
func broken(err error) []any {
	return []any{telemetry.AttrCode, fault.CodeKubeAway, telemetry.AttrReason, why(err)}
}

func outcomeOf(err error) string {
	if err != nil {
		return telemetry.Outcome(fault.CodeKubeAway)
	}
	return telemetry.Outcome("")
}
