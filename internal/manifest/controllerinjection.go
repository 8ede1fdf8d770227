// SPDX-License-Identifier: Apache-2.0

package manifest

import "slices"

// controllerInjection says which objects get guards when they are written: EnvoyFilters of others that add filter
// chains, where they count at a gateway. Without an answer such an object is not written, since it could open a way.
func controllerInjection(o ControllerOptions, m meta) document {
	namespaces := slices.Clone(o.Gateways)
	if !slices.Contains(namespaces, o.MeshRoot) {
		namespaces = append(namespaces, o.MeshRoot)
	}
	return webhookConfiguration{admissionGroup + "/v1", "MutatingWebhookConfiguration",
		meta{Name: o.Name, Labels: m.Labels}, []webhookRule{{
			Name: "envoyfilter.tombolo.dev", FailurePolicy: "Fail", MatchPolicy: "Equivalent", SideEffects: "None",
			Reinvocation: "IfNeeded", TimeoutSeconds: reviewTimeout, ReviewVersions: []string{"v1"},
			Client: webhookClient{webhookService{o.Namespace, o.Name, "/mutate/envoyfilter", 443}},
			Rules: []webhookObjects{{[]string{istioNetworking}, []string{"v1alpha3"}, []string{"envoyfilters"},
				[]string{"CREATE", "UPDATE"}, "Namespaced"}},
			Namespaces: &labelExpressions{[]labelExpression{{"kubernetes.io/metadata.name", "In", namespaces}}},
			Conditions: []webhookCondition{
				{"not-written-by-tombolo", `!has(object.metadata.labels) || ` +
					`!("app.kubernetes.io/managed-by" in object.metadata.labels) || ` +
					`object.metadata.labels["app.kubernetes.io/managed-by"] != "tombolo"`},
				{"adds-filter-chains", `has(object.spec) && has(object.spec.configPatches) && ` +
					`object.spec.configPatches.exists(p, has(p.applyTo) && p.applyTo in ["FILTER_CHAIN", "LISTENER"] && ` +
					`has(p.patch) && has(p.patch.operation) && ` +
					`(p.patch.operation == "ADD" || p.patch.operation.startsWith("INSERT")))`},
				// A replica that knows less than the one that leads must not change what that one writes.
				{"not-by-the-controller", `request.userInfo.username != "system:serviceaccount:` + o.Namespace + ":" + o.Name +
					`"`},
			},
		}}}
}
