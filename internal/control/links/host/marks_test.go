// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
)

// TestMarks: what a verdict marks is written once, on the nodes of that cluster, and is not longer than an annotation
// may be that a member's object has.
func TestMarks(t *testing.T) {
	node := func(cluster, name, mark string) objects.ClusterNode {
		n := came(cluster+"."+name, "7", "")
		n.Spec.ClusterName, n.Spec.NodeName = cluster, name
		if mark != "" {
			n.Annotations = map[string]string{objects.AnnotationDoubled: mark}
		}
		return n
	}
	clusters := []objects.Cluster{object("a"), object("b")}
	verdicts := []accept.Verdict{{}, {Mark: map[string]string{"m": "it lost", "n": "it lost again", "o": strings.Repeat("x", 999)}}}
	nodes := []objects.ClusterNode{node("a", "m", ""), node("b", "m", ""), node("b", "n", "it lost"), node("b", "o", ""),
		node("c", "m", "")}
	var wrote []string
	x := newOrders(func(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
		data, err := p.Data(o)
		wrote = append(wrote, o.GetName()+" "+string(data))
		return err
	})
	all := marks(inputs(clusters, nil), verdicts, nodes)
	if changed, err := x.annotate(t.Context(), all); changed || err != nil || len(wrote) != 2 {
		t.Fatal(changed, err, wrote)
	}
	const want = `b.m {"metadata":{"annotations":{"tombolo.dev/doubled":"it lost"},"resourceVersion":"7","uid":"u-b.m"}}`
	if wrote[0] != want || len(all[1].value) > mostMark || all[1].node.Name != "b.o" {
		t.Errorf("%q", wrote)
	}
	nodes, verdicts[1].Mark = nil, map[string]string{}
	for i := range mostNoted + 1 {
		name := fmt.Sprint("n", i)
		nodes, verdicts[1].Mark[name] = append(nodes, node("b", name, "")), "it lost"
	}
	if n := len(marks(inputs(clusters, nil), verdicts, nodes)); n != mostNoted {
		t.Errorf("%d in one pass", n)
	}
	was, is := node("b", "m", ""), node("b", "m", "it lost")
	if same(&was, &is) || !slices.Equal([]string{inputs(clusters, []objects.ClusterNode{is})[1].Nodes[0].Marked}, []string{"it lost"}) {
		t.Error("a mark is not read")
	}
}

// TestMarksOfNobody: a node whose Cluster is gone, or has not come yet, is marked if it claims what is another one's, and
// keeps nothing from anybody.
func TestMarksOfNobody(t *testing.T) {
	a, c := object("a"), object("c")
	a.Status.PodCIDRs = []objects.LearnedRange{{CIDR: "10.1.0.0/16"}}
	c.Status.PodCIDRs = []objects.LearnedRange{{CIDR: "10.2.0.0/16"}}
	node := func(cluster, order, pods string) objects.ClusterNode {
		n := came(cluster+".m", "7", order)
		n.Spec.ClusterName, n.Spec.NodeName, n.Spec.Overlay6, n.Spec.PodCIDRs = cluster, "m", "fd00::1", []string{pods}
		return n
	}
	nodes := []objects.ClusterNode{node("a", "1", "10.1.1.0/24"), node("b", "2", "10.2.0.0/16")}
	in := inputs([]objects.Cluster{a, c}, nodes)
	verdicts := accept.Decide(in)
	if all := marks(in, verdicts, nodes); len(all) != 1 || all[0].node.Name != "b.m" {
		t.Errorf("marked: %+v", all)
	}
	if !verdicts[0].Accepted || !verdicts[1].Accepted || verdicts[2].Accepted || len(verdicts[0].Warnings)+len(verdicts[1].Warnings) > 0 {
		t.Errorf("%+v", verdicts)
	}
}
