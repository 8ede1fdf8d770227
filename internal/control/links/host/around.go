// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// accounts is the namespace of the accounts of members, and bounds the ConfigMap in it that the policy reads.
const accounts, bounds = "tombolo-links", "tombolo-link-bound"

// lookAgain is when it is looked again whether members are heard: their signs of life wake nobody.
const lookAgain = time.Minute

// mostVersion bounds a version that a member says.
const mostVersion = 64

// seen is what the nodes of a cluster say beside their ranges.
type seen struct {
	nodes    int
	ready    bool      // one of them is
	heard    time.Time // the last time that the member says, by its clock
	versions []string
}

// see reads nodes, by the name of their cluster, whether there is a Cluster or not.
func see(nodes []objects.ClusterNode) map[string]*seen {
	out := map[string]*seen{}
	for i := range nodes {
		n := &nodes[i]
		s := out[n.Spec.ClusterName]
		if s == nil {
			s = &seen{}
			out[n.Spec.ClusterName] = s
		}
		s.nodes++
		s.ready = s.ready || n.Status.NodeStatus == objects.NodeReady
		if t := n.Status.LastHeard; t != nil && t.After(s.heard) {
			s.heard = t.Time
		}
		v := n.Annotations[objects.AnnotationVersion]
		if len(v) <= mostVersion && len(s.versions) < mostVersion && !slices.Contains(s.versions, v) {
			s.versions = append(s.versions, v)
		}
	}
	return out
}

// hearing notes when what a member says last changed, by the clock of this controller: that of the member may be wrong.
type hearing map[string]sign

type sign struct {
	heard, since time.Time
}

// silent says for how long a cluster has said nothing new. The time before the first look does not count.
func (h hearing) silent(cluster string, s seen, now time.Time) time.Duration {
	last, known := h[cluster]
	if !known || !last.heard.Equal(s.heard) {
		h[cluster] = sign{s.heard, now}
		return 0
	}
	return now.Sub(last.since)
}

// around is what conditions of a cluster say beside that of its ranges, by their type. One is missing about a cluster
// without nodes, of which nothing can be told.
func around(version string, s *seen, silent time.Duration) map[string]trouble.Verdict {
	out := map[string]trouble.Verdict{}
	if s == nil {
		return out
	}
	out[objects.ConditionNodesWithinBound] = trouble.Nodes(s.nodes)
	out[objects.ConditionVersionFits] = trouble.Version(version, trouble.Newest(s.versions))
	if s.ready { // else nobody says when nodes are heard
		out[objects.ConditionMemberHeard] = trouble.Report(silent, max(time.Minute, time.Duration(s.nodes)*time.Second))
	}
	return out
}

// around is the same, after another look.
func (l *loop) around(cluster string, s *seen, now time.Time) map[string]trouble.Verdict {
	if s == nil {
		delete(l.hearing, cluster)
		return nil
	}
	return around(l.version, s, l.hearing.silent(cluster, *s, now))
}

// full are the clusters that get no further nodes, for the policy.
func full(all map[string]*seen) map[string]string {
	out := map[string]string{}
	for name, s := range all {
		if s.nodes >= trouble.MostNodes {
			out[name] = strconv.Itoa(s.nodes)
		}
	}
	return out
}

// bound has the API server refuse further nodes of some clusters, by the ConfigMap that its policy reads.
func (l *loop) bound(ctx context.Context, now map[string]string) error {
	names := slices.Sorted(maps.Keys(now))
	if l.bounded != nil && slices.Equal(l.bounded, names) {
		return nil
	}
	data := map[string]any{}
	for name, n := range now {
		data[name] = n
	}
	u := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	u.SetNamespace(accounts)
	u.SetName(bounds)
	err := l.apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if err == nil {
		l.bounded = append([]string{}, names...)
	}
	return err
}

// theirs are the conditions that this package writes, in order.
var theirs = []string{objects.ConditionMemberHeard, objects.ConditionNodesWithinBound, objects.ConditionRangesAccepted,
	objects.ConditionVersionFits}

// condition is a verdict as it is stored.
func condition(kind string, v trouble.Verdict, generation int64, now time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(v.Status), Reason: v.Reason,
		Message: cut(v.Message, mostMessage), ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
}
