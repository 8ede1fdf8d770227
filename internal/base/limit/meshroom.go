// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// A node of the mesh.
const (
	// MeshPing is how long one echo through the tunnel is waited for: the longest way
	// around the world with a relay between, and a handshake before it.
	MeshPing = 5 * time.Second
)

const (
	// MeshVersion is that of the path protocol which this program speaks.
	MeshVersion = 1
	// MeshNames is how many nodes a warning names, so that it fits a few lines.
	MeshNames = 8
)
