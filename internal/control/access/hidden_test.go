// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

func TestWhereClientsAreHidden(t *testing.T) {
	const proxy = `{"metadata":{"namespace":"istio-ingress","name":"proxy"},"spec":{"configPatches":[{"applyTo":"LISTENER",
		"patch":{"operation":"MERGE","value":{"listener_filters":[{"name":"envoy.filters.listener.proxy_protocol"}]}}}]}}`
	w := istio.Workload{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw", "istio": "ingress"}}
	for name, c := range map[string]struct {
		namespace, spec, filter string
		hidden                  bool
	}{
		"by default":        {"istio-ingress", `{"type":"LoadBalancer","selector":{"app":"gw"}}`, "", true},
		"Cluster":           {"istio-ingress", `{"type":"NodePort","selector":{"app":"gw"},"externalTrafficPolicy":"Cluster"}`, "", true},
		"Local":             {"istio-ingress", `{"type":"LoadBalancer","selector":{"app":"gw"},"externalTrafficPolicy":"Local"}`, "", false},
		"PROXY headers":     {"istio-ingress", `{"type":"LoadBalancer","selector":{"app":"gw"}}`, proxy, false},
		"within":            {"istio-ingress", `{"type":"ClusterIP","selector":{"app":"gw"}}`, "", false},
		"of other pods":     {"istio-ingress", `{"type":"LoadBalancer","selector":{"app":"x"}}`, "", false},
		"of nothing":        {"istio-ingress", `{"type":"LoadBalancer"}`, "", false},
		"another namespace": {"x", `{"type":"LoadBalancer","selector":{"app":"gw"}}`, "", false},
	} {
		s := istio.Service{Metadata: istio.Meta{Namespace: c.namespace, Name: "gw"}}
		if err := json.Unmarshal([]byte(c.spec), &s.Spec); err != nil {
			t.Fatal(err)
		}
		f := istio.Facts{Services: []istio.Service{s}}
		if c.filter != "" {
			f.EnvoyFilters = make([]istio.EnvoyFilter, 1)
			if err := json.Unmarshal([]byte(c.filter), &f.EnvoyFilters[0]); err != nil {
				t.Fatal(err)
			}
		}
		if got := hidden(f, []istio.Workload{w}); (len(got) == 1) != c.hidden {
			t.Errorf("%s: %q", name, got)
		}
	}
	o := looked(known(true))
	o.hidden = []string{"Service istio-ingress/gw has"}
	if c := o.guarded("c1"); c.status != "True" || !strings.HasSuffix(c.message, "; but Service istio-ingress/gw has") {
		t.Errorf("%+v", c)
	}
}
