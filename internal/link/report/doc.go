// SPDX-License-Identifier: Apache-2.0

// Package report turns what a node of a linked cluster plans and has into its NodeConfig, within the bounds of that
// kind. It does not plan anything, nor write the object: what it says changes nothing at the node.
package report
