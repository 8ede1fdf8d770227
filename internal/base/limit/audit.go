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
	// TraceState bounds the tracestate that is passed on, and TraceMembers its
	// members: what W3C Trace Context asks for (sections 3.3.1.1 and 3.3.1.5).
	TraceState = 512
	// TraceMembers bounds the members of a tracestate.
	TraceMembers = 32
	// TraceMember is the length of a member above which it gives way first.
	TraceMember = 128
	// AuditLine bounds a line that is read: a record whose texts are all of the
	// greatest length and all escaped has about 64 KiB.
	AuditLine = 96 << 10
	// AuditQueue bounds the records that wait for the disk: a second of a busy hub.
	AuditQueue = 8_192
	// AuditQueueBytes bounds the memory that they take.
	AuditQueueBytes = 8 << 20
	// AuditBatch is what is written at once when records queue up.
	AuditBatch = 64 << 10
	// AuditFile is the size at which a file is rotated: some 200,000 records.
	AuditFile = 100 << 20
	// AuditFileLeast is the least such size: below it files would come by the minute.
	AuditFileLeast = 64 << 10
	// AuditStrangers bounds the records of refused strangers in each AuditTold, that
	// is 46,000 a day, 15 MiB: what is beyond is counted in one record.
	AuditStrangers = 32
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
	// AuditClusters bounds the clusters whose knocks are counted apart.
	AuditClusters = 4_096
	// AuditAlike bounds the records of refusals of one kind of a known caller in each
	// AuditTold, that is 23,000 a day, 12 MiB: what is beyond is counted in one record.
	AuditAlike = 16
	// AuditCallers bounds the callers whose refusals at limits are told apart, by
	// code, in some 2 MiB.
	AuditCallers = 4_096
	// AuditDistinct bounds the destinations, by caller and rule, whose refusals are
	// told apart: a caller that tries every port of a machine in some minutes.
	AuditDistinct = 8_192
	// LogEach bounds the lines of one kind (message and fault code) in each LogTold of
	// one agent, node or caller, and of all strangers together: 46,000 a day, 10 MB.
	LogEach = 32
	// LogGroup bounds those of a cluster, and of what no peer has caused: more agents or
	// nodes than join, come or go in a minute of an ordinary day.
	LogGroup = 256
	// LogAll bounds those of all clusters together.
	LogAll = 1_024
	// LogShare is what a cluster has even where others have used up LogAll.
	LogShare = 32
	// LogGroups bounds the clusters that are told apart.
	LogGroups = 1_024
	// LogKinds bounds the kinds: some 200 messages, few of them with several codes.
	LogKinds = 1_024
	// LogDebug is how many times more lines of the level debug there may be: whoever
	// has asked for them looks for one.
	LogDebug = 64
	// AuditKept is how many rotated files stay: two weeks of one each day.
	AuditKept = 14
	// AuditKeptMost bounds them, for they are listed at each rotation.
	AuditKeptMost = 1_000
	// AuditTail bounds the records that are kept to print the newest: some 1 GB.
	AuditTail = 1_000_000
	// PoliciesTold bounds the lines of the log about files of the policy that one
	// reading refuses: a list that thousands of files share may be wrong.
	PoliciesTold = 20
)
