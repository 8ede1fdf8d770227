// SPDX-License-Identifier: Apache-2.0

//go:build kube

package member

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// plans writes the NodeConfig of a node, whose tunnels are words PEER=STATE.
func (x *api) plans(t *testing.T, name, cidr string, tunnels ...string) {
	t.Helper()
	var o objects.NodeConfig
	err := x.Get(t.Context(), client.ObjectKey{Name: name}, &o)
	o.Name = name
	o.Spec.Routes = []v1alpha1.PlannedRoute{{CIDR: v1alpha1.Range(cidr), Interface: "tombolo0", Table: 180}}
	if apierrors.IsNotFound(err) {
		err = x.Create(t.Context(), &o)
	} else if err == nil {
		err = x.Update(t.Context(), &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Status = nodeConfig(name, "", tunnels...).Status
	o.Status.AppliedGeneration = o.Generation
	if err := x.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
}

// reported says what a cluster has of what a node reports: the NodeConfig, and what the ClusterNode says of tunnels.
func (x *api) reported(t *testing.T, name string) string {
	t.Helper()
	var out []string
	var c objects.NodeConfig
	err := x.Get(t.Context(), client.ObjectKey{Name: name}, &c)
	switch {
	case apierrors.IsNotFound(err):
		out = append(out, "nothing")
	case err != nil:
		t.Fatal(err)
	default:
		for _, r := range c.Spec.Routes {
			out = append(out, string(r.CIDR))
		}
		for _, u := range c.Status.Tunnels {
			out = append(out, u.Peer+" "+u.State)
		}
		if c.Status.AppliedGeneration != c.Generation {
			out = append(out, fmt.Sprintf("applied %d of %d", c.Status.AppliedGeneration, c.Generation))
		}
	}
	var n objects.ClusterNode
	if err := x.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		t.Fatal(err)
	}
	out = append(out, "node "+n.Status.Tunnels)
	if c := meta.FindStatusCondition(n.Status.Conditions, objects.ConditionTunnelsUp); c != nil {
		out = append(out, fmt.Sprint(c.Status, " ", c.Reason))
	}
	return strings.TrimSpace(strings.Join(out, ", "))
}

func (f *federation) hears(t *testing.T, what, want string, where ...*api) time.Duration {
	t.Helper()
	return eventually(t, what, func() string {
		for _, x := range where {
			if got := x.reported(t, "b.b1"); got != want {
				return fmt.Sprintf("%s has %q, want %q", x.name, got, want)
			}
		}
		return ""
	})
}

// nodesReport: what a node reports is at the host cluster, and its ClusterNode says how its tunnels are.
func (f *federation) nodesReport(t *testing.T) {
	f.hears(t, "no node has reported", "nothing, node", f.host, f.b)
	f.b.plans(t, "b.gone", "10.9.0.0/16") // no node of b
	f.b.plans(t, "b.b1", "10.1.0.0/16", "a.a1=up", "a.a2=down")
	took := f.hears(t, "a tunnel is down", "10.1.0.0/16, a.a1 up, a.a2 down, node 1/2, False TunnelDown", f.host, f.b)
	t.Attr("figure", fmt.Sprintf("what a node reports is at the host cluster after %v", took.Round(time.Millisecond)))
	var copied objects.NodeConfig
	if err := f.host.Get(t.Context(), client.ObjectKey{Name: "b.b1"}, &copied); err != nil {
		t.Fatal(err)
	}
	var node objects.ClusterNode
	if err := f.host.Get(t.Context(), client.ObjectKey{Name: "b.b1"}, &node); err != nil {
		t.Fatal(err)
	}
	if o := copied.OwnerReferences; len(o) != 1 || o[0].UID != node.UID || copied.Labels[labelManagedBy] != managedBy {
		t.Errorf("the copy has the owner %+v and the labels %v", o, copied.Labels)
	}
	if node.Status.Engine != "wireguard" || node.Status.EngineReason == "" {
		t.Errorf("%+v", node.Status)
	}
	f.b.plans(t, "b.b1", "10.7.0.0/16", "a.a1=up", "a.a2=up")
	f.hears(t, "it is up", "10.7.0.0/16, a.a1 up, a.a2 up, node 2/2, True InForce", f.host, f.b)
	var all objects.NodeConfigList
	if err := f.host.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("the host cluster has %d NodeConfigs, %v", len(all.Items), err)
	}
	f.quiet(t)
	f.b.remove(t, &objects.NodeConfig{}, "b.b1")
	f.hears(t, "its NodeConfig is removed", "nothing, node", f.host, f.b)
	f.b.remove(t, &objects.NodeConfig{}, "b.gone")
}

// gatewayCutOff: the role of a gateway that reports no tunnel through which packets pass moves, and stays where it is.
func (f *federation) gatewayCutOff(t *testing.T) {
	gateway := f.cluster(t, f.host, "a").Status.Gateways[0]
	other := map[string]string{"a1": "a2", "a2": "a1"}[gateway]
	is := func(what, want string) {
		t.Helper()
		states := strings.Replace("a.a1 Ready, a.a2 Ready, b.b1 Ready", want+" Ready", want+" Ready gateway", 1)
		f.has(t, what, states, f.host, f.a, f.b)
	}
	f.a.plans(t, "a."+gateway, "10.2.0.0/16", "b.b1=down")
	eventually(t, "it is known", func() string {
		var n objects.ClusterNode
		if err := f.host.Get(t.Context(), client.ObjectKey{Name: "a." + gateway}, &n); err != nil || n.Status.Tunnels != "0/1" {
			return fmt.Sprintf("%+v, %v", n.Status, err)
		}
		return ""
	})
	is("not at once", gateway)
	f.a.ahead.Store(int64(share.Patience)) // less than what is a wrong clock
	defer f.a.ahead.Store(0)
	f.a.plans(t, "a."+gateway, "10.2.0.0/16", "b.b1=down", "b.b2=down")
	is("it moves", other)
	f.a.plans(t, "a."+gateway, "10.2.0.0/16")
	f.a.plans(t, "a."+other, "10.2.0.0/16", "b.b1=up")
	eventually(t, "the other one reports", func() string {
		var n objects.ClusterNode
		if err := f.host.Get(t.Context(), client.ObjectKey{Name: "a." + other}, &n); err != nil || n.Status.Tunnels != "1/1" {
			return fmt.Sprintf("%+v, %v", n.Status, err)
		}
		return ""
	})
	is("and stays", other)
	for _, node := range []string{gateway, other} {
		f.a.remove(t, &objects.NodeConfig{}, "a."+node)
	}
	for _, node := range []string{gateway, other} {
		eventually(t, "the reports are gone", func() string {
			var n objects.ClusterNode
			if err := f.host.Get(t.Context(), client.ObjectKey{Name: "a." + node}, &n); err != nil || n.Status.Tunnels != "" {
				return fmt.Sprintf("%+v, %v", n.Status, err)
			}
			return ""
		})
	}
}
