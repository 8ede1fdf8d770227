// SPDX-License-Identifier: Apache-2.0

// Package crds has the definitions of the kinds of api/objects as YAML, generated from their Go types ('make
// generate'), for whoever prints or applies them without Kubernetes' own types.
package crds

import _ "embed"

//go:embed tombolo.dev_accesspolicies.yaml
var accessPolicies string

//go:embed tombolo.dev_edgetenants.yaml
var edgeTenants string

// AccessPolicies is the definition of the kind AccessPolicy.
func AccessPolicies() string { return accessPolicies }

// EdgeTenants is the definition of the kind EdgeTenant.
func EdgeTenants() string { return edgeTenants }
