// SPDX-License-Identifier: Apache-2.0

package meshconf

import "time"

// The bounds of this package alone.
const (
	// meshRanges bounds the ranges that a node accepts, and those that it excludes: each
	// is looked at for each range of each member.
	meshRanges = 256
	// meshPatterns bounds patterns of interfaces, which each address is compared with.
	meshPatterns = 64
	// meshPolicies bounds files of policies: each is watched.
	meshPolicies = 16
	// meshServers bounds the addresses of further STUN servers: each is resolved periodically.
	meshServers = 16
	// meshClosed is how long ranges of a silent member stay closed: a week, so that somebody
	// looks at a machine that died on a Friday. meshClosedMost bounds the setting.
	meshClosed, meshClosedMost = 7 * 24 * time.Hour, 10 * 366 * 24 * time.Hour
)
