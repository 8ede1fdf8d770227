// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/link/accept"
)

func TestReasons(t *testing.T) {
	for ours, theirs := range map[string]string{accept.Distinct: objects.ReasonDistinct, accept.Overlap: objects.ReasonOverlap,
		accept.Invalid: objects.ReasonInvalid, accept.Unlearned: objects.ReasonUnlearned} {
		if ours != theirs {
			t.Errorf("%s is not %s", ours, theirs)
		}
	}
}

func object(name string, pods ...string) objects.Cluster {
	c := objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	for _, p := range pods {
		c.Status.PodCIDRs = append(c.Status.PodCIDRs, objects.LearnedRange{CIDR: v1alpha1.Range(p)})
	}
	return c
}

// TestInputs: what is read of objects, and what of them cannot be.
func TestInputs(t *testing.T) {
	c := object("a", "10.1.0.0/16", "fd00:1::/48", "10.1.0.0/16")
	c.Spec = v1alpha1.ClusterSpec{IPFamily: v1alpha1.FamilyIPv4, ClusterPodCIDRs: []string{"10.9.0.0/16"},
		GlobalCIDRsMap: map[string]v1alpha1.Range{"10.1.0.0/16": "240.1.0.0/16"}}
	c.Status.ServiceCIDRs = []objects.LearnedRange{{CIDR: "10.96.0.0/12"}, {CIDR: "fd00:9::/112"}}
	c.Status.Mapped = []objects.MappedRange{{CIDR: "10.1.0.0/16", As: "240.9.0.0/16"}}
	c.Status.Accepted = []string{"10.1.0.0/16", "bad"}
	c.Status.Conditions = []metav1.Condition{{Type: objects.ConditionRangesAccepted, Status: metav1.ConditionTrue}}
	n := objects.ClusterNode{Spec: v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: "n", PodCIDRs: []string{"10.1.2.0/24"},
		ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{PublicKey: "k", Overlay4: "100.112.0.1", Overlay6: "fd7f::1"}}}
	other := objects.ClusterNode{Spec: v1alpha1.ClusterNodeSpec{ClusterName: "b", NodeName: "n", PodCIDRs: []string{"bad"}}}
	got := fmt.Sprintf("%+v", inputs([]objects.Cluster{c}, []objects.ClusterNode{n, other}))
	for _, part := range []string{"Accepted:true Held:[10.1.0.0/16]", "Pods:[10.1.0.0/16 10.9.0.0/16]", "Services:[10.96.0.0/12]",
		"Unlinked:[fd00:1::/48 fd00:9::/112]", "Mapped:[10.1.0.0/16 of cluster a as 240.1.0.0/16]", "Was:[10.1.0.0/16 of cluster a as 240.9",
		"Pods:[10.1.2.0/24] Overlay:[fd7f::1 100.112.0.1] Key:k", "Broken:}"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in %s", part, got)
		}
	}
	for name, spoil := range map[string]func(){
		"node n: \"x\" is no address":                 func() { n.Spec.Overlay4 = "x" },
		"node n: \"y\" is no CIDR":                    func() { n.Spec.PodCIDRs = []string{"y"} },
		"\"10.1.2.3/16\" is no CIDR":                  func() { c.Spec.ClusterPodCIDRs = []string{"10.1.2.3/16"} },
		"globalCIDRsMap: 240.0.0.0/8 is larger than ": func() { c.Spec.GlobalCIDRsMap["10.1.0.0/16"] = "240.0.0.0/8" },
	} {
		was, node := *c.DeepCopy(), *n.DeepCopy()
		spoil()
		if in := inputs([]objects.Cluster{c}, []objects.ClusterNode{n}); !strings.Contains(in[0].Broken, name) {
			t.Errorf("%s: %q", name, in[0].Broken)
		}
		c, n = was, node
	}
}

