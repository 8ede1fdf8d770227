// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

const linkedClusters = `
apiVersion: tombolo.dev/v1alpha1
kind: Cluster
metadata: {name: a}
spec: {networkType: gateway, cni: other, clusterPodCIDRs: [10.1.0.0/16], excludeNodes: [a3], excludeSelector: linked=no}
---
apiVersion: tombolo.dev/v1alpha1
kind: Cluster
metadata: {name: b}
spec: {cni: other, clusterPodCIDRs: [10.2.0.0/16]}
`

// federation is a host cluster, and two that are linked.
type federation struct {
	host, a, b *api
	log        *logged
}

// has waits until API servers have certain nodes.
func (f *federation) has(t *testing.T, what, want string, where ...*api) time.Duration {
	t.Helper()
	return eventually(t, what, func() string {
		for _, x := range where {
			if got := x.states(t); got != want {
				return fmt.Sprintf("%s has %q, want %q", x.name, got, want)
			}
		}
		return ""
	})
}

func (f *federation) cluster(t *testing.T, x *api, name string) *objects.Cluster {
	t.Helper()
	var c objects.Cluster
	if err := x.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// quiet requires that nothing is written for a second after signs of life, which change nothing. What is written late
// is for something before.
func (f *federation) quiet(t *testing.T) {
	t.Helper()
	all := []*api{f.host, f.a, f.b}
	at := func() (out []string) {
		for _, x := range all {
			out = append(out, x.versions(t)...)
		}
		return out
	}
	eventually(t, "nothing is written without need", func() string {
		before := at()
		f.lives(t)
		<-time.After(time.Second)
		if now := at(); !slices.Equal(now, before) {
			return fmt.Sprintf("%q, before %q", now, before)
		}
		return ""
	})
}

// lives has all nodes give a sign of life.
func (f *federation) lives(t *testing.T) {
	t.Helper()
	for _, x := range []*api{f.a, f.b} {
		var nodes corev1.NodeList
		if err := x.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Items {
			n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now()
			if err := x.Status().Update(t.Context(), &n); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMembersOfAHost(t *testing.T) {
	begin := time.Now()
	all := start(t, "host", "a", "b")
	f := &federation{all[0], all[1], all[2], &logged{}}
	t.Logf("three API servers after %v", time.Since(begin).Round(time.Millisecond))
	defer func() {
		if t.Failed() {
			t.Log(f.log)
		}
	}()
	f.host.create(t, hostRights+"---\n"+linkedClusters)
	for i, x := range []*api{f.a, f.b} {
		x.control(t, controlconf.Links{Cluster: x.name, HostKubeconfig: f.host.credentials(t, x.name), Gateways: 1}, f.log)
		for n := 1; n <= 3; n++ {
			if name := fmt.Sprintf("%s%d", x.name, n); name != "b2" && name != "b3" {
				x.node(t, name, fmt.Sprintf("10.%d.%d.0/24", i+1, n), fmt.Sprintf("198.51.100.%d", 10*i+n), byte(4*n+i))
			}
		}
	}
	for _, step := range []struct {
		name string
		do   func(*federation, *testing.T)
	}{{"nodes appear", (*federation).nodesAppear}, {"a gateway is cut off", (*federation).gatewayCutOff},
		{"nodes change", (*federation).nodesChange}, {"a key rotates", (*federation).keyRotates},
		{"the clock is wrong", (*federation).clockWrong}, {"nodes report", (*federation).nodesReport}, {"Calico", (*federation).calico},
		{"the host is away", (*federation).hostAway}, {"a cluster is removed", (*federation).clusterGoes}} {
		if !t.Run(step.name, func(t *testing.T) { step.do(f, t) }) {
			t.Log(f.log)
			return
		}
	}
}

// ordered: copies have the order that the host's controller notes, and what a member writes later leaves it there.
func (f *federation) ordered(t *testing.T) {
	n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: "b.b1"}}
	text := []byte(`{"metadata":{"annotations":{"tombolo.dev/order":"77"}}}`)
	if err := f.host.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, text)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*api{f.a, f.b} {
		eventually(t, "the order in "+x.name, func() string {
			err := x.Get(t.Context(), client.ObjectKey{Name: "b.b1"}, n)
			if got := n.Annotations; err != nil || got[objects.AnnotationOrder] != "77" || got[objects.AnnotationCreated] == "" {
				return fmt.Sprint(got, err)
			}
			return ""
		})
	}
}

func (f *federation) nodesAppear(t *testing.T) {
	var gateway string
	eventually(t, "a gateway", func() string {
		gateway = strings.Join(f.cluster(t, f.host, "a").Status.Gateways, ",")
		if gateway != "a1" && gateway != "a2" {
			return fmt.Sprintf("there is %q", gateway)
		}
		return ""
	})
	want := "a.a1 Ready, a.a2 Ready, b.b1 Ready"
	want = strings.Replace(want, gateway+" Ready", gateway+" Ready gateway", 1)
	f.has(t, "all nodes everywhere", want, f.host, f.a, f.b)
	f.ordered(t)
	eventually(t, "the clusters are ready", func() string {
		for _, x := range []*api{f.host, f.a, f.b} {
			for _, name := range []string{"a", "b"} {
				c := f.cluster(t, x, name)
				if !meta.IsStatusConditionTrue(c.Status.Conditions, objects.ConditionReady) || len(c.Status.PodCIDRs) != 1 ||
					len(c.Status.ServiceCIDRs) != 1 || c.Status.ServiceCIDRs[0].Source == "" {
					return fmt.Sprintf("%s at %s: %+v", name, x.name, c.Status)
				}
			}
		}
		return ""
	})
	var n objects.ClusterNode
	if err := f.b.Get(t.Context(), client.ObjectKey{Name: "a.a2"}, &n); err != nil {
		t.Fatal(err)
	}
	if n.Labels[labelManagedBy] != managedBy || n.Spec.IP == "" || n.Spec.ElasticIP != "198.51.100.2" ||
		fmt.Sprint(n.Spec.PodCIDRs) != "[10.1.2.0/24]" || n.Spec.PublicKey == "" || n.Status.LastHeard == nil {
		t.Errorf("%+v %+v", n.ObjectMeta, n)
	}
	f.quiet(t)
}

func (f *federation) nodesChange(t *testing.T) {
	gateway := f.cluster(t, f.host, "a").Status.Gateways[0]
	other := map[string]string{"a1": "a2", "a2": "a1"}[gateway]
	states := func(one, two string) string {
		both := []string{"a." + gateway + " " + one, "a." + other + " " + two}
		slices.Sort(both)
		return strings.Join(append(both, "b.b1 Ready"), ", ")
	}
	f.a.ready(t, other, false)
	took := f.has(t, "NotReady arrives", states("Ready gateway", "NotReady"), f.host, f.b)
	t.Attr("figure", fmt.Sprintf("NotReady is in the other cluster after %v", took.Round(time.Millisecond)))
	f.a.ready(t, other, true)
	f.has(t, "and ready again", states("Ready gateway", "Ready"), f.host, f.b)
	f.a.remove(t, &corev1.Node{}, gateway)
	took = f.has(t, "a Node is deleted, and its role moves", "a."+other+" Ready gateway, b.b1 Ready", f.host, f.b)
	t.Attr("figure", fmt.Sprintf("a gateway's role has moved after %v", took.Round(time.Millisecond)))
	f.b.remove(t, &objects.ClusterNode{}, "a."+other)
	f.has(t, "a copy that somebody removed is back", "a."+other+" Ready gateway, b.b1 Ready", f.b)
}

// keyRotates: while the object of a node is made anew, another one of its cluster claims its address.
func (f *federation) keyRotates(t *testing.T) {
	change := func(spec string) {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(objects.GroupVersion().WithKind(kindMember))
		u.SetName("b1")
		if err := f.b.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
			t.Fatal(err)
		}
	}
	note := func(name, order string) { // as the host's controller does
		t.Helper()
		n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		text := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, objects.AnnotationOrder, order)
		if err := f.host.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, text)); err != nil {
			t.Fatal(err)
		}
	}
	var n objects.ClusterNode
	is := func(what string, x *api, name string, holds func() bool) {
		t.Helper()
		eventually(t, what+" at "+x.name, func() string {
			n = objects.ClusterNode{}
			if err := x.Get(t.Context(), client.ObjectKey{Name: name}, &n); client.IgnoreNotFound(err) != nil || !holds() {
				return fmt.Sprintf("%+v, %v", n, err)
			}
			return ""
		})
	}
	const placeholder = "b.placeholder-7dc96f776c8423e5"
	gone := func() bool { return n.UID == "" }
	change(`{"overlay6":"fd00::b1"}`)
	is("an address that it has not had, and nothing to keep", f.host, "b.b1", func() bool { return n.Spec.Overlay6 == "fd00::b1" })
	note("b.b1", "78")
	old := n.UID
	is("no placeholder", f.host, placeholder, gone)
	change(`{"publicKey":"CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk="}`)
	for _, x := range []*api{f.host, f.a} {
		is("the placeholder", x, placeholder, func() bool { return n.Spec.Overlay6 == "fd00::b1" && n.Spec.PublicKey == "" })
		is("the old one", x, "b.b1", func() bool { return n.Spec.Overlay6 == "fd00::b1" && n.Spec.PublicKey[0] != 'C' })
	}
	note(placeholder, "79")
	is("the new one", f.host, "b.b1", func() bool { return n.UID != old && n.Spec.PublicKey != "" && n.Spec.PublicKey[0] == 'C' })
	is("the placeholder", f.a, placeholder, func() bool { return !gone() })
	note("b.b1", "80")
	for _, x := range []*api{f.host, f.a} {
		is("the new one", x, "b.b1", func() bool { return n.Spec.PublicKey != "" && n.Spec.PublicKey[0] == 'C' })
		is("no placeholder", x, placeholder, gone)
	}
}

