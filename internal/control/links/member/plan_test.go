// SPDX-License-Identifier: Apache-2.0

package member

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

func nothing() linked {
	return linked{map[string]*objects.Cluster{}, map[string]*objects.ClusterNode{}}
}

// put adds a Cluster and one of its nodes.
func (l linked) put(cluster, node, uid string, copied bool) linked {
	c, n := &objects.Cluster{}, &objects.ClusterNode{}
	c.Name, c.UID = cluster, types.UID(uid+"1")
	n.Name, n.UID = cluster+"."+node, types.UID(uid+"2")
	n.Spec = v1alpha1.ClusterNodeSpec{ClusterName: cluster, NodeName: node}
	if copied {
		c.Labels = map[string]string{labelManagedBy: managedBy}
		n.Labels = c.Labels
	}
	l.clusters[c.Name], l.nodes[n.Name] = c, n
	return l
}

func said(changes []change) string {
	var out []string
	for _, c := range changes {
		what := c.kind + " " + c.name
		if c.spec != nil {
			what += " spec"
		}
		if c.status != nil {
			what += " status"
		}
		if c.remove != "" {
			what += " remove " + string(c.remove)
		}
		out = append(out, what)
	}
	return strings.Join(out, ", ")
}

// TestPending: a Cluster that was restored without its status cuts nothing until it is judged by what its member states,
// and what was not restored yet stays until the own one is.
func TestPending(t *testing.T) {
	at := time.Unix(10_000, 0)
	own := nothing().put("a", "x", "o", true).put("b", "x", "p", true)
	for _, c := range own.clusters {
		c.Annotations = map[string]string{objects.AnnotationCreated: at.UTC().Format(time.RFC3339)}
	}
	const a, b = "Cluster a spec status", "Cluster b spec status"
	for name, c := range map[string]struct {
		a, b string // what the host cluster has of them; empty: nothing
		want string
	}{
		"the own one":          {"bare", "as before", ""},
		"the own one alone":    {"bare", "", ""},
		"both":                 {"bare", "bare", ""},
		"ranges not known":     {"bare", "True", b},
		"not even stated":      {"Unknown", "bare", ""},
		"accepted by its spec": {"True", "True, not stated", a},
		"refused":              {"True", "False", a + ", " + b},
		"accepted":             {"True", "True", a + ", " + b},
		"the other one goes":   {"True", "", a + ", Cluster b remove p1, ClusterNode b.x remove p2"},
		"no other object":      {"same", "same", "Cluster a status, Cluster b status"},
	} {
		there := nothing()
		for cluster, is := range map[string]string{"a": c.a, "b": c.b} {
			if is == "" {
				continue
			}
			if there.clusters[cluster] = restored(cluster, is, at); is != "bare" {
				there.nodes[cluster+".x"] = own.nodes[cluster+".x"]
			}
		}
		if got := said(copied(there, own, "a")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	older := nothing().put("a", "x", "o", true)
	there := linked{map[string]*objects.Cluster{"a": restored("a", "bare", at)}, older.nodes}
	if got := said(copied(there, older, "a")); got != "Cluster a spec" {
		t.Errorf("a copy of an earlier version: %q", got)
	}
}

// restored is a Cluster as a host cluster has it after at: with a judgement, without, or as it was.
func restored(name, is string, at time.Time) *objects.Cluster {
	c := &objects.Cluster{}
	c.Name, c.UID, c.CreationTimestamp = name, "new", metav1.NewTime(at.Add(time.Hour))
	says, bare := strings.CutSuffix(is, ", not stated")
	switch says {
	case "as before":
		c.CreationTimestamp = metav1.NewTime(at)
		return c
	case "bare":
		return c
	case "same":
		c.CreationTimestamp, says = metav1.NewTime(at), "Unknown"
	}
	if c.Status.ObservedGeneration = 1; bare {
		c.Status.ObservedGeneration = 0
	}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: objects.ConditionRangesAccepted,
		Status: metav1.ConditionStatus(says), LastTransitionTime: metav1.NewTime(at)})
	return c
}

