// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/learn"
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
		have := &unstructured.UnstructuredList{}
		have.SetGroupVersionKind(m.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
		err = p.client.List(ctx, have, client.MatchingLabels{labelManagedBy: managedBy})
		if err != nil {
			return err
		}
		return p.change(ctx, m.GroupVersionKind, want, have.Items)
	}
	return nil
}

func (p *pools) change(ctx context.Context, kind schema.GroupVersionKind, want []string,
	have []unstructured.Unstructured) error {
	missing := map[string]bool{}
	for _, cidr := range want {
		missing[cidr] = true
	}
	for i := range have {
		cidr, _, _ := unstructured.NestedString(have[i].Object, "spec", "cidr")
		disabled, _, _ := unstructured.NestedBool(have[i].Object, "spec", "disabled")
		if missing[cidr] && disabled {
			delete(missing, cidr)
		} else if err := p.client.Delete(ctx, &have[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("IPPool %s: %w", have[i].GetName(), err)
		}
	}
	for _, cidr := range slices.Sorted(maps.Keys(missing)) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": cidr, "disabled": true,
			"natOutgoing": false, "ipipMode": "Never", "vxlanMode": "Never"}}}
		u.SetGroupVersionKind(kind)
		u.SetName(poolName(cidr))
		u.SetLabels(map[string]string{labelManagedBy: managedBy, "app.kubernetes.io/part-of": "tombolo"})
		if err := p.client.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("IPPool %s: %w", u.GetName(), err)
		}
	}
	return nil
}

// poolName is what a pool for a range is called.
func poolName(cidr string) string {
	return "tombolo-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr)
}

// foreign are the accepted ranges of other clusters, as this one reaches them, while this one is linked itself.
func foreign(cluster string, all linked) []string {
	out := map[string]bool{}
	if all.clusters[cluster] == nil {
		return nil
	}
	for name, c := range all.clusters {
		if name == cluster || !meta.IsStatusConditionTrue(c.Status.Conditions, objects.ConditionRangesAccepted) {
			continue
		}
		as := map[string]string{}
		for _, m := range c.Status.Mapped {
			as[string(m.CIDR)] = string(m.As)
		}
		for _, r := range slices.Concat(c.Status.PodCIDRs, c.Status.ServiceCIDRs) {
			cidr := string(r.CIDR)
			if mapped := as[cidr]; mapped != "" {
				cidr = mapped
			}
			if slices.Contains(c.Status.Accepted, cidr) {
				out[cidr] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}
