// SPDX-License-Identifier: Apache-2.0

package telemetry

// The bounds of this package alone.
const (
	// logGroup bounds the lines of a kind in a minute for one cluster, and for no peer: more
	// agents or nodes than join, connect or leave in an ordinary minute.
	logGroup = 256
	// logAll bounds the lines of a kind for all clusters together.
	logAll = 1_024
	// logShare is what a cluster has even if others have used up logAll.
	logShare = 32
	// logGroups bounds the clusters that are counted separately.
	logGroups = 1_024
	// logKinds bounds the kinds: some 200 messages, few of them with several codes.
	logKinds = 1_024
)
