// SPDX-License-Identifier: Apache-2.0

package meshconf

// Bounds for the tests of the package.
const (
	MeshRanges   = meshRanges
	MeshPatterns = meshPatterns
	MeshServers  = meshServers
)
