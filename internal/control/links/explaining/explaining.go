// SPDX-License-Identifier: Apache-2.0

// Package explaining reads the objects of linked clusters, and has it explained how a packet goes. It does not decide,
// and changes nothing.
package explaining

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/explain"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// Read is what nodes understand of Clusters and ClusterNodes in JSON, and why some do not count.
type Read func(clusters, nodes []json.RawMessage) (reach.View, []string)

// Question asks how packets of the pods of a node go to an address.
type Question struct {
	From string // CLUSTER.NODE, or the name of a node that only one cluster has
	To   netip.Addr
}

// Run answers a question. NodeConfigs tell the state of tunnels, where they may be read.
func Run(ctx context.Context, c client.Client, q Question, read Read) (explain.Explanation, error) {
	clusters, err := list(ctx, c, v1alpha1.KindCluster)
	if err != nil {
		return explain.Explanation{}, err
	}
	nodes, err := list(ctx, c, v1alpha1.KindClusterNode)
	if err != nil {
		return explain.Explanation{}, err
	}
	f := explain.Facts{Tunnels: map[reach.Name]map[reach.Name]explain.Tunnel{}}
	f.View, f.Problems = read(clusters, nodes)
	configs, err := list(ctx, c, v1alpha1.KindNodeConfig)
	if err != nil {
		f.Problems = append(f.Problems, "the states of tunnels are not known: "+fault.From(err).Error())
	}
	for _, raw := range configs {
		addTunnels(&f, raw)
	}
	self, err := nodeOf(f.View, q.From)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.Explain(f, self, q.To)
}

// list is all objects of a kind as JSON.
func list(ctx context.Context, c client.Client, kind string) (out []json.RawMessage, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(objects.GroupVersion().WithKind(kind + "List"))
	if err := c.List(ctx, all); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, fault.Newf(fault.CodeNotFound, "this cluster has no kind %s", kind).
				Hint("it is not linked: 'tombolo link join' links it")
		}
		return nil, err
	}
	for _, o := range all.Items {
		raw, err := o.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// addTunnels adds what a NodeConfig says.
func addTunnels(f *explain.Facts, raw json.RawMessage) {
	var o struct {
		Metadata struct{ Name string }
		Status   objects.NodeConfigStatus
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return // the API server checks them: it is of another version
	}
	tunnels := map[reach.Name]explain.Tunnel{}
	for _, t := range o.Status.Tunnels {
		tunnels[nameOf(t.Peer)] = explain.Tunnel{State: t.State, Reason: t.Reason, Alone: t.Alone}
	}
	f.Tunnels[nameOf(o.Metadata.Name)] = tunnels
}

func nameOf(object string) reach.Name {
	cluster, node, _ := strings.Cut(object, ".")
	return reach.Name{Cluster: cluster, Node: node}
}

// nodeOf finds a node by its name.
func nodeOf(v reach.View, from string) (reach.Name, error) {
	var found []string
	for _, n := range v.Nodes {
		if n.String() == from {
			return n.Name, nil
		}
		if n.Node == from {
			found = append(found, n.String())
		}
	}
	switch len(found) {
	case 1:
		return nameOf(found[0]), nil
	case 0:
		return reach.Name{}, fault.Newf(fault.CodeNotFound, "no linked cluster has a node %q", from).
			Hint("'kubectl get tcn' shows all")
	}
	return reach.Name{}, fault.Newf(fault.CodeUsage, "several clusters have a node %q", from).
		Hint("name one of them: --from %s", strings.Join(found, " or --from "))
}
