// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"time"
)

// The bounds of this package alone.
const (
	// discoveryStoreWait bounds an answer of etcd: an election takes a second or two.
	discoveryStoreWait = 3 * time.Second
	// discoveryStoreProbe is how often etcd is asked for a sign of life, and
	// discoveryStoreSilence how long none may come before etcd counts as away.
	discoveryStoreProbe   = 3 * time.Second
	discoveryStoreSilence = 10 * time.Second
	// discoveryStoreTries bounds how often an update that others overtake is tried
	// again: of n at once, one goes through each time.
	discoveryStoreTries = 32
	// discoveryStoreAsks bounds how many leases etcd is asked about at once at the
	// start: 100,000 take seconds, and one after the other minutes.
	discoveryStoreAsks = 64
)