func (f *federation) hostAway(t *testing.T) {
	warnings := func() int { return strings.Count(f.log.String(), "level=WARN") }
	before, warned := f.b.states(t), warnings()
	f.host.way.cut()
	for _, x := range []*api{f.a, f.b} {
		eventually(t, "the own Cluster says so", func() string {
			c := f.cluster(t, x, x.name)
			if meta.FindStatusCondition(c.Status.Conditions, objects.ConditionHostReached) == nil {
				return fmt.Sprintf("%+v", c.Status.Conditions)
			}
			return ""
		})
	}
	f.a.node(t, "a4", "10.1.4.0/24", "198.51.100.4", 1)
	f.b.ready(t, "b1", false)
	f.b.node(t, "b2", "10.2.2.0/24", "198.51.100.12", 2)
	<-time.After(time.Second)
	if now := f.b.states(t); now != before {
		t.Errorf("without the host b has %q, before %q", now, before)
	}
	f.host.create(t, "{apiVersion: tombolo.dev/v1alpha1, kind: ClusterNode, metadata: {name: c.c1}, "+
		"spec: {clusterName: c, nodeName: c1}}")
	f.host.way.open(t)
	want := strings.Replace(before, "b.b1 Ready", "a.a4 Ready, b.b1 NotReady, b.b2 Ready, c.c1", 1)
	took := f.has(t, "all changes are everywhere", want, f.host, f.a, f.b)
	t.Attr("figure", fmt.Sprintf("after the host is back all is everywhere in %v", took.Round(time.Millisecond)))
	for _, x := range []*api{f.a, f.b} {
		eventually(t, "and the own Cluster says nothing any longer", func() string {
			c := f.cluster(t, x, x.name)
			if meta.FindStatusCondition(c.Status.Conditions, objects.ConditionHostReached) != nil {
				return fmt.Sprintf("%+v", c.Status.Conditions)
			}
			return ""
		})
	}
	if n := warnings() - warned; n != 2 {
		t.Errorf("%d warnings:\n%s", n, f.log)
	}
}

// clusterGoes: the other clusters forget it, and what it has of them stays until somebody unlinks it there.
func (f *federation) clusterGoes(t *testing.T) {
	f.b.create(t, "{apiVersion: tombolo.dev/v1alpha1, kind: Cluster, metadata: {name: mine}, spec: {}}")
	before, kept := f.a.states(t), f.a.uids(t)
	f.host.remove(t, &objects.Cluster{}, "a")
	f.has(t, "its nodes go", "b.b1 NotReady, b.b2 Ready, c.c1", f.host, f.b)
	f.a.says(t, "a", objects.ConditionHostReached, "False HostUnlinked", "'tombolo link unjoin a' here")
	f.has(t, "it keeps what it has", before, f.a)
	eventually(t, "and its Cluster goes, and nobody else's", func() string {
		all, err := readLinked(t.Context(), f.b)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(all.clusters)), ", "); got != "b, mine" {
			return got
		}
		return ""
	})
	if now := f.a.uids(t); !slices.Equal(now, kept) {
		t.Errorf("it has %q, before %q", now, kept)
	}
}
