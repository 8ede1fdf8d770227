// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"net"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// Placed is a tenant, and the namespace of its object; empty: it is a file.
type Placed struct {
	Namespace string
	Tenant    *tenant.Tenant
}

// Homes says for each tenant in which namespace its control plane is; empty: that is not known, or known from its
// destinations. Whatever leads there leads to the cluster, so a namespace counts only where it is one tenant's alone:
// first comes that of its API server where its object is too, then that of its destinations, then the others.
func Homes(all []Placed) []string {
	claimed, strong, weak := map[string][]int{}, map[string][]int{}, map[string][]int{}
	add := func(to map[string][]int, ns string, i int) {
		if !slices.Contains(to[ns], i) {
			to[ns] = append(to[ns], i)
		}
	}
	found := make([][]string, len(all))
	for i, p := range all {
		destinations, services := namespaces(p.Tenant)
		for _, ns := range destinations {
			add(claimed, ns, i)
		}
		for _, ns := range services {
			add(weak, ns, i)
		}
		guess := len(destinations)+len(services) == 0
		if p.Namespace != "" && (guess || slices.Contains(services, p.Namespace)) {
			add(strong, p.Namespace, i)
		}
		found[i] = services
		if guess && p.Namespace != "" {
			found[i] = []string{p.Namespace}
		}
	}
	out := make([]string, len(all))
	for i := range all {
		for _, ns := range found[i] {
			first := strong[ns]
			if len(first) == 0 {
				first = claimed[ns]
			}
			if len(first) == 0 {
				first = weak[ns]
			}
			if len(first) == 1 && first[0] == i {
				out[i] = ns
				break
			}
		}
	}
	return out
}

// namespaces are those of a tenant's destinations, and of the Services that its way to the API server leads to. Other
// upstreams, such as the ingress of a seed, serve many clusters.
func namespaces(t *tenant.Tenant) (destinations, services []string) {
	for _, w := range t.Ways {
		for _, d := range w.Destinations {
			if !slices.Contains(destinations, d.Namespace) {
				destinations = append(destinations, d.Namespace)
			}
		}
		for _, u := range w.Upstreams {
			host, _, err := net.SplitHostPort(u.Address)
			parts := strings.Split(strings.ToLower(host), ".")
			if w.Flow != policy.FlowAPI || u.Hub != "" || err != nil || len(parts) < 3 || parts[2] != "svc" {
				continue
			}
			if !slices.Contains(services, parts[1]) {
				services = append(services, parts[1])
			}
		}
	}
	return destinations, services
}
