// SPDX-License-Identifier: Apache-2.0

// Package kosmos reads objects that were written for Kosmos (kosmos.io/v1alpha1: Cluster, ClusterNode and NodeConfig,
// as its releases and its proposal for IPsec have them) and gives the objects of linked clusters in their place, with
// what became of each field. Keys and kubeconfigs are passed over: they are never stored, and no message shows one. It
// does not read files, and knows no API server.
package kosmos
