// SPDX-License-Identifier: Apache-2.0

package meshconf

// The bounds of this package alone.
const (
	// meshRanges bounds the ranges that a node accepts, and those that it excludes: each
	// is looked at for each range of each member.
	meshRanges = 256
	// meshPatterns bounds patterns of interfaces, which each address is compared with.
	meshPatterns = 64
	// meshPolicies bounds files of policies: each is watched.
	meshPolicies = 16
)
