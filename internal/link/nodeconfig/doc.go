// SPDX-License-Identifier: Apache-2.0

// Package nodeconfig keeps the NodeConfig of a node in its own cluster's API server as the node has it: what package
// report says, when it has changed. It does not decide what is said, and the mesh does not wait for it.
package nodeconfig
