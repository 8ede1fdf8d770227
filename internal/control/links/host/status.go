// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// The reasons of events.
const (
	eventAccepted = "RangesAccepted"
	eventRefused  = "RangesRefused"
	eventOdd      = "RangesOdd"
)

// The bounds of texts.
const (
	mostMessage = 4096
	mostEvent   = 1024
)

// written is what this package writes of a status.
type written struct {
	Conditions []metav1.Condition    `json:"conditions"`
	Mapped     []objects.MappedRange `json:"mapped,omitempty"`
	Accepted   []string              `json:"accepted,omitempty"`
}

// event is what is told about a cluster.
type event struct {
	warning      bool
	reason, note string
}

// next is the status after a verdict. It reports false if it is there already.
//
//	around: what other conditions say, by their type; those that are missing go
func next(c *objects.Cluster, v accept.Verdict, around map[string]trouble.Verdict, now time.Time) (out written,
	tell *event, changed bool) {
	status := metav1.ConditionFalse
	switch {
	case v.Accepted:
		status = metav1.ConditionTrue
	case v.Reason == accept.Unlearned:
		status = metav1.ConditionUnknown
	}
	message := cut(strings.Join(append([]string{v.Why}, v.Warnings...), "; "), mostMessage)
	var before []metav1.Condition
	for _, kind := range theirs {
		says, there := around[kind]
		if kind == objects.ConditionRangesAccepted {
			says, there = trouble.Verdict{Status: string(status), Reason: v.Reason, Message: message}, true
		}
		old := meta.FindStatusCondition(c.Status.Conditions, kind)
		if old != nil {
			before = append(before, *old)
		}
		if !there {
			continue
		}
		is := condition(kind, says, c.Generation, now)
		if old != nil && old.Status == is.Status {
			is.LastTransitionTime = old.LastTransitionTime
		}
		out.Conditions = append(out.Conditions, is)
	}
	for _, m := range v.Mapped {
		out.Mapped = append(out.Mapped, objects.MappedRange{CIDR: v1alpha1.Range(m.There.String()),
			As: v1alpha1.Range(m.Here.String())})
	}
	for _, p := range v.Holds {
		out.Accepted = append(out.Accepted, p.String())
	}
	old := meta.FindStatusCondition(c.Status.Conditions, objects.ConditionRangesAccepted)
	said := old != nil && old.Message == message && old.Status == status
	switch {
	case said || status == metav1.ConditionUnknown:
	case status == metav1.ConditionFalse:
		tell = &event{true, eventRefused, message}
	case len(v.Warnings) > 0:
		tell = &event{true, eventOdd, message}
	case old == nil || old.Status != status:
		tell = &event{false, eventAccepted, message}
	}
	changed = !equality.Semantic.DeepEqual(before, out.Conditions) || !slices.Equal(c.Status.Mapped, out.Mapped) ||
		!slices.Equal(c.Status.Accepted, out.Accepted)
	return out, tell, changed
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "..."
}
