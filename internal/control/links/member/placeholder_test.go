// SPDX-License-Identifier: Apache-2.0

package member

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
	"github.com/tombolo-io/tombolo/internal/link/doubled"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

func withKey(key string) v1alpha1.ClusterNodeSpec {
	return v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: "x",
		ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{PublicKey: key, Overlay6: "fd00::1", Overlay4: "100.112.0.1"}}
}

// TestPlaceholder: what each step of a node with a new key waits for.
func TestPlaceholder(t *testing.T) {
	now := time.Unix(10_000, 0)
	there := nothing()
	put := func(name, uid, order, marked string, spec v1alpha1.ClusterNodeSpec) *objects.ClusterNode {
		n := &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(now)}, Spec: spec}
		n.Annotations[objects.AnnotationOrder], n.Annotations[objects.AnnotationDoubled] = order, marked
		n.Status.NodeStatus = objects.NodeReady
		there.nodes[name] = n
		return n
	}
	s := share.Shared{Nodes: []share.Stated{{Ready: true, ClusterNodeSpec: withKey("k2")}}}
	told := map[string]time.Time{"a.x": now}
	by := telling{cluster: "a", heard: told}
	is := func(what, want string, soon bool, at time.Time) {
		t.Helper()
		by.see(there, at)
		changes, again := stated(by, s, there, at)
		if got := said(changes); got != want || again != 0 != soon {
			t.Errorf("%s: %q, again in %v, want %q", what, got, again, want)
		}
	}
	name := placeholderOf("x")
	other := withKey("k9")
	other.ClusterName, other.NodeName = "b", "y"
	put("a.x", "h", "1", "", withKey("k1"))
	there.nodes["a.x"].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	is("it begins", "ClusterNode a."+name+" spec", true, now)
	spec := v1alpha1.ClusterNodeSpec{ClusterName: "a", NodeName: name,
		ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{Overlay6: "fd00::1"}}
	p := put("a."+name, "p", "", "", spec)
	is("the order of the placeholder is not noted", "", true, now)
	is("nor within half a minute", "ClusterNode a.x remove h", true, now.Add(placeholderWait+1))
	by.seen = nil
	p.Annotations[objects.AnnotationOrder] = "5"
	waits := put("b.y", "w", "4", "", other)
	is("another one came before", "", true, now)
	waits.Annotations[objects.AnnotationDoubled] = "it lost"
	is("and is marked", "ClusterNode a.x remove h", true, now)
	waits.Annotations[objects.AnnotationDoubled], waits.Annotations[objects.AnnotationOrder] = "", "6"
	is("another one came later", "ClusterNode a.x remove h", true, now)
	delete(there.nodes, "a.x")
	is("the old one is gone", "ClusterNode a.x spec status", true, now)
	n := put("a.x", "h3", "", "", withKey("k2"))
	is("the new one is there", "", true, now)
	n.Annotations[objects.AnnotationOrder] = "7"
	is("another one came before that one", "", true, now)
	waits.Annotations[objects.AnnotationDoubled] = "it lost"
	is("and is marked", "ClusterNode a."+name+" remove p", false, now)
	n.Spec.PublicKey, n.Annotations[objects.AnnotationDoubled] = "k1", "it lost"
	delete(there.nodes, "a."+name)
	is("one that is marked has nothing", "ClusterNode a.x remove h3", false, now)
	there.nodes["a."+name] = p
	s.Nodes = nil
	is("the node is gone", "ClusterNode a."+name+" remove p, ClusterNode a.x remove h3", false, now)
	delete(there.nodes, "a."+name)
	n.Annotations[objects.AnnotationDoubled] = ""
	n.Spec.Overlay4, n.Spec.Overlay6 = "100.112.0.2", "fd00::2"
	s.Nodes = []share.Stated{{Ready: true, ClusterNodeSpec: withKey("k2")}}
	is("both addresses are others", "ClusterNode a.x remove h3", false, now)
}

