// SPDX-License-Identifier: Apache-2.0

package memory

// Bounds and timings of this package.
const (
	// memoryKept is what no cluster is cut below for want of memory: a hundred agents
	// or their idle streams. What is short then is not the clusters' doing.
	memoryKept = 8 << 20
	// memoryOfGroup is the limit where nothing is configured, of the cgroup's: the
	// kernel's buffers of sockets count there too.
	memoryOfGroup = 90
)
