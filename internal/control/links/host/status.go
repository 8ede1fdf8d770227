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
func next(c *objects.Cluster, v accept.Verdict, now time.Time) (out written, tell *event, changed bool) {
	status := metav1.ConditionFalse
	switch {
	case v.Accepted:
		status = metav1.ConditionTrue
	case v.Reason == accept.Unlearned:
		status = metav1.ConditionUnknown
	}
	if old := meta.FindStatusCondition(c.Status.Conditions, objects.ConditionRangesAccepted); old != nil {
		out.Conditions = []metav1.Condition{*old}
	}
	before := slices.Clone(out.Conditions)
	message := cut(strings.Join(append([]string{v.Why}, v.Warnings...), "; "), mostMessage)
	meta.SetStatusCondition(&out.Conditions, metav1.Condition{Type: objects.ConditionRangesAccepted, Status: status,
		Reason: v.Reason, Message: message, ObservedGeneration: c.Generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))})
	for _, m := range v.Mapped {
		out.Mapped = append(out.Mapped, objects.MappedRange{CIDR: v1alpha1.Range(m.There.String()),
			As: v1alpha1.Range(m.Here.String())})
	}
	for _, p := range v.Holds {
		out.Accepted = append(out.Accepted, p.String())
	}
	said := len(before) > 0 && before[0].Message == message && before[0].Status == status
	switch {
	case said || status == metav1.ConditionUnknown:
	case status == metav1.ConditionFalse:
		tell = &event{true, eventRefused, message}
	case len(v.Warnings) > 0:
		tell = &event{true, eventOdd, message}
	case len(before) == 0 || before[0].Status != status:
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
