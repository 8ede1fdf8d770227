// SPDX-License-Identifier: Apache-2.0

package ipsec

import "time"

// The bounds of this package.
const (
	// trialPause is between two looks whether another trial in this network namespace has ended.
	trialPause = 20 * time.Millisecond
	// trialSame is how often the same one may be there. An ordinary one takes milliseconds, but the kernel may load
	// modules for it.
	trialSame = 100
	// trialLooks bounds the looks at all of them.
	trialLooks = 5 * trialSame
	// trialTries are how often an id is drawn, or the link is lost to another trial.
	trialTries = 8
	// reads are how often what changes while it is read is read again.
	reads = 8
)
