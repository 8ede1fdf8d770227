// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"time"
)

// The bounds of this package alone.
const (
	// auditLine bounds a line that is read: a record whose texts all have the
	// greatest length and are all escaped takes about 64 KiB.
	auditLine = 96 << 10
	// auditQueue bounds the records that wait for the disk: one second of a busy hub.
	auditQueue = 8_192
	// auditQueueBytes bounds the memory that they take.
	auditQueueBytes = 8 << 20
	// auditBatch is the size of one write when records queue up.
	auditBatch = 64 << 10
	// auditFile is the size at which a file is rotated: some 200,000 records.
	auditFile = 100 << 20
	// auditFileLeast is the least such size: below it a file would last minutes.
	auditFileLeast = 64 << 10
	// auditCallers bounds the callers, by code, whose refusals at limits are counted
	// separately; they take some 2 MiB.
	auditCallers = 4_096
	// auditDistinct bounds the destinations, by caller and rule, whose refusals are
	// counted separately: a caller tries every port of a machine in some minutes.
	auditDistinct = 8_192
	// auditKept is how many rotated files stay: two weeks of one each day.
	auditKept = 14
	// auditKeptMost bounds auditKept, for the files are listed at each rotation.
	auditKeptMost = 1_000
	// auditAge is the age at which a file is rotated.
	auditAge = 24 * time.Hour
	// auditAgeLeast is the least such age.
	auditAgeLeast = time.Minute
	// auditPoll is the interval at which a followed file is checked for new records.
	auditPoll = 250 * time.Millisecond
	// refusalsEach, refusalsCluster, refusalsAll and refusalsShare bound the refusals with a record of their own in an
	// interval: of a source, of a cluster, of all, and what a cluster has even if the others have used up all.
	refusalsEach, refusalsCluster, refusalsAll, refusalsShare = 5, 50, 500, 5
	// refusalClusters bounds the clusters that are counted apart.
	refusalClusters = 10_000
	// refusalKinds bounds the kinds of refusals that are counted apart in an interval.
	refusalKinds = 256
)
