// SPDX-License-Identifier: Apache-2.0

package member

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	"github.com/tombolo-io/tombolo/internal/link/share"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// change is what is to be done to one object.
type change struct {
	kind, name   string
	labels       map[string]string
	annotations  map[string]string
	spec, status any // nil: it stays
	remove       types.UID
	gone         bool // it is to be removed, whichever it is
	owner        *metav1.OwnerReference
}

// telling is what is known about a cluster's own ClusterNodes beside their facts.
type telling struct {
	cluster, engine string // the Cluster, and spec.engine of it
	version         string // of this program; empty: it is not said
	// heard is when each node was last said to be heard, and told when its status was last written, by the name of the
	// object.
	heard, told map[string]time.Time
	health      map[string]health // likewise; nil: it is not known yet
	// seen is since when objects are there that take part in a replacement.
	seen map[types.UID]time.Time
}

// stated is what is to be changed at the host cluster, so that it has what a cluster states about its nodes. again is
// when more of it is due though nothing changes; 0: never.
func stated(by telling, s share.Shared, there linked, now time.Time) (out []change, again time.Duration) {
	wanted := map[string]bool{}
	every, passed, room := reportEvery(len(s.Nodes)), 0, room(by.cluster, there)
	rivals := sync.OnceValue(func() rivals { return rivalsOf(by.cluster, there) })
	for _, n := range s.Nodes {
		name := v1alpha1.ClusterNodeName(by.cluster, n.NodeName)
		placeholder := v1alpha1.ClusterNodeName(by.cluster, placeholderOf(n.NodeName))
		wanted[name] = true
		c := change{kind: v1alpha1.KindClusterNode, name: name}
		have := there.nodes[name]
		if have == nil && room <= 0 { // it would be refused
			wanted[placeholder] = true
			continue
		}
		if have == nil {
			have, room = &objects.ClusterNode{}, room-1
		}
		r := replacement{by.cluster, n.NodeName, have, n.ClusterNodeSpec, there.nodes[placeholder]}
		next, soon, keep := r.changes(by, rivals, room > 0, now)
		if len(next) > 0 && !removes(next[0]) {
			room--
		}
		out, again = append(out, next...), sooner(again, soon)
		wanted[placeholder] = keep
		if have.UID != "" && renamed(have.Spec, n.ClusterNodeSpec) {
			continue
		}
		if by.version != "" {
			c.annotations = map[string]string{objects.AnnotationVersion: by.version}
		}
		if !equality.Semantic.DeepEqual(have.Spec, n.ClusterNodeSpec) ||
			have.Annotations[objects.AnnotationVersion] != by.version {
			c.spec = n.ClusterNodeSpec
		}
		status, due := by.status(name, n.Ready, have.Status, heardEvery(len(s.Nodes)), now)
		if due || have.Status.NodeStatus != status.NodeStatus {
			c.status = status
		} else if !equality.Semantic.DeepEqual(tunnelsOf(have.Status), tunnelsOf(status)) {
			left := every - now.Sub(by.told[name])
			if left <= 0 && passed == mostReports {
				left = gatherReports
			}
			if left <= 0 {
				c.status, passed = status, passed+1
			} else {
				again = sooner(again, left)
			}
		}
		if c.spec != nil || c.status != nil {
			out = append(out, c)
		}
	}
	for name, have := range there.nodes {
		if have.Spec.ClusterName == by.cluster && !wanted[name] {
			out = append(out, change{kind: v1alpha1.KindClusterNode, name: name, remove: have.UID})
		}
	}
	slices.SortFunc(out, compare)
	return out, again
}

// sooner is the shorter one of two times to wait; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// renamed reports whether a node has another key or address in the mesh. Of two nodes with one key the older object
// counts, so an object does not take another key. It may get a pin that it has not had: a node of an older version has
// none.
func renamed(have, want v1alpha1.ClusterNodeSpec) bool {
	return have.Pin != "" && want.Pin != "" && have.Pin != want.Pin ||
		have.PublicKey != want.PublicKey || have.Overlay6 != want.Overlay6 || have.Overlay4 != want.Overlay4
}

