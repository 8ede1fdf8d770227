// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/invite"
	"github.com/tombolo-io/tombolo/internal/link/pools"
)

// unjoin has a cluster be no longer linked, on one side or on both: first at the member, whose nodes take their routes
// away, then at the host.
func unjoin(ctx context.Context, at *place, o invite.UnjoinOrder, tell *teller) error {
	host := at
	switch {
	case !o.Host:
		if err := leave(ctx, at, o, tell); err != nil {
			return err
		}
		if o.HostFiles == "" {
			tell.say("at the host cluster its Cluster and account are left: tombolo link unjoin %s --host", o.Cluster)
			return nil
		}
		var err error
		if host, err = fromFiles(o.HostFiles, ""); err != nil {
			return err
		}
	case o.HostFiles != "":
		return fault.New(fault.CodeUsage, "--host and --host-kubeconfig mean the same").Hint("leave one of them out")
	}
	return forget(ctx, host, o, tell)
}

// leave removes what a join has made in a member.
func leave(ctx context.Context, here *place, o invite.UnjoinOrder, tell *teller) error {
	account, err := here.account(ctx, o.Namespace, o.Cluster)
	if err != nil {
		return err
	}
	var ours []unstructured.Unstructured
	for _, kind := range kinds() {
		list, err := here.every(ctx, kind, client.MatchingLabels{label: o.Cluster})
		if err != nil {
			return err
		}
		for _, u := range list {
			u.SetGroupVersionKind(kind)
			ours = append(ours, u)
		}
	}
	ours = slices.DeleteFunc(ours, func(u unstructured.Unstructured) bool { // the host cluster's, where it is a member too
		return u.GetNamespace() == accounts || u.GetNamespace() == joins || strings.HasPrefix(u.GetName(), once) ||
			u.GetName() == "tombolo-link-member-"+o.Cluster
	})
	if len(ours) == 0 {
		return fault.Newf(fault.CodeNotFound, "this cluster has not joined as %q", o.Cluster).
			Hint("kubectl get secret -A -l %s shows as what; at the host cluster give --host", label)
	}
	meshed, err := here.stop(ctx, ours, o, tell)
	if err != nil {
		return err
	}
	withdraw(ctx, account, o, tell)
	if err := here.copies(ctx, o.Cluster); err != nil {
		return err
	}
	extra := []*unstructured.Unstructured{made(core("Secret"), o.Namespace, controller+"-webhooks", nil),
		made(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, o.Namespace, controller,
			nil)}
	for _, u := range extra { // which the controller itself has made
		if err := here.remove(ctx, u); err != nil {
			return err
		}
	}
	removed := 0
	for _, u := range slices.Backward(ours) {
		why, err := here.used(ctx, u, meshed)
		if err != nil {
			return err
		}
		if why != "" {
			tell.say("%s stays: %s", name(&u), why)
			if err := here.disown(ctx, u); err != nil {
				return err
			}
			continue
		}
		if err := here.remove(ctx, &u); err != nil {
			return err
		}
		removed++
	}
	tell.say("removed here: %d objects", removed)
	return nil
}

