// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

func TestListed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(cluster, name, is, tunnels string, ago time.Duration) objects.ClusterNode {
		return objects.ClusterNode{Spec: v1alpha1.ClusterNodeSpec{ClusterName: cluster, NodeName: name},
			Status: objects.ClusterNodeStatus{NodeStatus: is, Tunnels: tunnels, LastHeard: &metav1.Time{Time: now.Add(-ago)}}}
	}
	c := objects.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.ClusterSpec{NetworkType: "p2p"},
		Status: objects.ClusterStatus{PodCIDRs: []objects.LearnedRange{{CIDR: "10.1.0.0/16"}},
			ServiceCIDRs: []objects.LearnedRange{{CIDR: "10.2.0.0/16"}},
			Mapped:       []objects.MappedRange{{CIDR: "10.1.0.0/16", As: "10.9.0.0/16"}},
			Conditions: []metav1.Condition{{Type: "Ready", Status: "True"},
				{Type: "RangesAccepted", Status: "False", Reason: "Overlap", Message: "east has 10.2.0.0/16"}}}}
	got := listed(c, []objects.ClusterNode{
		node("west", "a", "Ready", "2/2", time.Hour), node("west", "b", "NotReady", "1/2", 20*time.Minute),
		node("west", "c", "NotReady", "", time.Hour), node("west", "d", "NotReady", "0/2", time.Hour),
		node("west", "e", "NotReady", "", time.Hour), node("east", "z", "NotReady", "0/9", 0),
	}, now)
	if !got.Ready || got.Nodes != (invite.Count{Up: 1, Of: 5}) || got.Tunnels != (invite.Count{Up: 3, Of: 6}) ||
		!slices.Equal(got.Ranges, []string{"10.9.0.0/16", "10.2.0.0/16"}) || got.Heard != "2026-01-02T02:44:05Z" {
		t.Errorf("%+v", got)
	}
	text := strings.Join(got.Problems, "\n")
	for _, part := range []string{"RangesAccepted is False (Overlap): east has 10.2.0.0/16", "no node was heard since 20m0s ago",
		"nodes are not ready: b, c, d and 1 more", "tunnels are not up: b 1/2, d 0/2"} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}
	if got = listed(objects.Cluster{}, nil, now); len(got.Problems) != 1 || got.Ranges == nil {
		t.Errorf("%+v", got)
	}
}

func TestObjectsAreReadInOrder(t *testing.T) {
	docs, err := read("kind: DaemonSet\napiVersion: apps/v1\nmetadata: {name: a, namespace: x}\n---\n# nothing\n---\n" +
		"kind: Namespace\napiVersion: v1\nmetadata: {name: x}\n---\nkind: Secret\napiVersion: v1\nmetadata: {name: s}\n---\n" +
		"kind: Namespace\napiVersion: v1\nmetadata: {name: x, labels: {last: wins}}\n")
	if err != nil || len(docs) != 3 || docs[0].GetLabels()["last"] != "wins" || docs[1].GetKind() != "Secret" {
		t.Errorf("%v, %v", docs, err)
	}
	if text := count(docs); text != "1 Namespace, 1 Secret, 1 DaemonSet" {
		t.Error(text)
	}
	if _, err := read("kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\n"); err == nil {
		t.Error("a kind that would not be removed is taken")
	}
}

func TestWhatIsShared(t *testing.T) {
	for text, want := range map[string]bool{"v1 Namespace x": true, "v1 Secret tombolo-member": false,
		"rbac.authorization.k8s.io/v1 ClusterRole tombolo-member":              true,
		"rbac.authorization.k8s.io/v1 ClusterRole tombolo-system-tombolo-mesh": false} {
		f := strings.Fields(text)
		docs, err := read("apiVersion: " + f[0] + "\nkind: " + f[1] + "\nmetadata: {name: " + f[2] + "}\n")
		if err != nil || shared(docs[0]) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestEnding: pods of nodes that are away are not waited for.
func TestEnding(t *testing.T) {
	node := func(name, ready string) unstructured.Unstructured {
		return *made(core("Node"), "", name, map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "DiskPressure", "status": "True"}, map[string]any{"type": "Ready", "status": ready}}}})
	}
	pod := func(at string) unstructured.Unstructured {
		return *made(core("Pod"), "x", "pod-"+at, map[string]any{"spec": map[string]any{"nodeName": at}})
	}
	nodes := []unstructured.Unstructured{node("a", "True"), node("b", "Unknown")}
	for _, c := range []struct {
		what string
		at   []string
		left int
		away string
	}{
		{"none", nil, 0, ""}, {"a node that is ready", []string{"a"}, 1, ""}, {"one that is not", []string{"b"}, 0, "b"},
		{"one that was removed", []string{"gone"}, 0, "gone"}, {"no node yet", []string{""}, 1, ""},
		{"all of them", []string{"gone", "b", "a", "b", "a", ""}, 3, "b gone"},
		{"many", []string{"1", "2", "3", "4", "5", "6"}, 0, "1 2 3 4 5"},
	} {
		var pods []unstructured.Unstructured
		for _, at := range c.at {
			pods = append(pods, pod(at))
		}
		if left, away := ending(pods, nodes); left != c.left || strings.Join(away, " ") != c.away {
			t.Errorf("%s: %d pods, not waited for at %v", c.what, left, away)
		}
	}
}
