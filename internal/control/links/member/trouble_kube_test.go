// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

func bareOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// says waits until a condition of a Cluster has a status with a reason, and words in its message; nothing: it is gone.
func (x *api) says(t *testing.T, name, kind, want, words string) {
	t.Helper()
	eventually(t, name+" says "+kind+" "+want, func() string {
		var c objects.Cluster
		if err := x.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
			return err.Error()
		}
		is := meta.FindStatusCondition(c.Status.Conditions, kind)
		if is == nil && want == "" || is != nil && fmt.Sprint(is.Status, " ", is.Reason) == want &&
			strings.Contains(is.Message, words) {
			return ""
		}
		return fmt.Sprintf("%+v", is)
	})
}

func (f *federation) clockWrong(t *testing.T) {
	f.host.says(t, "a", objects.ConditionClockRight, "True InTime", "differ by less than 30s")
	f.a.ahead.Store(int64(time.Hour))
	f.host.says(t, "a", objects.ConditionClockRight, "False ClockAhead", "about 1h0m0s ahead")
	f.b.says(t, "a", objects.ConditionClockRight, "False ClockAhead", "NTP")
	f.a.ahead.Store(-int64(time.Hour))
	f.host.says(t, "a", objects.ConditionClockRight, "False ClockBehind", "about 1h0m0s behind")
	f.a.ahead.Store(0)
	f.host.says(t, "a", objects.ConditionClockRight, "True InTime", "")
	eventually(t, "nodes are heard now", func() string {
		var all objects.ClusterNodeList
		if err := f.host.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, n := range all.Items {
			if at := n.Status.LastHeard; at == nil || time.Since(at.Time).Abs() > 10*time.Minute {
				return fmt.Sprint(n.Name, " was heard at ", at)
			}
			if got := n.Annotations[objects.AnnotationVersion]; got != "v1.2.0" {
				t.Errorf("%s is written by version %q", n.Name, got)
			}
		}
		return ""
	})
}

// forget removes definitions, and gives them back as they can be created again.
func (x *api) forget(t *testing.T, names ...string) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, name := range names {
		u := x.definition(t, name)
		x.remove(t, bareOf(u.GroupVersionKind()), u.GetName())
		x.lost(t, u)
		out = append(out, u)
	}
	return out
}

// definition is that of a kind, as it can be created again.
func (x *api) definition(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	u := bareOf(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := x.Get(t.Context(), client.ObjectKey{Name: name + ".tombolo.dev"}, u); err != nil {
		t.Fatal(err)
	}
	back := bareOf(u.GroupVersionKind())
	back.SetName(u.GetName())
	back.Object["spec"] = u.Object["spec"]
	return back
}

// lost waits until a definition is gone.
func (x *api) lost(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	eventually(t, u.GetName()+" is gone", func() string {
		if err := x.Get(t.Context(), client.ObjectKeyFromObject(u), bareOf(u.GroupVersionKind())); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
}

func (x *api) recall(t *testing.T, definitions []*unstructured.Unstructured) {
	t.Helper()
	for _, u := range definitions {
		if err := x.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the kinds are served", func() string {
		if err := x.serves(t); err != nil {
			return err.Error()
		}
		return ""
	})
}

// told waits for an event about the Lease of a controller.
func (x *api) told(t *testing.T, words string) {
	t.Helper()
	eventually(t, x.name+" has an event", func() string {
		var all corev1.EventList
		if err := x.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		var notes []string
		for _, e := range all.Items {
			if e.Reason == objects.ReasonKindsMissing && e.InvolvedObject.Kind == "Lease" && strings.Contains(e.Message, words) {
				return ""
			}
			notes = append(notes, e.Reason+" "+e.Message)
		}
		return fmt.Sprintf("%q", notes)
	})
}

// TestMissingKinds: controllers wait for kinds and say which are missing, and go on by themselves.
func TestMissingKinds(t *testing.T) {
	all := start(t, "host", "a", "b")
	f := &federation{all[0], all[1], all[2], &logged{}}
	defer func() {
		if t.Failed() {
			t.Log(f.log)
		}
	}()
	f.b.create(t, "{apiVersion: tombolo.dev/v1alpha1, kind: Cluster, spec: {}, metadata: {name: b, "+
		"labels: {app.kubernetes.io/managed-by: tombolo}}}") // of an earlier run
	there := f.host.forget(t, "clusters", "clusternodes", "nodeconfigs")
	here := f.a.forget(t, "clusternodes", "members")
	f.host.create(t, hostRights)
	for i, x := range []*api{f.a, f.b} {
		x.control(t, controlconf.Links{Cluster: x.name, HostKubeconfig: f.host.credentials(t, x.name), Gateways: 1}, f.log)
		if x == f.b {
			x.node(t, "b1", "10.2.1.0/24", "198.51.100.11", byte(4+i))
		}
	}
	const lacks = "lacks the CustomResourceDefinition "
	f.b.says(t, "b", objects.ConditionHostReached, "False KindsMissing", "the host cluster "+lacks+"clusters.tombolo.dev; "+
		"apply there what 'tombolo controller manifest' prints")
	f.b.told(t, "the host cluster "+lacks+"clusters.tombolo.dev")
	f.a.told(t, "the cluster a "+lacks+"clusternodes.tombolo.dev, members.tombolo.dev; apply there what 'tombolo controller "+
		"manifest' and 'tombolo discovery manifest' prints")

	f.host.recall(t, there)
	f.host.create(t, linkedClusters)
	f.host.says(t, "b", objects.ConditionReady, "True InForce", "")
	f.b.says(t, "b", objects.ConditionHostReached, "", "")
	f.host.says(t, "a", objects.ConditionReady, "False KindsMissing", "the cluster a "+lacks+"clusternodes.tombolo.dev")

	f.a.recall(t, here)
	f.a.node(t, "a1", "10.1.1.0/24", "198.51.100.1", 4)
	f.host.says(t, "a", objects.ConditionReady, "True InForce", "")
	f.has(t, "all nodes are everywhere", "a.a1 Ready gateway, b.b1 Ready", f.host, f.a, f.b)
}
