// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

// uids are those of all objects of linked clusters: one that was removed and made again has another one.
func (x *api) uids(t *testing.T) (out []string) {
	t.Helper()
	all, err := readLinked(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range all.clusters {
		out = append(out, fmt.Sprint(name, " ", o.UID))
	}
	for name, o := range all.nodes {
		out = append(out, fmt.Sprint(name, " ", o.UID))
	}
	slices.Sort(out)
	return out
}

// TestHostLosesItsObjects: whatever goes at the host cluster, members keep what they have, say so, and follow it again
// when it speaks for them.
func TestHostLosesItsObjects(t *testing.T) {
	all := start(t, "host", "a", "b")
	f := &federation{all[0], all[1], all[2], &logged{}}
	defer func() {
		if t.Failed() {
			t.Log(f.log)
		}
	}()
	f.host.create(t, hostRights+"---\n"+linkedClusters)
	for i, x := range []*api{f.a, f.b} {
		x.control(t, controlconf.Links{Cluster: x.name, HostKubeconfig: f.host.credentials(t, x.name), Gateways: 1}, f.log)
		x.node(t, x.name+"1", fmt.Sprintf("10.%d.1.0/24", i+1), fmt.Sprintf("198.51.100.%d", 10*i+1), byte(4+i))
	}
	const whole = "a.a1 Ready gateway, b.b1 Ready"
	f.has(t, "all nodes are everywhere", whole, f.host, f.a, f.b)
	before := map[*api][]string{f.a: f.a.uids(t), f.b: f.b.uids(t)}
	kept := func(what, want, words string) {
		t.Helper()
		for x, had := range before {
			x.says(t, x.name, objects.ConditionHostReached, want, words)
			if now := x.uids(t); !slices.Equal(now, had) {
				t.Errorf("%s: %s has %q, before %q", what, x.name, now, had)
			}
		}
	}

	f.host.held(t, "a.a1", `["test.tombolo.dev/held"]`) // its kind is about to go until it does
	kind := f.host.definition(t, "clusternodes")
	f.host.remove(t, bareOf(kind.GroupVersionKind()), kind.GetName())
	kept("a kind is about to go", "False KindsMissing", "clusternodes.tombolo.dev")
	f.host.held(t, "a.a1", `null`)
	f.host.lost(t, kind)
	back := append(f.host.forget(t, "clusters", "nodeconfigs"), kind)
	kept("the kinds are gone", "False KindsMissing", "lacks the CustomResourceDefinition")
	f.host.recall(t, back)
	kept("no Cluster is there", "False HostUnlinked", "if the host cluster has lost it: restore it there")

	f.host.create(t, linkedClusters)
	f.has(t, "all nodes are everywhere again", whole, f.host, f.a, f.b)
	for x := range before {
		x.says(t, x.name, objects.ConditionHostReached, "", "")
	}
}

// held sets the finalizers of a ClusterNode.
func (x *api) held(t *testing.T, name, finalizers string) {
	t.Helper()
	n := &objects.ClusterNode{}
	n.Name = name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
	if err := x.Patch(t.Context(), n, patch); err != nil {
		t.Fatal(err)
	}
}
