// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	calico "github.com/tombolo-io/tombolo/internal/link/pools"
)

// pools has Calico know the ranges of other clusters, as IPPools from which it gives no address (disabled): what pods
// send to an address of a pool keeps its source, also where Calico decides in eBPF, which nftables do not see.
type pools struct {
	client client.Client // of the own cluster, without a cache
	wanted []string      // at the last look
	looked time.Time
}

// calicoKinds are the groups that have IPPools, in the order in which they count: the second alone has version 3 as
// definitions.
var calicoKinds = []schema.GroupKind{
	{Group: "crd.projectcalico.org", Kind: "IPPool"}, {Group: "projectcalico.org", Kind: "IPPool"},
}

// keep makes and removes pools. It looks at Calico when other ranges are linked, and from time to time.
//
//	known: what was learned of the own cluster; nil: nothing yet
func (p *pools) keep(ctx context.Context, cluster string, all linked, known *learn.Result) error {
	if known == nil {
		return nil
	}
	want, told := wantedPools(known.CNI, cluster, all)
	if !told {
		return nil
	}
	if slices.Equal(want, p.wanted) && time.Since(p.looked) < relearn {
		return nil
	}
	if err := p.look(ctx, want); err != nil {
		return err
	}
	p.wanted, p.looked = want, time.Now()
	return nil
}

// wantedPools are the ranges for which there are pools. It reports false while it cannot be told which CNI there is:
// what Calico was told before stays.
func wantedPools(cni learn.CNI, cluster string, all linked) (want []string, told bool) {
	switch cni {
	case learn.Calico:
		return foreign(cluster, all), true
	case learn.Unknown:
		return nil, all.clusters[cluster] == nil
	}
	return nil, true
}

// look compares Calico's pools with those that are wanted.
func (p *pools) look(ctx context.Context, want []string) error {
	for _, kind := range calicoKinds {
		m, err := p.client.RESTMapper().RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(m.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := p.client.List(ctx, list); err != nil {
			return err
		}
		var have []calico.Pool
		for i := range list.Items {
			have = append(have, poolOf(&list.Items[i]))
		}
		return p.change(ctx, m.GroupVersionKind, calico.Compare(want, have))
	}
	return nil
}

func poolOf(u *unstructured.Unstructured) calico.Pool {
	cidr, _, _ := unstructured.NestedString(u.Object, "spec", "cidr")
	disabled, _, _ := unstructured.NestedBool(u.Object, "spec", "disabled")
	return calico.Pool{Name: u.GetName(), CIDR: cidr, Disabled: disabled,
		Ours: calico.Ours(u.GetName(), cidr, u.GetLabels())}
}

func (p *pools) change(ctx context.Context, kind schema.GroupVersionKind, todo calico.Plan) error {
	for _, name := range todo.Remove {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		u.SetName(name)
		if err := p.client.Delete(ctx, u); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("IPPool %s: %w", name, err)
		}
	}
	for _, cidr := range todo.Create {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": cidr,
			"disabled": true, "natOutgoing": false, "ipipMode": "Never", "vxlanMode": "Never",
			"blockSize": int64(calico.BlockSize(cidr))}}}
		u.SetGroupVersionKind(kind)
		u.SetName(calico.Name(cidr))
		u.SetLabels(calico.Labels())
		if err := p.client.Create(ctx, u); err != nil {
			return fmt.Errorf("IPPool %s: %w", u.GetName(), err)
		}
	}
	return todo.Err
}

// foreign are the accepted ranges of other clusters, as this one reaches them, while this one is linked itself.
func foreign(cluster string, all linked) []string {
	if all.clusters[cluster] == nil {
		return nil
	}
	var others []calico.Cluster
	for name, c := range all.clusters {
		if name == cluster || !meta.IsStatusConditionTrue(c.Status.Conditions, objects.ConditionRangesAccepted) {
			continue
		}
		other := calico.Cluster{Name: name, Maps: map[string]string{}, Accepted: c.Status.Accepted}
		for _, m := range c.Status.Mapped {
			other.Maps[string(m.CIDR)] = string(m.As)
		}
		for _, r := range slices.Concat(c.Status.PodCIDRs, c.Status.ServiceCIDRs) {
			other.Ranges = append(other.Ranges, string(r.CIDR))
		}
		others = append(others, other)
	}
	return calico.Ranges(others)
}
