// SPDX-License-Identifier: Apache-2.0

package telemetry

// The bounds of this package alone.
const (
	// logGroup bounds those of a cluster, and of what no peer has caused: more agents or
	// nodes than join, come or go in a minute of an ordinary day.
	logGroup = 256
	// logAll bounds those of all clusters together.
	logAll = 1_024
	// logShare is what a cluster has even where others have used up logAll.
	logShare = 32
	// logGroups bounds the clusters that are told apart.
	logGroups = 1_024
	// logKinds bounds the kinds: some 200 messages, few of them with several codes.
	logKinds = 1_024
)
