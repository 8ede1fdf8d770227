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
	// AuditAlike bounds the records of refusals of one kind of a known caller in each
	// AuditTold, that is 23,000 a day, 12 MiB: what is beyond is counted in one record.
	AuditAlike = 16
	// LogEach bounds the lines of one kind (message and fault code) in each LogTold of
	// one agent, node or caller, and of all unauthenticated peers together: 46,000 a day, 10 MB.
	LogEach = 32
	// LogDebug is how many times more lines of the level debug there may be: whoever
	// has asked for them looks for one.
	LogDebug = 64
	// PoliciesTold bounds the lines of the log about files of the policy that one
	// reading refuses: a list that thousands of files share may be wrong.
	PoliciesTold = 20
)