// TestNobodyTakesTheAddress: another cluster that claims a node's address at any moment of a change of keys never has
// it, whatever the host's controller does first, and whatever each one sees late.
func TestNobodyTakesTheAddress(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		h := &hostTwin{nodes: map[string]*objects.ClusterNode{}, now: time.Unix(10_000, 0)}
		h.create(withKey("k1"))
		h.judge(10)
		seen := h.look()
		told, steps := telling{cluster: "a", heard: map[string]time.Time{}}, 0
		for ; !h.done("k2"); steps++ {
			if steps > 1000 {
				t.Fatalf("it does not end: %v", slices.Sorted(maps.Keys(h.nodes)))
			}
			switch r.IntN(8) {
			case 0:
				if len(h.nodes) < 20 {
					spec := withKey(fmt.Sprint("b", steps))
					spec.ClusterName, spec.NodeName = "0", fmt.Sprint("n", steps) // whose name comes first
					h.create(spec)
				}
			case 1, 2:
				h.judge(r.IntN(3))
			case 3, 4:
				seen = h.look()
			case 5:
				h.now = h.now.Add(time.Duration(r.IntN(1200)) * time.Millisecond)
			default:
				changes, _ := stated(told, share.Shared{Nodes: []share.Stated{{ClusterNodeSpec: withKey("k2")}}}, seen, h.now)
				for _, c := range changes {
					h.do(c)
				}
				seen = h.look()
			}
			if has := h.holds(); has != "a" {
				t.Fatalf("after %d steps cluster %q has the address: %+v", steps, has, slices.Sorted(maps.Keys(h.nodes)))
			}
			if h.now.Sub(time.Unix(10_000, 0)) > placeholderWait/2 { // nobody waits for ever
				h.now = time.Unix(10_000, 0).Add(placeholderWait / 2)
				h.judge(100)
			}
		}
	}
}

// hostTwin is a host cluster with its controller.
type hostTwin struct {
	nodes   map[string]*objects.ClusterNode
	version int
	now     time.Time
}

func (h *hostTwin) create(spec v1alpha1.ClusterNodeSpec) {
	h.version++
	name := v1alpha1.ClusterNodeName(spec.ClusterName, spec.NodeName)
	h.nodes[name] = &objects.ClusterNode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(h.version)),
		CreationTimestamp: metav1.NewTime(h.now.Truncate(time.Second)), Annotations: map[string]string{}}, Spec: spec}
}

// look is what a member's controller sees now.
func (h *hostTwin) look() linked {
	out := nothing()
	for name, n := range h.nodes {
		out.nodes[name] = n.DeepCopy()
	}
	return out
}

func (h *hostTwin) do(c change) {
	have := h.nodes[c.name]
	switch spec, ok := c.spec.(v1alpha1.ClusterNodeSpec); {
	case removes(c) && have != nil && have.UID == c.remove:
		delete(h.nodes, c.name)
	case ok && have == nil:
		h.create(spec)
	}
}

// judge notes so many orders, the first ones first, and so many marks.
func (h *hostTwin) judge(most int) {
	byName := slices.Sorted(maps.Keys(h.nodes))
	var clusters []accept.Cluster
	for _, cluster := range []string{"0", "a"} {
		c := accept.Cluster{Name: cluster, Accepted: true, Pods: []netip.Prefix{netip.MustParsePrefix(
			map[string]string{"a": "10.1.0.0/16", "0": "10.2.0.0/16"}[cluster])}}
		for _, name := range byName {
			if n := h.nodes[name]; n.Spec.ClusterName == cluster {
				claim := claimOf(n)
				c.Nodes = append(c.Nodes, accept.Node{Name: n.Spec.NodeName, Created: claim.Created, Order: claim.Order,
					Marked: claim.Marked, Overlay: claim.Addresses, Key: claim.Key})
			}
		}
		clusters = append(clusters, c)
	}
	marks := 0
	for i, v := range accept.Decide(clusters) {
		for _, node := range slices.Sorted(maps.Keys(v.Mark)) {
			if n := h.nodes[clusters[i].Name+"."+node]; n.Annotations[objects.AnnotationDoubled] == "" && marks < most {
				n.Annotations[objects.AnnotationDoubled] = v.Mark[node]
				marks++
			}
		}
	}
	slices.SortFunc(byName, func(a, b string) int {
		x, _ := strconv.Atoi(string(h.nodes[a].UID))
		y, _ := strconv.Atoi(string(h.nodes[b].UID))
		return x - y
	})
	orders := 0
	for _, name := range byName {
		if n := h.nodes[name]; n.Annotations[objects.AnnotationOrder] == "" && orders < most {
			n.Annotations[objects.AnnotationOrder] = string(n.UID)
			orders++
		}
	}
}

// holds is the cluster that has the address for nodes of a third one.
func (h *hostTwin) holds() string {
	var all []doubled.Claim
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		c := claimOf(h.nodes[name])
		c.Accepted = true
		all = append(all, c)
	}
	lost := map[int]bool{}
	for _, l := range doubled.Find(all) {
		lost[l.Claim] = true
	}
	out := ""
	for i, c := range all {
		if !lost[i] && out != "0" {
			out = c.Cluster
		}
	}
	return out
}

// done reports whether the node has its new key, and nothing of the change is left.
func (h *hostTwin) done(key string) bool {
	n := h.nodes["a.x"]
	return n != nil && n.Spec.PublicKey == key && h.nodes["a."+placeholderOf("x")] == nil
}
