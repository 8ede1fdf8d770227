// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

// await waits until a packet passes through a tunnel, or there is nothing more to wait for.
func await(ctx context.Context, here, host *place, o invite.JoinOrder, tell *teller) error {
	var step invite.Step
	ok, err := until(ctx, o.Wait, func(ctx context.Context) (bool, error) {
		s, err := seen(ctx, here, host, o)
		if err != nil {
			return false, err
		}
		if step = invite.Next(s); step.Done || step.Refused {
			return true, nil
		}
		tell.waits(step.Text)
		return false, nil
	})
	tell.took()
	switch {
	case err != nil:
		return err
	case step.Refused:
		return fault.Newf(fault.CodeLinkRefused, "%s", step.Text).Hint("%s", step.Next)
	case !ok:
		return fault.Newf(fault.CodeLinkPending, "the cluster has joined, and is not linked after %s", o.Wait).
			Whyf("%s", step.Text).Hint("%s", step.Next)
	}
	tell.say("%s", step.Text)
	return nil
}

// seen reads what a new link waits for.
func seen(ctx context.Context, here, host *place, o invite.JoinOrder) (out invite.Seen, err error) {
	out.Cluster, out.Space = o.Cluster, o.Namespace
	var clusters objects.ClusterList
	var nodes objects.ClusterNodeList
	for _, l := range []client.ObjectList{&clusters, &nodes} {
		if err := host.List(ctx, l); err != nil {
			return out, failed("read what the host cluster has", err)
		}
	}
	accepted := map[string]bool{}
	for _, c := range clusters.Items {
		is := meta.FindStatusCondition(c.Status.Conditions, objects.ConditionRangesAccepted)
		accepted[c.Name] = is != nil && is.Status == "True"
		if c.Name != o.Cluster {
			continue
		}
		out.Heard = c.Status.ObservedGeneration == c.Generation
		if is != nil && is.ObservedGeneration == c.Generation {
			out.Accepted, out.Why = string(is.Status), is.Message
		}
	}
	others := map[string]bool{}
	for _, n := range nodes.Items {
		switch of := n.Spec.ClusterName; {
		case v1alpha1.IsPlaceholder(n.Spec):
		case of == o.Cluster:
			out.Nodes++
			out.Tunnels = append(out.Tunnels, n.Status.Tunnels)
		case accepted[of]:
			others[of] = true
		}
	}
	out.Others = len(others)
	if !o.Mesh {
		return out, nil
	}
	set := made(apps("DaemonSet"), o.Namespace, mesh, nil)
	if err := here.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
		return out, failed("read "+name(set), err)
	}
	ready, _, _ := unstructured.NestedInt64(set.Object, "status", "numberReady")
	all, _, _ := unstructured.NestedInt64(set.Object, "status", "desiredNumberScheduled")
	out.Mesh = invite.Count{Up: int(ready), Of: int(all)}
	return out, nil
}
