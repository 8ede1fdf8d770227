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
	"github.com/tombolo-io/tombolo/internal/control/links/kinds"
	"github.com/tombolo-io/tombolo/internal/link/learn"
	calico "github.com/tombolo-io/tombolo/internal/link/pools"
	"github.com/tombolo-io/tombolo/internal/link/trouble"
)

// pools has Calico know the ranges of other clusters, as IPPools from which it gives no address (disabled): what pods
// send to an address of a pool keeps its source, also where Calico decides in eBPF, which nftables do not see.
type pools struct {
	client client.Client // of the own cluster, without a cache
	wanted []string
	looked time.Time
	says   trouble.Verdict // of the last look; empty: it was not said yet
}

// calicoKinds are the groups that have IPPools, in the order in which they count: the second alone has version 3 as
// definitions.
var calicoKinds = []schema.GroupKind{
	{Group: "crd.projectcalico.org", Kind: "IPPool"}, {Group: "projectcalico.org", Kind: "IPPool"},
}

// keep makes and removes pools. It looks at Calico when other ranges are linked, and from time to time. What it says
// then is in p.says.
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
	done, err := p.look(ctx, want)
	switch {
	case err != nil:
		p.says = trouble.Pools(nil, why(err))
		return err
	case known.CNI != learn.Calico:
		p.says = trouble.NoPools()
	case !done:
		p.says = trouble.Kinds("this cluster", kinds.Definitions(calicoKinds[:1]))
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

// look compares Calico's pools with those that are wanted. It reports false if there is no such kind.
func (p *pools) look(ctx context.Context, want []string) (bool, error) {
	for _, kind := range calicoKinds {
		m, err := p.client.RESTMapper().RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(m.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := p.client.List(ctx, list); err != nil {
			return false, err
		}
		var have []calico.Pool
		for _, u := range list.Items {
			have = append(have, poolOf(u))
		}
		changes := calico.Decide(want, have)
		var taken []string
		for _, pool := range changes.Taken {
			taken = append(taken, fmt.Sprintf("%s (of %.64s)", pool.Name, pool.CIDR))
		}
		p.says = trouble.Pools(taken, "")
		return true, p.change(ctx, m.GroupVersionKind, changes)
	}
	return false, nil
}

func poolOf(u unstructured.Unstructured) calico.Pool {
	out := calico.Pool{Name: u.GetName(), ManagedBy: u.GetLabels()[labelManagedBy]}
	out.CIDR, _, _ = unstructured.NestedString(u.Object, "spec", "cidr")
	out.Disabled, _, _ = unstructured.NestedBool(u.Object, "spec", "disabled")
	return out
}

func (p *pools) change(ctx context.Context, kind schema.GroupVersionKind, changes calico.Changes) error {
	for _, name := range changes.Remove {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		u.SetName(name)
		if err := p.client.Delete(ctx, u); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("IPPool %s: %w", name, err)
		}
	}
	for _, made := range changes.Make {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": made.CIDR,
			"blockSize": int64(made.BlockSize), "disabled": true, "natOutgoing": false, "ipipMode": "Never",
			"vxlanMode": "Never"}}}
		u.SetGroupVersionKind(kind)
		u.SetName(made.Name)
		u.SetLabels(map[string]string{labelManagedBy: calico.ManagedBy, "app.kubernetes.io/part-of": "tombolo"})
		if err := p.client.Create(ctx, u); err != nil {
			return fmt.Errorf("IPPool %s: %w", u.GetName(), err)
		}
	}
	return nil
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
		out := calico.Cluster{Mapped: map[string]string{}, Accepted: c.Status.Accepted}
		for _, r := range slices.Concat(c.Status.PodCIDRs, c.Status.ServiceCIDRs) {
			out.Ranges = append(out.Ranges, string(r.CIDR))
		}
		for _, m := range c.Status.Mapped {
			out.Mapped[string(m.CIDR)] = string(m.As)
		}
		others = append(others, out)
	}
	return calico.Wanted(others)
}