func TestCopied(t *testing.T) {
	ready := nothing().put("a", "x", "h", false)
	ready.nodes["a.x"].Status.NodeStatus = objects.NodeReady
	for name, c := range map[string]struct {
		there, own linked
		want       string
	}{
		"nothing":           {nothing(), nothing(), ""},
		"new":               {ready, nothing(), "Cluster a spec, ClusterNode a.x spec status"},
		"as it is":          {ready, nothing().put("b", "x", "o", false), "Cluster a spec, ClusterNode a.x spec status"},
		"only the status":   {ready, nothing().put("a", "x", "o", true), "ClusterNode a.x status"},
		"without the label": {nothing().put("a", "x", "h", false), nothing().put("a", "x", "o", false), "Cluster a spec, ClusterNode a.x spec"},
		"gone":              {nothing(), nothing().put("a", "x", "o", true), "Cluster a remove o1, ClusterNode a.x remove o2"},
		"somebody else's":   {nothing(), nothing().put("a", "x", "o", false), ""},
		"one cluster":       {ready, nothing().put("a", "x", "h", false), ""},
	} {
		if got := said(copied(c.there, c.own, "a")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestCopiedCreation: copies say since when the host cluster has a node.
// TestCopiedAnew: a copy whose original was made anew while nobody looked is removed, since its key does not change, and
// the copy of a placeholder stays until then.
func TestCopiedAnew(t *testing.T) {
	there, own := nothing().put("a", "x", "h", false), nothing().put("a", "x", "c", true)
	own.put("a", placeholderOf("x"), "p", true)
	there.nodes["a.x"].Spec.PublicKey, own.nodes["a.x"].Spec.PublicKey = "k2", "k1"
	own.nodes["a."+placeholderOf("x")].Spec.Overlay6 = "fd00::1"
	got := said(copied(there, own, "b"))
	if !strings.HasSuffix(got, "ClusterNode a.x remove c2") || strings.Contains(got, "placeholder") {
		t.Errorf("%q", got)
	}
	delete(own.nodes, "a.x")
	if got := said(copied(there, own, "b")); !strings.Contains(got, "ClusterNode a.x spec, ") ||
		!strings.HasSuffix(got, "ClusterNode a."+placeholderOf("x")+" remove p2") {
		t.Errorf("%q", got)
	}
}

func TestCopiedCreation(t *testing.T) {
	there, own := nothing().put("a", "x", "h", false), nothing().put("a", "x", "o", true)
	there.nodes["a.x"].CreationTimestamp = metav1.NewTime(time.Unix(10_000, 0))
	want := map[string]string{objects.AnnotationCreated: "1970-01-01T02:46:40Z"}
	got := copied(there, own, "b")
	if said(got) != "ClusterNode a.x spec" || !maps.Equal(got[0].annotations, want) {
		t.Errorf("%s, %+v", said(got), got)
	}
	own.nodes["a.x"].Annotations = want
	if got := said(copied(there, own, "b")); got != "" {
		t.Errorf("it says it already: %s", got)
	}
	ordered := map[string]string{objects.AnnotationCreated: want[objects.AnnotationCreated], objects.AnnotationOrder: "77"}
	there.nodes["a.x"].Annotations = map[string]string{objects.AnnotationOrder: "77", "x": "y"}
	if got := copied(there, own, "b"); said(got) != "ClusterNode a.x spec" || !maps.Equal(got[0].annotations, ordered) {
		t.Errorf("with an order: %s, %+v", said(got), got)
	}
	own.nodes["a.x"].Annotations = ordered
	if got := said(copied(there, own, "b")); got != "" {
		t.Errorf("it has the order already: %s", got)
	}
	marked := maps.Clone(ordered)
	marked[objects.AnnotationDoubled] = "it lost"
	there.nodes["a.x"].Annotations[objects.AnnotationDoubled] = "it lost"
	if got := copied(there, own, "b"); said(got) != "ClusterNode a.x spec" || !maps.Equal(got[0].annotations, marked) {
		t.Errorf("with a mark: %s, %+v", said(got), got)
	}
	own.nodes["a.x"].Annotations = marked
	if got := said(copied(there, own, "b")); got != "" {
		t.Errorf("it has the mark already: %s", got)
	}
	there.nodes["a.x"].Annotations = nil
	if got := copied(there, own, "b"); said(got) != "ClusterNode a.x spec" || !maps.Equal(got[0].annotations, want) {
		t.Errorf("the order is gone: %s, %+v", said(got), got)
	}
}

func TestStated(t *testing.T) {
	now := time.Unix(10_000, 0)
	s := share.Shared{Nodes: []share.Stated{{Ready: true,
		ClusterNodeSpec: v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: "x"}}}}
	there := nothing().put("a", "x", "h", false).put("b", "y", "i", false)
	told := map[string]time.Time{"a.x": now.Add(-time.Minute + 1)}
	is := func(what, want string) {
		t.Helper()
		changes, _ := stated(telling{cluster: "a", heard: told}, s, there, now)
		if got := said(changes); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("it is ready", "ClusterNode a.x status")
	there.nodes["a.x"].Status.NodeStatus = objects.NodeReady
	is("and that is known", "")
	told["a.x"] = now.Add(-time.Minute)
	is("it was last said to be heard a minute ago", "ClusterNode a.x status")
	s.Nodes[0].Ready = false
	is("it is not ready", "ClusterNode a.x status")
	s.Nodes[0].PodCIDRs = []string{"10.0.0.0/8"}
	is("other ranges", "ClusterNode a.x spec status")
	s.Nodes[0].PublicKey = "another"
	is("another key", "ClusterNode a.x remove h2")
	s.Nodes[0].PublicKey = ""
	s.Nodes[0].Pin = "p"
	is("a pin that it has not had", "ClusterNode a.x spec status")
	there.nodes["a.x"].Spec.Pin = "p"
	s.Nodes[0].Pin = "q"
	is("another pin", "ClusterNode a.x remove h2")
	s.Nodes[0].Pin = ""
	is("no pin any longer", "ClusterNode a.x spec status")
	s.Nodes = nil
	is("it is gone", "ClusterNode a.x remove h2")
	if every := heardEvery(600); every != 10*time.Minute {
		t.Errorf("600 nodes are said to be heard every %v", every)
	}
}

// TestStatedWithinBound: no node is created that the host cluster would refuse; those that are there change.
func TestStatedWithinBound(t *testing.T) {
	now := time.Unix(10_000, 0)
	var s share.Shared
	there := nothing().put("b", "y", "i", false)
	for i := range trouble.MostNodes + 2 {
		n := share.Stated{ClusterNodeSpec: v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: fmt.Sprintf("x%04d", i)}}
		if i > 2 {
			there.put("a", n.NodeName, "h", false)
		}
		n.IP = "192.0.2.1"
		s.Nodes = append(s.Nodes, n)
	}
	created := map[bool]int{}
	changes, _ := stated(telling{cluster: "a"}, s, there, now)
	for _, c := range changes {
		created[there.nodes[c.name] == nil]++
	}
	if created[true] != 1 || created[false] != trouble.MostNodes-1 {
		t.Errorf("%v: created, and changed", created)
	}
}

func TestClusterStatus(t *testing.T) {
	now := time.Unix(10_000, 0)
	have := &objects.Cluster{}
	have.Generation = 2
	s := share.Shared{Gateways: []string{"x"}, Verdict: share.Verdict{Ready: true, Reason: share.InForce, Message: "well"}}
	c, differs := clusterStatus(s, nil, have, now)
	status, ok := c.status.(objects.ClusterStatus)
	if !differs || !ok || fmt.Sprint(status.Gateways) != "[x]" || status.Conditions[0].Status != "True" {
		t.Fatalf("%v %+v", differs, c)
	}
	have.Status = status
	have.Status.Mapped = []objects.MappedRange{{CIDR: "10.0.0.0/8", As: "11.0.0.0/8"}} // the host's controller's
	if _, differs := clusterStatus(s, nil, have, now.Add(time.Hour)); differs {
		t.Error("it differs from itself")
	}
	s.Message = "still well"
	c, differs = clusterStatus(s, nil, have, now.Add(time.Hour))
	if status, ok = c.status.(objects.ClusterStatus); !differs || !ok || status.Mapped != nil ||
		!status.Conditions[0].LastTransitionTime.Time.Equal(now) {
		t.Errorf("%v %+v", differs, c)
	}
}

func TestWarned(t *testing.T) {
	now := time.Unix(10_000, 0)
	there, own := nothing().put("a", "x", "h", false), nothing().put("a", "x", "o", true)
	refused := unreached(errors.New("refused"))
	if got := said(copied(warned(there, own, "a", refused, now), own, "a")); got != "Cluster a status" {
		t.Errorf("%q", got)
	}
	got := warning(own, "a", refused, now)
	if said(got) != "Cluster a status" {
		t.Fatalf("%q", said(got))
	}
	status, ok := got[0].status.(objects.ClusterStatus)
	if !ok {
		t.Fatalf("%T", got[0].status)
	}
	own.clusters["a"].Status = status
	another := unreached(errors.New("another reason"))
	for _, changes := range [][]change{warning(own, "a", another, now.Add(time.Hour)),
		copied(warned(there, own, "a", another, now.Add(time.Hour)), own, "a")} {
		if len(changes) > 0 {
			t.Errorf("warned once more: %q", said(changes))
		}
	}
	kind := &meta.NoKindMatchError{GroupKind: objects.GroupVersion().WithKind("Cluster").GroupKind()}
	lacks := unreached(fmt.Errorf("list: %w", kind))
	if lacks.Reason != objects.ReasonKindsMissing || !strings.Contains(lacks.Message, "clusters.tombolo.dev") {
		t.Errorf("%+v", lacks)
	}
	for _, changes := range [][]change{warning(own, "a", lacks, now), copied(warned(there, own, "a", lacks, now), own, "a")} {
		if said(changes) != "Cluster a status" {
			t.Errorf("for another reason: %q", said(changes))
		}
	}
	if got := said(copied(there, own, "a")); got != "Cluster a status" {
		t.Errorf("the host is back: %q", got)
	}
}

func TestExcludes(t *testing.T) {
	for selector, want := range map[string]string{"": "false", "a=b": "true", "a in (b, c), !d": "true", "a!=b": "false"} {
		if got := fmt.Sprint(excludes(selector)(map[string]string{"a": "b"})); got != want {
			t.Errorf("%q: %s", selector, got)
		}
	}
	if excludes("a in (") != nil {
		t.Error("a selector that cannot be read excludes something")
	}
}