// TestNext: what is written and told after a verdict.
func TestNext(t *testing.T) {
	now := time.Unix(2e9, 0)
	yes := accept.Verdict{Accepted: true, Reason: accept.Distinct, Why: "fine"}
	odd := accept.Verdict{Accepted: true, Reason: accept.Distinct, Why: "fine", Warnings: []string{"but"}}
	no := accept.Verdict{Reason: accept.Overlap, Why: "not fine"}
	wait := accept.Verdict{Reason: accept.Unlearned, Why: "wait"}
	for name, c := range map[string]struct {
		before, now accept.Verdict
		event       string
		changed     bool
		since       bool // the condition's time stays
	}{
		"first":                {accept.Verdict{}, yes, eventAccepted, true, false},
		"nothing new":          {yes, yes, "", false, true},
		"odd":                  {yes, odd, eventOdd, true, true},
		"still odd":            {odd, odd, "", false, true},
		"not odd any longer":   {odd, yes, "", true, true},
		"refused":              {yes, no, eventRefused, true, false},
		"refused still":        {no, no, "", false, true},
		"accepted after all":   {no, yes, eventAccepted, true, false},
		"not known yet":        {accept.Verdict{}, wait, "", true, false},
		"known, then accepted": {wait, yes, eventAccepted, true, false},
	} {
		o := object("a")
		if c.before.Reason != "" {
			w, _, _ := next(&o, c.before, nil, now)
			o.Status.Conditions = w.Conditions
		}
		w, tell, changed := next(&o, c.now, nil, now.Add(time.Hour))
		var event string
		if tell != nil {
			event = tell.reason
		}
		if event != c.event || changed != c.changed || (w.Conditions[0].LastTransitionTime.Time.Equal(now)) != c.since ||
			w.Conditions[0].ObservedGeneration != 3 {
			t.Errorf("%s: %q, %v, %+v", name, event, changed, w)
		}
	}
	o := object("a")
	long := accept.Verdict{Reason: accept.Overlap, Why: strings.Repeat("ä", 9000)}
	if w, _, _ := next(&o, long, nil, now); len(w.Conditions[0].Message) > mostMessage {
		t.Error("the message is long")
	}
}

// TestSame: a member's reports are no reason to judge again.
func TestSame(t *testing.T) {
	a, b := object("a", "10.1.0.0/16"), object("a", "10.1.0.0/16")
	b.Status.Gateways = []string{"n"}
	b.Status.Conditions = []metav1.Condition{{Type: objects.ConditionReady, Status: metav1.ConditionTrue}}
	if !same(&a, &b) {
		t.Error("it is the same")
	}
	b.Status.Accepted = []string{"10.1.0.0/16"}
	if c := object("a", "10.2.0.0/16"); same(&a, &c) || same(&a, &b) {
		t.Error("it is not the same")
	}
	n, m := objects.ClusterNode{}, objects.ClusterNode{Status: objects.ClusterNodeStatus{Tunnels: "1/2"}}
	if !same(&n, &m) {
		t.Error("a node's status")
	}
	m.Generation = 2
	if same(&n, &m) {
		t.Error("a node's spec")
	}
}

// stored is a cache, and an API server that takes each status.
type stored struct {
	client.Reader
	client.SubResourceWriter
	clusters objects.ClusterList
	nodes    objects.ClusterNodeList
	writes   int
}

func (s *stored) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch l := into.(type) {
	case *objects.ClusterList:
		l.Items = slices.Clone(s.clusters.Items)
	case *objects.ClusterNodeList:
		l.Items = slices.Clone(s.nodes.Items)
	}
	return nil
}

func (s *stored) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	s.writes++
	return nil
}

// BenchmarkPass is a pass over 100 clusters of 100 nodes each, after one node changed.
func BenchmarkPass(b *testing.B) {
	var s stored
	for i := range 100 {
		s.clusters.Items = append(s.clusters.Items, object(fmt.Sprintf("c%d", i), fmt.Sprintf("10.%d.0.0/16", i)))
		for k := range 100 {
			s.nodes.Items = append(s.nodes.Items, objects.ClusterNode{Spec: v1alpha1.ClusterNodeSpec{
				ClusterName: fmt.Sprintf("c%d", i), NodeName: fmt.Sprintf("n%d", k), PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", i, k)},
				ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{PublicKey: fmt.Sprintf("k%d.%d", i, k),
					Overlay4: fmt.Sprintf("100.112.%d.%d", i, k), Overlay6: fmt.Sprintf("fd7f::%d:%d", i, k)}}})
		}
	}
	l := &loop{log: slog.New(slog.DiscardHandler), told: telemetry.NewLinkHost(prometheus.NewRegistry()), reader: &s, status: &s,
		say: func(client.Object, bool, string, string) {}, hearing: hearing{}, orders: newOrders(nil),
		apply: func(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error { return nil }}
	if !l.pass(b.Context()) || s.writes != 100 {
		b.Fatal(s.writes, " writes")
	}
	for i, v := range accept.Decide(inputs(s.clusters.Items, s.nodes.Items)) {
		c := &s.clusters.Items[i]
		w, _, _ := next(c, v, l.around(c.Name, see(s.nodes.Items)[c.Name], time.Now()), time.Now())
		s.clusters.Items[i].Status.Conditions, s.clusters.Items[i].Status.Accepted = w.Conditions, w.Accepted
	}
	for n := 0; b.Loop(); n++ {
		s.nodes.Items[0].Spec.PodCIDRs = []string{fmt.Sprintf("10.0.%d.0/24", n%256)}
		l.pass(b.Context())
	}
	if s.writes != 100 {
		b.Error(s.writes-100, " writes that nothing needs")
	}
}
