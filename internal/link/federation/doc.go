// SPDX-License-Identifier: Apache-2.0

// Package federation is what a node of a mesh knows of linked clusters: objects of kind Cluster and ClusterNode in its
// own cluster, followed, and kept on disk for a start while the API server is away. It makes members of the nodes of
// other clusters. It does not decide which ranges these get.
package federation
