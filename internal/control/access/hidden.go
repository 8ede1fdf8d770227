// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// hidden says at which Services of gateways lists may see addresses of nodes instead of clients: those behind which a
// node passes connections on, while no EnvoyFilter has the gateway read the PROXY protocol. That the pods are annotated
// for it is not seen, so it is only told.
func hidden(f istio.Facts, gateways []istio.Workload) (out []string) {
	for _, w := range gateways {
		if proxied(f, w) {
			continue
		}
		for _, s := range f.Services {
			t, policy := s.Spec.Type, cmp.Or(s.Spec.ExternalTrafficPolicy, "Cluster")
			if s.Metadata.Namespace == w.Namespace && len(s.Spec.Selector) > 0 && has(w, s.Spec.Selector) &&
				(t == "LoadBalancer" || t == "NodePort") && policy != "Local" {
				out = append(out, fmt.Sprintf("Service %s/%s has the externalTrafficPolicy %s: lists see the addresses of nodes, "+
					"unless a load balancer sends PROXY headers; set Local", s.Metadata.Namespace, s.Metadata.Name, policy))
			}
		}
	}
	return out
}

// proxied reports whether an EnvoyFilter may have a gateway read the PROXY protocol.
func proxied(f istio.Facts, w istio.Workload) bool {
	for _, e := range f.EnvoyFilters {
		if ns := e.Metadata.Namespace; ns != w.Namespace && ns != cmp.Or(w.RootNamespace, "istio-system") {
			continue
		}
		for _, p := range e.Spec.ConfigPatches {
			if bytes.Contains(p.Patch.Value, []byte("filters.listener.proxy_protocol")) {
				return true
			}
		}
	}
	return false
}

// has reports whether the pods of a gateway have labels.
func has(w istio.Workload, labels map[string]string) bool {
	for k, v := range labels {
		if got, ok := w.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
