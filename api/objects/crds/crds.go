// SPDX-License-Identifier: Apache-2.0

// Package crds has the definitions of the kinds of api/objects as YAML, generated from their Go types ('make
// generate'), for whoever prints or applies them without Kubernetes' own types.
package crds

import _ "embed"

//go:embed tombolo.dev_accesspolicies.yaml
var accessPolicies string

//go:embed tombolo.dev_edgetenants.yaml
var edgeTenants string

//go:embed tombolo.dev_clusters.yaml
var clusters string

//go:embed tombolo.dev_clusternodes.yaml
var clusterNodes string

//go:embed tombolo.dev_nodeconfigs.yaml
var nodeConfigs string

// AccessPolicies is the definition of the kind AccessPolicy.
func AccessPolicies() string { return accessPolicies }

// EdgeTenants is the definition of the kind EdgeTenant.
func EdgeTenants() string { return edgeTenants }

// Clusters is the definition of the kind Cluster.
func Clusters() string { return clusters }

// ClusterNodes is the definition of the kind ClusterNode.
func ClusterNodes() string { return clusterNodes }

// NodeConfigs is the definition of the kind NodeConfig.
func NodeConfigs() string { return nodeConfigs }

// All are the definitions of all kinds.
func All() []string {
	return []string{AccessPolicies(), EdgeTenants(), Clusters(), ClusterNodes(), NodeConfigs()}
}
