// SPDX-License-Identifier: Apache-2.0

package record

// Bounds and timings of this package.
const (
	// auditKnown bounds those of peers with a certificate of the hub that has run
	// out or was revoked, of all clusters together.
	auditKnown = 128
	// auditKnownCluster bounds those of one cluster, so that others have room.
	auditKnownCluster = 32
	// auditKnownShare is what a cluster has even where others have used up auditKnown:
	// two peers of it are recorded in any case.
	auditKnownShare = 8
	// auditKnownEach bounds those of one identity, whatever certificates it shows: an
	// agent tries every 15 s.
	auditKnownEach = 4
	// auditClusters bounds the clusters whose refused peers are counted apart.
	auditClusters = 4_096
)
