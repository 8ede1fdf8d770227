// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// verdicts are what conditions of the own Cluster say, by their type. A type that is missing says what it said before.
type verdicts map[string]trouble.Verdict

// mine are the types that a member writes at the host cluster.
var mine = []string{objects.ConditionCNIKnown, objects.ConditionClockRight, objects.ConditionPoolsMade,
	objects.ConditionReady}

// conditions are those that a member has written, as verdicts change them, in order. One whose status stays keeps its
// time.
func (v verdicts) conditions(have *objects.Cluster, now time.Time) (out []metav1.Condition) {
	for _, kind := range mine {
		last := meta.FindStatusCondition(have.Status.Conditions, kind)
		says, new := v[kind]
		switch {
		case new:
			c := metav1.Condition{Type: kind, Status: metav1.ConditionStatus(says.Status), Reason: says.Reason,
				Message: cut(says.Message, mostMessage), ObservedGeneration: have.Generation,
				LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
			if last != nil && last.Status == c.Status {
				c.LastTransitionTime = last.LastTransitionTime
			}
			out = append(out, c)
		case last != nil:
			out = append(out, *last)
		}
	}
	return out
}

// mostMessage bounds what a condition says.
const mostMessage = 4096

// owned is the part of a status that a member writes, in order.
func owned(have *objects.Cluster) objects.ClusterStatus {
	return objects.ClusterStatus{ObservedGeneration: have.Status.ObservedGeneration,
		Conditions: verdicts{}.conditions(have, time.Time{}), PodCIDRs: inOrder(have.Status.PodCIDRs),
		ServiceCIDRs: inOrder(have.Status.ServiceCIDRs), Gateways: slices.Sorted(slices.Values(have.Status.Gateways))}
}

// says changes conditions alone: server-side apply takes what is left out for what is to be removed. It reports false
// if they say it already.
func (v verdicts) says(have *objects.Cluster, now time.Time) (change, bool) {
	is := owned(have)
	want := is
	want.Conditions = v.conditions(have, now)
	return change{kind: v1alpha1.KindCluster, name: have.Name, status: want},
		!equality.Semantic.DeepEqual(is.Conditions, want.Conditions)
}

// around is what is wrong around this cluster.
//
//	known: what was learned last; nil: nothing yet
func (l *loop) around(known *learn.Result, unread error) verdicts {
	out := verdicts{}
	if known != nil || unread != nil {
		out[objects.ConditionCNIKnown] = trouble.CNI(cniFacts(known, unread))
	}
	if l.pools.says.Status != "" {
		out[objects.ConditionPoolsMade] = l.pools.says
	}
	if skew, ok := l.there.clock.said(); ok {
		out[objects.ConditionClockRight] = trouble.Clock(skew)
	}
	return out
}

func cniFacts(known *learn.Result, unread error) (out trouble.CNIFacts) {
	if unread != nil {
		out.Unread = why(unread)
	}
	if known == nil {
		return out
	}
	out.Name, out.From = string(known.CNI), known.CNIFrom
	for _, p := range known.Problems {
		if p.Reason == learn.CNIUnknown || p.Reason == learn.CNIAmbiguous {
			out.Reason, out.Problem = string(p.Reason), p.String()
		}
	}
	return out
}

// waits says that this cluster lacks kinds, in an event here and at the host cluster in the condition Ready.
func (l *loop) waits(ctx context.Context, missing []schema.GroupKind) {
	v := trouble.Kinds("the cluster "+l.cfg.Cluster, kinds.Definitions(missing))
	l.events.Say(v)
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	var have objects.Cluster
	err := l.there.client.Get(ctx, client.ObjectKey{Name: l.cfg.Cluster}, &have)
	if err == nil {
		if c, differs := (verdicts{objects.ConditionReady: v}).says(&have, l.there.clock.now()); differs {
			err = one(ctx, l.there.client, c)
		}
	}
	l.notes.say(partHost, client.IgnoreNotFound(err))
}

// lacks says which kinds the host cluster lacks by an error.
func lacks(err error) trouble.Verdict {
	return trouble.Kinds("the host cluster", kinds.Lacking(err, v1alpha1.KindCluster))
}

// unreached is what the condition HostReached says.
func unreached(err error) trouble.Verdict {
	if v := lacks(err); v.Status == trouble.No {
		return v
	}
	return trouble.Verdict{Status: trouble.No, Reason: objects.ReasonHostAway,
		Message: "the host cluster is not reached, and other clusters may have changed since: " + why(err)}
}

// unlinked is what the condition HostReached says while the host cluster has no Cluster of this one.
func unlinked(cluster string) trouble.Verdict {
	return trouble.Verdict{Status: trouble.No, Reason: objects.ReasonHostUnlinked, Message: fmt.Sprintf("the "+
		"host cluster has no Cluster %s, or no longer, and what is known here of other clusters stays: ", cluster) +
		relink(cluster)}
}

// relink is what to do then.
func relink(cluster string) string {
	return fmt.Sprintf("if it is not to be linked: 'tombolo link unjoin %s' here; if the host cluster has lost it: "+
		"restore it there, or join again with a line of 'tombolo link token %s'", cluster, cluster)
}

// with are these and further verdicts.
func (v verdicts) with(kind string, one trouble.Verdict) verdicts {
	out := verdicts{kind: one}
	maps.Copy(out, v)
	return out
}
