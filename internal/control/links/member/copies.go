// SPDX-License-Identifier: Apache-2.0

package member

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "tombolo"
)

// copied is what is to be changed in the own cluster, so that it has what the host cluster has. What is given has to be
// all of it: what is missing there is removed here, if it is a copy. How the tunnels of other clusters' nodes are comes
// along with the rest: a node that dies in one cluster must not have each other one write all its copies. A cluster
// that is pending stays as it is, with its nodes, and while the own one is nothing is removed: others may be still to
// come.
//
//	cluster: the own one
func copied(there, own linked, cluster string) (out []change) {
	waits, anew := map[string]bool{}, map[string]bool{}
	for name, want := range there.clusters {
		have := own.clusters[name]
		if have == nil {
			have = &objects.Cluster{}
		}
		if waits[name] = pending(want, have); waits[name] {
			continue
		}
		if c, ok := copyOf(want, have, [2]any{want.Spec, have.Spec}, [2]any{want.Status, have.Status}); ok {
			c.kind, c.annotations = v1alpha1.KindCluster, createdAt(want)
			out = append(out, c)
		}
	}
	for name, want := range there.nodes {
		if waits[want.Spec.ClusterName] {
			continue
		}
		have := own.nodes[name]
		if have == nil {
			have = &objects.ClusterNode{}
		}
		if isCopy(have) && have.UID != want.UID && renamed(have.Spec, want.Spec) { // the original was made anew
			out = append(out, change{kind: v1alpha1.KindClusterNode, name: name, remove: have.UID})
			anew[want.Spec.ClusterName] = true
			continue
		}
		status := want.Status
		if was := have.Status; want.Spec.ClusterName != cluster {
			was.Engine, was.EngineReason, was.Tunnels, was.Conditions = status.Engine, status.EngineReason, status.Tunnels,
				status.Conditions
			if equality.Semantic.DeepEqual(was, status) {
				status = have.Status
			}
		}
		if c, ok := copyOf(want, have, [2]any{want.Spec, have.Spec}, [2]any{status, have.Status}); ok {
			c.kind, c.annotations = v1alpha1.KindClusterNode, createdAt(want)
			out = append(out, c)
		}
	}
	for name, have := range own.clusters {
		if there.clusters[name] == nil && isCopy(have) && !waits[cluster] {
			out = append(out, change{kind: v1alpha1.KindCluster, name: name, remove: have.UID})
		}
	}
	for name, have := range own.nodes {
		if v1alpha1.IsPlaceholder(have.Spec) && anew[have.Spec.ClusterName] {
			continue // it is needed until the copy of the node is made anew too
		}
		if there.nodes[name] == nil && isCopy(have) && !waits[cluster] && !waits[have.Spec.ClusterName] {
			out = append(out, change{kind: v1alpha1.KindClusterNode, name: name, remove: have.UID})
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// pending reports whether the host cluster has another Cluster of a name than the one that was copied, and has not
// judged it by what its member states: it was restored without its status. A member cannot bring that about: it creates
// no Cluster, and writes no judgement.
func pending(want, have *objects.Cluster) bool {
	if !isCopy(have) || have.Annotations[objects.AnnotationCreated] == "" || dated(want, have) {
		return false
	}
	is := meta.FindStatusCondition(want.Status.Conditions, objects.ConditionRangesAccepted)
	switch {
	case is == nil || is.Status == metav1.ConditionUnknown:
		return true
	case is.Status == metav1.ConditionFalse:
		return false
	}
	return want.Status.ObservedGeneration == 0 // accepted for what its spec has: its member has stated nothing yet
}

// dated reports whether a copy has the time of its original.
func dated(want, have metav1.Object) bool {
	created := createdAt(want)[objects.AnnotationCreated]
	return created == "" || have.GetAnnotations()[objects.AnnotationCreated] == created
}

// ordered reports whether a copy has the order and the mark of its original.
func ordered(want, have metav1.Object) bool {
	w, h := want.GetAnnotations(), have.GetAnnotations()
	return h[objects.AnnotationOrder] == w[objects.AnnotationOrder] &&
		h[objects.AnnotationDoubled] == w[objects.AnnotationDoubled]
}

func removes(c change) bool { return c.remove != "" }

func isCopy(o metav1.Object) bool { return o.GetLabels()[labelManagedBy] == managedBy }

// copyOf is how a copy has to be changed. An object that is its own copy is none: both are one cluster.
//
//	spec, status: as they should be, and as they are
func copyOf(want, have metav1.Object, spec, status [2]any) (change, bool) {
	c := change{name: want.GetName(), labels: map[string]string{labelManagedBy: managedBy}}
	if have.GetUID() == want.GetUID() {
		return c, false
	}
	if !isCopy(have) || !dated(want, have) || !ordered(want, have) || !equality.Semantic.DeepEqual(spec[0], spec[1]) {
		c.spec = spec[0]
	}
	if !equality.Semantic.DeepEqual(status[0], status[1]) {
		c.status = status[0]
	}
	return c, c.spec != nil || c.status != nil
}

// createdAt says since when the host cluster has an object, and of ClusterNodes in which order it got those of a second
// and which are marked: of two nodes with one key the first counts, which copies that are made at the same time cannot
// tell. A Cluster of another time is another one.
func createdAt(o metav1.Object) map[string]string {
	at := o.GetCreationTimestamp()
	if at.IsZero() {
		return nil
	}
	out := map[string]string{objects.AnnotationCreated: at.UTC().Format(time.RFC3339)}
	for _, name := range []string{objects.AnnotationOrder, objects.AnnotationDoubled} {
		if value := o.GetAnnotations()[name]; value != "" {
			out[name] = value
		}
	}
	return out
}

// warned is what the host cluster has, or had, with the condition that it is not reached.
func warned(there, own linked, cluster string, why trouble.Verdict, now time.Time) linked {
	of := there.clusters[cluster]
	if of == nil {
		return there
	}
	changed := of.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, notReached(own.clusters[cluster], why, now))
	out := linked{maps.Clone(there.clusters), there.nodes}
	out.clusters[cluster] = changed
	return out
}

// warning is the change by which the own cluster says that the host cluster is not reached, while nothing is known
// about what that one has.
func warning(own linked, cluster string, why trouble.Verdict, now time.Time) []change {
	have := own.clusters[cluster]
	if have == nil || !isCopy(have) {
		return nil
	}
	last := meta.FindStatusCondition(have.Status.Conditions, objects.ConditionHostReached)
	if last != nil && last.Reason == why.Reason {
		return nil
	}
	status := have.Status.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, notReached(have, why, now))
	return []change{{kind: v1alpha1.KindCluster, name: cluster, status: *status}}
}

// notReached is the condition. One that is there for the same reason stays as it is.
func notReached(have *objects.Cluster, why trouble.Verdict, now time.Time) metav1.Condition {
	if have != nil {
		if last := meta.FindStatusCondition(have.Status.Conditions, objects.ConditionHostReached); last != nil &&
			last.Reason == why.Reason {
			return *last
		}
	}
	return metav1.Condition{Type: objects.ConditionHostReached, Status: metav1.ConditionFalse,
		Reason: why.Reason, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), Message: cut(why.Message, 1024)}
}
