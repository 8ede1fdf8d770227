// SPDX-License-Identifier: Apache-2.0

// Package route is routed mode: it takes connections to the ranges of clusters from a TUN device, ends their TCP
// here, and continues each as a stream through a hub. It answers a SYN once the agent has dialled. It decides
// nothing about who may reach what: hub and agent do.
package route
