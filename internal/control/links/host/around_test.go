// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

func nodeAt(cluster, version, status string, heard time.Time) objects.ClusterNode {
	n := objects.ClusterNode{Spec: v1alpha1.ClusterNodeSpec{ClusterName: cluster}}
	n.Annotations = map[string]string{objects.AnnotationVersion: version}
	n.Status.NodeStatus = status
	if !heard.IsZero() {
		n.Status.LastHeard = &metav1.Time{Time: heard}
	}
	return n
}

// TestSee: what nodes say, whether there is their Cluster or not.
func TestSee(t *testing.T) {
	at := time.Unix(1000, 0)
	all := see([]objects.ClusterNode{nodeAt("a", "v1.0.0", objects.NodeNotReady, at.Add(time.Hour)),
		nodeAt("a", "v1.0.0", objects.NodeReady, at), nodeAt("b", strings.Repeat("9", 65), "", time.Time{})})
	if a := all["a"]; len(all) != 2 || a.nodes != 2 || !a.ready || !a.heard.Equal(at.Add(time.Hour)) ||
		fmt.Sprint(a.versions) != "[v1.0.0]" {
		t.Errorf("%+v", a)
	}
	if b := all["b"]; b.nodes != 1 || b.ready || len(b.versions) != 0 {
		t.Errorf("%+v", b)
	}
	all["a"].nodes, all["c"] = trouble.MostNodes-1, &seen{nodes: trouble.MostNodes}
	if got := fmt.Sprint(full(all)); got != "map[c:1000]" {
		t.Error(got)
	}
}

// TestSilent: a member is silent by the clock of this controller, whatever its own one says.
func TestSilent(t *testing.T) {
	start := time.Unix(1e6, 0)
	h := hearing{}
	for _, c := range []struct{ after, heard, silent time.Duration }{
		{0, -time.Hour, 0}, {time.Minute, -time.Hour, time.Minute}, {5 * time.Minute, -time.Hour, 5 * time.Minute},
		{6 * time.Minute, time.Hour, 0}, {7 * time.Minute, time.Hour, time.Minute}, {8 * time.Minute, -time.Hour, 0},
	} {
		if got := h.silent("a", seen{heard: start.Add(c.heard)}, start.Add(c.after)); got != c.silent {
			t.Errorf("after %v: %v, want %v", c.after, got, c.silent)
		}
	}
	for name, c := range map[string]struct {
		s      *seen
		silent time.Duration
		want   string
	}{
		"no node":       {nil, 0, ""},
		"heard":         {&seen{nodes: 1, ready: true}, time.Minute, "True"},
		"silent":        {&seen{nodes: 1, ready: true}, 5 * time.Minute, "False"},
		"a large one":   {&seen{nodes: 600, ready: true}, 5 * time.Minute, "True"},
		"none is ready": {&seen{nodes: 1}, time.Hour, ""},
	} {
		if got := around("v1.0.0", c.s, c.silent)[objects.ConditionMemberHeard]; got.Status != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAroundIsStored: conditions beside that of the ranges change by themselves, and go.
func TestAroundIsStored(t *testing.T) {
	now := time.Unix(2e9, 0)
	o := object("a")
	says := around("v1.0.0", &seen{nodes: 1, ready: true, versions: []string{"v1.1.0"}}, 0)
	for i, c := range []struct {
		says    map[string]trouble.Verdict
		count   int
		changed bool
	}{{says, 4, true}, {says, 4, false}, {nil, 1, true}, {nil, 1, false}} {
		w, _, changed := next(&o, accept.Verdict{Accepted: true, Reason: accept.Distinct, Why: "fine"}, c.says, now.Add(time.Duration(i)*time.Minute))
		if len(w.Conditions) != c.count || changed != c.changed {
			t.Errorf("%d: %v, %+v", i, changed, w.Conditions)
		}
		o.Status.Conditions = w.Conditions
		for _, is := range w.Conditions {
			if is.Type == objects.ConditionRangesAccepted && !is.LastTransitionTime.Time.Equal(now) {
				t.Errorf("%d: its time is %v", i, is.LastTransitionTime)
			}
		}
	}
}
