// SPDX-License-Identifier: Apache-2.0

package limit

// Audit records and the log.
const (
	// AuditText bounds each text of a record: an address has at most 262 bytes, an
	// identity with the longest names about 400.
	AuditText = 512
	// AuditPairs, AuditKey and AuditValue bound the metadata of a record.
	AuditPairs = 8
	// AuditKey bounds a key of the metadata.
	AuditKey = 64
	// AuditValue bounds a value of the metadata.
	AuditValue = 256
	// AuditUnauthenticated bounds the records of refused unauthenticated connections in each
	// AuditTold, that is 46,000 a day, 15 MiB: what is beyond is counted in one record.
	AuditUnauthenticated = 32
	// AuditKnown bounds those of peers with a certificate of the hub that has run
	// out or was revoked, of all clusters together.
	AuditKnown = 128
	// AuditKnownCluster bounds those of one cluster, so that others have room.
	AuditKnownCluster = 32
	// AuditKnownShare is what a cluster has even where others have used up AuditKnown:
	// two peers of it are recorded in any case.
	AuditKnownShare = 8
	// AuditKnownEach bounds those of one identity, whatever certificates it shows: an
	// agent tries every 15 s.
	AuditKnownEach = 4
	// AuditClusters bounds the clusters whose refused peers are counted apart.
	AuditClusters = 4_096
	// AuditAlike bounds the records of refusals of one kind of a known caller in each
	// AuditTold, that is 23,000 a day, 12 MiB: what is beyond is counted in one record.
	AuditAlike = 16
	// LogEach bounds the lines of one kind (message and fault code) in each LogTold of
	// one agent, node or caller, and of all unauthenticated peers together: 46,000 a day, 10 MB.
	LogEach = 32
	// LogDebug is how many times more lines of the level debug there may be: whoever
	// has asked for them looks for one.
	LogDebug = 64
	// AuditTail bounds the records that are kept to print the newest: some 1 GB.
	AuditTail = 1_000_000
	// PoliciesTold bounds the lines of the log about files of the policy that one
	// reading refuses: a list that thousands of files share may be wrong.
	PoliciesTold = 20
)