// stop ends the pods, and waits until they are gone: what the mesh has in the kernel of nodes goes with them. It
// reports whether there was a mesh.
func (p *place) stop(ctx context.Context, ours []unstructured.Unstructured, o invite.UnjoinOrder, tell *teller) (
	meshed bool, err error) {
	for _, u := range slices.Backward(ours) {
		if u.GetKind() != "DaemonSet" && u.GetKind() != "Deployment" {
			continue
		}
		meshed = meshed || u.GetKind() == "DaemonSet"
		if err := p.remove(ctx, &u); err != nil {
			return meshed, err
		}
		labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
		left, away := 0, []string(nil)
		ok, err := until(ctx, o.Wait, func(ctx context.Context) (bool, error) {
			pods, err := p.every(ctx, core("Pod"), client.InNamespace(u.GetNamespace()), client.MatchingLabels(labels))
			if err != nil {
				return false, err
			}
			nodes, err := p.every(ctx, core("Node"))
			left, away = ending(pods, nodes)
			if left > 0 {
				tell.waits("waiting for pods of " + name(&u) + " to end")
			}
			return left == 0, err
		})
		tell.took()
		if err == nil && !ok {
			err = fault.Newf(fault.CodeLinkPending, "%d pods of %s have not ended after %s", left, name(&u), o.Wait).
				Hint("see them with kubectl -n %s get pods -o wide, and run this again", u.GetNamespace())
		}
		if err != nil {
			return meshed, err
		}
		if len(away) > 0 {
			tell.say("not waited for: pods of %s at %s, which are not ready. What those nodes have stays until they are back, "+
				"and end the pods, or are started anew", name(&u), strings.Join(away, ", "))
		}
	}
	return meshed, nil
}

// ending counts the pods that are still to end. Those of nodes that are not ready or not there any more are not: nobody
// ends them. It names these nodes, five at most.
func ending(pods, nodes []unstructured.Unstructured) (left int, away []string) {
	ready := map[string]bool{}
	for _, n := range nodes {
		conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
		ready[n.GetName()] = slices.ContainsFunc(conditions, func(c any) bool {
			fields, _ := c.(map[string]any)
			return fields["type"] == "Ready" && fields["status"] == "True"
		})
	}
	for _, pod := range pods {
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		switch {
		case node == "" || ready[node]:
			left++
		case len(away) < 5 && !slices.Contains(away, node):
			away = append(away, node)
		}
	}
	slices.Sort(away)
	return left, away
}

// withdraw removes the nodes of a member at the host cluster with the member's own account. It is done as well as it
// can be: the host cluster may be away.
func withdraw(ctx context.Context, account []byte, o invite.UnjoinOrder, tell *teller) {
	if account == nil || o.HostFiles != "" {
		return
	}
	host, err := fromText(account, "")
	if err == nil {
		err = host.nodes(ctx, o.Cluster, false)
	}
	if err != nil {
		tell.say("the nodes of this cluster are left at the host cluster: %s", fault.From(err).Error())
	}
}

