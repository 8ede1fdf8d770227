// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
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
	f.judged(t, "a", "b")
	backup := f.host.kubectl(t, "", "get", "clusters.tombolo.dev,clusternodes", "-o", "yaml")
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

	f.restored(t, backup)
	f.has(t, "all nodes are everywhere again", whole, f.host, f.a, f.b)
	for x := range before {
		x.says(t, x.name, objects.ConditionHostReached, "", "")
	}
}

// restored restores the host cluster as docs/howto/link-clusters.md says, while its controller does not run. Members
// reach it all the time, and nothing is cut at them, in whatever order objects come.
func (f *federation) restored(t *testing.T, backup string) {
	t.Helper()
	ended := []func(){f.a.uncut(t), f.b.uncut(t)}
	if _, said, err := f.host.runs(t, backup, "create", "-f", "-"); err != nil && !onlyNodesExist(said) {
		t.Fatalf("kubectl create: %v\n%s", err, said)
	}
	f.host.kubectl(t, "", "delete", "clusters.tombolo.dev", "b") // it comes later
	f.host.kubectl(t, "", "delete", "clusternodes", "--all")
	f.host.says(t, "a", objects.ConditionReady, "True InForce", "")
	f.has(t, "the first one states its nodes", "a.a1 Ready gateway", f.host)
	_, said := f.host.fails(t, backup, "create", "-f", "-")
	if n := strings.Count(said, "AlreadyExists"); n != 2 && n != 3 { // the last is b's node, if b was faster again
		t.Errorf("kubectl create says %s", said)
	}
	f.host.says(t, "b", objects.ConditionReady, "True InForce", "")
	for _, x := range []*api{f.a, f.b} { // it has no judgement yet, so all is as it was
		x.says(t, x.name, objects.ConditionHostReached, "False HostUnlinked", "")
	}
	f.judged(t, "a", "b")
	for _, end := range ended {
		end()
	}
}

// onlyNodesExist: nothing was wrong but that members had stated their nodes before kubectl did.
func onlyNodesExist(said string) bool {
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "AlreadyExists") || !strings.Contains(line, "clusternodes.tombolo.dev") {
			return false
		}
	}
	return true
}

// judged has the host cluster accept clusters as its controller does, and waits until the members know of it.
func (f *federation) judged(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		var accepted []string
		of := f.cluster(t, f.host, name)
		for _, r := range slices.Concat(of.Status.PodCIDRs, of.Status.ServiceCIDRs) {
			accepted = append(accepted, string(r.CIDR))
		}
		u := bareOf(objects.GroupVersion().WithKind(v1alpha1.KindCluster))
		u.SetName(name)
		if err := put(u, "status", map[string]any{"accepted": accepted, "conditions": []metav1.Condition{{
			Type: objects.ConditionRangesAccepted, Status: metav1.ConditionTrue, Reason: objects.ReasonDistinct,
			LastTransitionTime: metav1.Now()}}}); err != nil {
			t.Fatal(err)
		}
		if err := f.host.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u),
			client.FieldOwner("tombolo-host"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		made := createdAt(f.cluster(t, f.host, name))[objects.AnnotationCreated]
		for _, x := range []*api{f.a, f.b} {
			x.says(t, name, objects.ConditionRangesAccepted, "True Distinct", "")
			eventually(t, name+" is copied to "+x.name, func() string {
				if is := f.cluster(t, x, name).Annotations[objects.AnnotationCreated]; is != made {
					return fmt.Sprintf("it has that of %s, not of %s", is, made)
				}
				return ""
			})
		}
	}
}

// uncut follows what a cluster has until end is called: no object of it goes, and no Cluster is without what was
// accepted for it.
func (x *api) uncut(t *testing.T) (end func()) {
	t.Helper()
	c, err := client.NewWithWatch(x.config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, list := range []client.ObjectList{&objects.ClusterList{}, &objects.ClusterNodeList{}} {
		w, err := c.Watch(ctx, list)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for e := range w.ResultChan() {
				o, ok := e.Object.(*objects.Cluster)
				if e.Type == watch.Deleted {
					t.Errorf("%s: %+v is removed", x.name, e.Object)
				} else if ok && (len(o.Status.Accepted) != 2 ||
					!meta.IsStatusConditionTrue(o.Status.Conditions, objects.ConditionRangesAccepted)) {
					t.Errorf("%s: %s is cut: %+v", x.name, o.Name, o.Status)
				}
			}
		})
	}
	return func() { stop(); all.Wait() }
}

// kubectl runs it as an administrator.
func (x *api) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, said, err := x.runs(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return out
}

// fails runs kubectl, which has to say that something failed.
func (x *api) fails(t *testing.T, stdin string, args ...string) (out, said string) {
	t.Helper()
	out, said, err := x.runs(t, stdin, args...)
	if err == nil {
		t.Errorf("kubectl %s works", strings.Join(args, " "))
	}
	return out, said
}

func (x *api) runs(t *testing.T, stdin string, args ...string) (out, said string, err error) {
	t.Helper()
	user, err := x.plane.AddUser(envtest.User{Name: "kubectl", Groups: []string{"system:masters"}}, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	kubectl.Path = filepath.Join(binaries(t), "kubectl")
	cmd := exec.CommandContext(t.Context(), kubectl.Path, append(kubectl.Opts, args...)...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
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
