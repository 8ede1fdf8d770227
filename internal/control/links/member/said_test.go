// SPDX-License-Identifier: Apache-2.0

package member

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	"github.com/tombolo-io/tombolo/internal/link/share"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// TestWantedPools: what Calico was told stays while it cannot be told whether there is Calico.
func TestWantedPools(t *testing.T) {
	all := nothing().put("a", "x", "h", false).put("b", "y", "i", false)
	all.clusters["b"].Status = objects.ClusterStatus{PodCIDRs: []objects.LearnedRange{{CIDR: "10.2.0.0/16"}},
		Accepted: []string{"10.2.0.0/16"}, Conditions: []metav1.Condition{{Type: objects.ConditionRangesAccepted,
			Status: metav1.ConditionTrue}}}
	wide := nothing().put("a", "x", "h", false).put("b", "y", "i", false)
	all.clusters["b"].Status.DeepCopyInto(&wide.clusters["b"].Status)
	wide.clusters["b"].Status.Mapped = []objects.MappedRange{{CIDR: "10.0.0.0/14", As: "240.8.0.0/14"}}
	wide.clusters["b"].Spec.GlobalCIDRsMap = map[string]v1alpha1.Range{"10.0.0.0/14": "240.12.0.0/14"} // not judged yet
	wide.clusters["b"].Status.Accepted = []string{"240.8.0.0/14"}
	for name, c := range map[string]struct {
		cni  learn.CNI
		all  linked
		want string
	}{
		"Calico":                  {learn.Calico, all, "[10.2.0.0/16] true"},
		"a wider map":             {learn.Calico, wide, "[240.10.0.0/16] true"},
		"another CNI":             {learn.Flannel, all, "[] true"},
		"the user names another":  {"other", all, "[] true"},
		"it cannot be told":       {learn.Unknown, all, "[] false"},
		"not linked any longer":   {"", linked{}, "[] true"},
		"nor can it be told then": {learn.Unknown, linked{}, "[] true"},
	} {
		want, told := wantedPools(c.cni, "a", c.all)
		if got := fmt.Sprint(want, " ", told); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestSays: a verdict changes its own condition alone, and nothing that is not the member's.
func TestSays(t *testing.T) {
	now := time.Unix(10_000, 0)
	have := &objects.Cluster{}
	have.Generation = 3
	s := share.Shared{Gateways: []string{"x"}, Pods: nil, Verdict: share.Verdict{Ready: true, Reason: share.InForce}}
	first, _ := clusterStatus(s, verdicts{objects.ConditionClockRight: trouble.Clock(0)}, have, now)
	status, ok := first.status.(objects.ClusterStatus)
	if !ok || len(status.Conditions) != 2 {
		t.Fatalf("%+v", first)
	}
	have.Status = status
	have.Status.Conditions = append([]metav1.Condition{{Type: objects.ConditionRangesAccepted}}, status.Conditions...)
	if c, differs := (verdicts{}).says(have, now); differs {
		t.Errorf("nothing is said: %+v", c)
	}
	if c, differs := (verdicts{objects.ConditionClockRight: trouble.Clock(time.Second)}).says(have, now.Add(1)); differs {
		t.Errorf("the same is said: %+v", c)
	}
	c, differs := verdicts{objects.ConditionClockRight: trouble.Clock(time.Hour)}.says(have, now.Add(time.Minute))
	status, ok = c.status.(objects.ClusterStatus)
	if !differs || !ok || len(status.Conditions) != 2 || len(status.Gateways) != 1 {
		t.Fatalf("%v %+v", differs, c)
	}
	clock, ready := status.Conditions[0], status.Conditions[1]
	if clock.Reason != trouble.ClockAhead || !clock.LastTransitionTime.Time.Equal(now.Add(time.Minute)) ||
		ready.Status != metav1.ConditionTrue || !ready.LastTransitionTime.Time.Equal(now) {
		t.Errorf("%+v", status.Conditions)
	}
}

// answers is a transport.
type answers func() (*http.Response, error)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a() }

// TestClock: the times of answers tell how wrong a clock is, if an API server gave them.
func TestClock(t *testing.T) {
	server := time.Unix(1_000_000, 0)
	own := server.Add(time.Hour)
	changes := 0
	c := &clock{now: func() time.Time { return own }, changed: func() { changes++ }}
	ask := func(code int, stamp string, bad error) {
		answer := &http.Response{StatusCode: code, Header: http.Header{"Date": {stamp}}}
		_, _ = c.wrap(answers(func() (*http.Response, error) { return answer, bad })).RoundTrip(nil)
	}
	stamp := server.UTC().Format(http.TimeFormat)
	for _, step := range []struct {
		name    string
		ask     func()
		want    time.Duration
		known   bool
		changes int
	}{
		{"a request fails", func() { ask(200, stamp, errors.New("refused")) }, 0, false, 0},
		{"a proxy fails", func() { ask(502, stamp, nil) }, 0, false, 0},
		{"no time", func() { ask(200, "", nil) }, 0, false, 0},
		{"an answer", func() { ask(200, stamp, nil) }, time.Hour - time.Second/2, true, 1},
		{"nearly the same", func() { own = own.Add(4 * time.Second); ask(404, stamp, nil) }, time.Hour - time.Second/2, true, 1},
		{"something else", func() { own = server; ask(200, stamp, nil) }, -time.Second / 2, true, 2},
	} {
		step.ask()
		if got, known := c.said(); got != step.want || known != step.known || changes != step.changes {
			t.Errorf("%s: %v %v, %d changes", step.name, got, known, changes)
		}
	}
}