// nodes removes the ClusterNodes and NodeConfigs of a cluster. A member's account lists no NodeConfigs: those of the
// ClusterNodes are removed.
func (p *place) nodes(ctx context.Context, cluster string, all bool) error {
	listed := []string{v1alpha1.KindClusterNode}
	if all {
		listed = append(listed, v1alpha1.KindNodeConfig)
	}
	names := map[string]bool{}
	for _, kind := range listed {
		list, err := p.every(ctx, links(kind))
		if err != nil {
			return err
		}
		for _, u := range list {
			names[u.GetName()] = strings.HasPrefix(u.GetName(), cluster+".")
		}
	}
	for object, own := range names {
		for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNode} {
			if !own {
				continue
			}
			if err := p.remove(ctx, made(links(kind), "", object, nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// copies removes what the controller has made of other clusters here, and what nodes report.
func (p *place) copies(ctx context.Context, cluster string) error {
	for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNode, v1alpha1.KindCluster} {
		list, err := p.every(ctx, links(kind))
		if err != nil {
			return err
		}
		for _, u := range list {
			report := kind == v1alpha1.KindNodeConfig && strings.HasPrefix(u.GetName(), cluster+".")
			if !report && u.GetLabels()["app.kubernetes.io/managed-by"] != "tombolo" {
				continue
			}
			u.SetGroupVersionKind(links(kind))
			if err := p.remove(ctx, &u); err != nil {
				return err
			}
		}
	}
	return p.pools(ctx)
}

// pools removes what Calico was told of the ranges of other clusters, and no pool of somebody else.
func (p *place) pools(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"},
		{Group: "projectcalico.org", Version: "v3", Kind: "IPPool"}} {
		list, err := p.every(ctx, kind, client.MatchingLabels{"app.kubernetes.io/managed-by": pools.ManagedBy})
		if err != nil {
			return err
		}
		for _, u := range list {
			cidr, _, _ := unstructured.NestedString(u.Object, "spec", "cidr")
			if pool := (pools.Pool{Name: u.GetName(), CIDR: cidr, ManagedBy: pools.ManagedBy}); !pool.Ours() {
				continue
			}
			u.SetGroupVersionKind(kind)
			if err := p.remove(ctx, &u); err != nil {
				return err
			}
		}
	}
	return nil
}

// used says why an object is kept: a kind that has objects of others, and a namespace with something else in it.
func (p *place) used(ctx context.Context, u unstructured.Unstructured, meshed bool) (string, error) {
	switch u.GetKind() {
	case kindDefinition:
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		if kind == "Member" && meshed { // they were those of the mesh that has ended
			return "", nil
		}
		list, err := p.every(ctx, schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind})
		if err != nil || len(list) == 0 {
			return "", err
		}
		return fmt.Sprintf("there are objects of it, such as %s", name(&list[0])), nil
	case "Namespace":
		return p.inhabited(ctx, u.GetName())
	}
	return "", nil
}

// inhabited names something in a namespace that a join has not made.
func (p *place) inhabited(ctx context.Context, space string) (string, error) {
	for _, kind := range append(kinds(), core("Pod"), core("PersistentVolumeClaim"), apps("StatefulSet"),
		schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}) {
		if kind.Kind == "Namespace" || kind.Kind == kindDefinition || strings.HasPrefix(kind.Kind, "Cluster") ||
			strings.HasPrefix(kind.Kind, "Validating") {
			continue
		}
		list, err := p.every(ctx, kind, client.InNamespace(space))
		if err != nil {
			return "", err
		}
		for _, u := range list {
			if n := u.GetName(); n != "default" && n != "kube-root-ca.crt" && u.GetDeletionTimestamp() == nil {
				u.SetGroupVersionKind(kind)
				return name(&u) + " is in it", nil
			}
		}
	}
	return "", nil
}

// disown takes the label from an object that stays.
func (p *place) disown(ctx context.Context, u unstructured.Unstructured) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+label+`":null}}}`))
	return failed("change "+name(&u), p.Patch(ctx, &u, patch, client.FieldOwner(fieldOwner)))
}

// forget removes what the host cluster has of a cluster: first its account, so that nothing is written again.
func forget(ctx context.Context, host *place, o invite.UnjoinOrder, tell *teller) error {
	docs, err := read(o.Objects)
	if err != nil {
		return err
	}
	for _, u := range slices.Backward(docs) {
		if u.GetKind() == "Namespace" {
			continue
		}
		if err := host.remove(ctx, u); err != nil {
			return err
		}
	}
	if err := host.nodes(ctx, o.Cluster, true); err != nil {
		return err
	}
	if err := host.remove(ctx, made(links(v1alpha1.KindCluster), "", o.Cluster, nil)); err != nil {
		return err
	}
	tell.say("removed at the host cluster: the Cluster %s, its nodes and its account", o.Cluster)
	others, err := host.every(ctx, links(v1alpha1.KindCluster))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(u unstructured.Unstructured) bool { return u.GetDeletionTimestamp() == nil }) {
		tell.say("%s still has the secret that the nodes of the others share. Without a key that a ClusterNode has, it "+
			"makes no tunnel with them and reads nothing of what they send. How to replace it: "+
			"docs/howto/link-clusters.md, after a leak", o.Cluster)
		return nil
	}
	for _, u := range []*unstructured.Unstructured{made(core("Secret"), joins, meshSecret, nil),
		made(core("Namespace"), "", joins, nil)} {
		if err := host.remove(ctx, u); err != nil {
			return err
		}
	}
	tell.say("it was the last one: the secret of the mesh is removed too")
	return nil
}

// age is how long ago a time was, for people.
func age(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() + " ago" }
