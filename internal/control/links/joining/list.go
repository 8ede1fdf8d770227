// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/link/invite"
)

const (
	// named is how many nodes a problem names; the others are counted.
	named = 3
	// silent is how long nobody may have been heard of a cluster: each node is heard once a minute, and less often where
	// there are many.
	silent = 10 * time.Minute
)

// list reads the linked clusters of an API server, be it that of the host cluster or of a member.
func list(ctx context.Context, at *place, now time.Time) (*invite.List, error) {
	var clusters objects.ClusterList
	var nodes objects.ClusterNodeList
	for _, l := range []client.ObjectList{&clusters, &nodes} {
		if err := at.List(ctx, l); meta.IsNoMatchError(err) {
			return nil, fault.New(fault.CodeNotFound, "this cluster is not linked: it has no kind Cluster of tombolo.dev").
				Hint("tombolo link join links it; tombolo link token is for the host cluster")
		} else if err != nil {
			return nil, failed("list linked clusters", err)
		}
	}
	out := &invite.List{Clusters: []invite.Listed{}, Pending: []invite.Pending{}}
	for _, c := range clusters.Items {
		out.Clusters = append(out.Clusters, listed(c, nodes.Items, now))
	}
	slices.SortFunc(out.Clusters, func(a, b invite.Listed) int { return strings.Compare(a.Name, b.Name) })
	var waiting corev1.ServiceAccountList
	if err := at.List(ctx, &waiting, client.InNamespace(joins)); err != nil && !missing(err) {
		return nil, failed("list join lines", err)
	}
	for _, a := range waiting.Items {
		ends := a.Annotations[expires]
		if ends == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, ends)
		out.Pending = append(out.Pending, invite.Pending{Cluster: a.Name, Expires: ends, Expired: err != nil || now.After(t)})
	}
	return out, nil
}

// listed is what a cluster shows, and what is not well with it.
func listed(c objects.Cluster, nodes []objects.ClusterNode, now time.Time) invite.Listed {
	out := invite.Listed{Name: c.Name, NetworkType: c.Spec.NetworkType, Ranges: []string{}, Gateways: c.Status.Gateways}
	as := map[string]string{}
	for _, m := range c.Status.Mapped {
		as[string(m.CIDR)] = string(m.As)
	}
	for _, r := range append(slices.Clone(c.Status.PodCIDRs), c.Status.ServiceCIDRs...) {
		text := string(r.CIDR)
		if to := as[text]; to != "" {
			text = to
		}
		out.Ranges = append(out.Ranges, text)
	}
	for _, is := range c.Status.Conditions {
		switch {
		case is.Type == "Ready":
			out.Ready = is.Status == "True"
			fallthrough
		default:
			if is.Status != "True" {
				out.Problems = append(out.Problems, fmt.Sprintf("%s is %s (%s): %s", is.Type, is.Status, is.Reason,
					untrusted.Text(is.Message, mostWhy)))
			}
		}
	}
	if len(c.Status.Conditions) == 0 {
		out.Problems = append(out.Problems, "its controller and that of the host cluster have said nothing yet")
	}
	var heard time.Time
	var unready, down []string
	for _, n := range nodes {
		if n.Spec.ClusterName != c.Name || v1alpha1.IsPlaceholder(n.Spec) {
			continue
		}
		out.Nodes.Of++
		if n.Status.NodeStatus == objects.NodeReady {
			out.Nodes.Up++
		} else {
			unready = append(unready, n.Spec.NodeName)
		}
		t := invite.Tunnels(n.Status.Tunnels)
		out.Tunnels.Up, out.Tunnels.Of = out.Tunnels.Up+t.Up, out.Tunnels.Of+t.Of
		if t.Up < t.Of {
			down = append(down, n.Spec.NodeName+" "+t.String())
		}
		if at := n.Status.LastHeard; at != nil && at.After(heard) {
			heard = at.Time
		}
	}
	if !heard.IsZero() {
		out.Heard = heard.UTC().Format(time.RFC3339)
		if now.Sub(heard) > silent {
			out.Problems = append(out.Problems, "no node was heard since "+age(now, heard))
		}
	}
	out.Problems = append(out.Problems, some("nodes are not ready: ", unready)...)
	out.Problems = append(out.Problems, some("tunnels are not up: ", down)...)
	return out
}

// some is a problem of nodes, with the first names; nothing if there are none.
func some(what string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	text := what + strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []string{text}
}