// room is how many ClusterNodes a cluster may still create at its host.
func room(cluster string, there linked) int {
	out := trouble.MostNodes
	for _, n := range there.nodes {
		if n.Spec.ClusterName == cluster {
			out--
		}
	}
	return out
}

// status is that of a node, and whether it is due for the time alone.
func (by telling) status(name string, ready bool, have objects.ClusterNodeStatus, every time.Duration,
	now time.Time) (out objects.ClusterNodeStatus, due bool) {
	out.NodeStatus = objects.NodeNotReady
	heard := by.heard[name]
	if t := have.LastHeard; t != nil && t.After(heard) {
		heard = t.Time
	}
	if heard.After(now.Add(every)) { // the clock was wrong then, or is now
		heard = time.Time{}
	}
	if ready {
		out.NodeStatus = objects.NodeReady
		if due = now.Sub(heard) >= every; due {
			heard = now
		}
	}
	if !heard.IsZero() {
		out.LastHeard = &metav1.Time{Time: heard.Truncate(time.Second)}
	}
	if by.health != nil {
		by.health[name].into(&out, have.Conditions, by.engine, now)
		return out, due
	}
	out.Engine, out.EngineReason, out.Tunnels, out.Conditions = have.Engine, have.EngineReason, have.Tunnels,
		have.Conditions
	return out, due
}

// heardEvery is how often it is said that a node is heard: all of them together once in a second at most, since every
// node of every cluster gets to know.
func heardEvery(nodes int) time.Duration {
	return max(time.Minute, time.Duration(nodes)*time.Second)
}

// compare has clusters changed before nodes, and what goes last.
func compare(a, b change) int {
	if gone := (a.remove != "") != (b.remove != ""); gone {
		if a.remove != "" {
			return 1
		}
		return -1
	}
	if c := strings.Compare(a.kind, b.kind); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

// clusterStatus is what the status of the cluster has to be changed to.
//
//	around: what is wrong around it
func clusterStatus(s share.Shared, around verdicts, have *objects.Cluster, now time.Time) (change, bool) {
	ready := trouble.Verdict{Status: trouble.No, Reason: s.Reason, Message: s.Message}
	if s.Ready {
		ready.Status = trouble.Yes
	}
	want := objects.ClusterStatus{ObservedGeneration: have.Generation,
		Conditions: around.with(objects.ConditionReady, ready).conditions(have, now),
		PodCIDRs:   learnedRanges(s.Pods), ServiceCIDRs: learnedRanges(s.Services), Gateways: s.Gateways}
	return change{kind: v1alpha1.KindCluster, name: have.Name, status: want},
		!equality.Semantic.DeepEqual(owned(have), want)
}

func learnedRanges(in []share.Range) (out []objects.LearnedRange) {
	for _, r := range in {
		out = append(out, objects.LearnedRange{CIDR: v1alpha1.Range(r.Prefix.String()), Source: cut(r.From, mostSource)})
	}
	return inOrder(out)
}

// mostSource bounds where a range was learned, as the API server does.
const mostSource = 320

func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

// inOrder sorts without a change of what is given: a list of the API server has an order of its own.
func inOrder(in []objects.LearnedRange) []objects.LearnedRange {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b objects.LearnedRange) int { return strings.Compare(string(a.CIDR), string(b.CIDR)) })
	return out
}

// facts are those of the own cluster by which it is decided what it states.
func facts(nodes map[string]node, members map[string]v1alpha1.MemberObjectSpec, known learn.Result) (out share.Facts) {
	for _, n := range nodes {
		n.Pods = known.Nodes[n.Name]
		out.Nodes = append(out.Nodes, n.Node)
	}
	out.Members = make(map[string]v1alpha1.MemberSpec, len(members))
	for name, m := range members {
		out.Members[name] = m.MemberSpec
	}
	for _, r := range known.Ranges.Pods {
		out.Pods = append(out.Pods, share.Range{Prefix: r.Prefix, From: r.From})
	}
	for _, r := range known.Ranges.Services {
		out.Services = append(out.Services, share.Range{Prefix: r.Prefix, From: r.From})
	}
	for _, p := range known.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	return out
}
