// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import "time"

// The bounds of this package alone.
const (
	// grace is how long packets of a tunnel are still received after another one has taken its place.
	grace = 15 * time.Second
	// yield is how long the node with the greater key leaves it to the other one to begin.
	yield = time.Second / 2
	// exchangeTime bounds an exchange.
	exchangeTime = 10 * time.Second
	// firstPause is how long nothing is tried after an exchange that failed; it doubles up to longestPause.
	firstPause, longestPause = time.Second, time.Minute
	// shakeAgain is how long after an exchange another one is begun because of what the peer does not answer.
	shakeAgain = 5 * time.Second
	// comparePolicies is how often the kernel's policies are compared with those that are wanted: that costs more than a
	// look at the states, and nobody else has a reason to touch them.
	comparePolicies = 10 * time.Second
	// failsLong is how long after they were due new keys may fail to be agreed before somebody is told: the present ones
	// last for days, and then nothing passes any more.
	failsLong = time.Hour
	// mostBegun bounds the exchanges of all peers that this node has begun at once: as many as one answers (keyconn). What
	// is due waits, and who was tried last waits longest.
	mostBegun = 64
	// mostOfPeer bounds the exchanges of one peer that are answered at once.
	mostOfPeer = 2
	// lowestSPI keeps clear of the numbers that are reserved (RFC 4303 section 2.1) or that others choose by hand.
	lowestSPI = 1 << 16
	// mostHeld bounds the tunnels of a peer: one of each node, and those that go.
	mostHeld = 12
	// mostLives bounds the earlier lives of a peer that are known: exchanges of older ones have ended.
	mostLives = 8
)

// Limits are when a tunnel gets new keys (soft), and when it is gone if that did not work (hard).
type Limits struct {
	Age, HardAge time.Duration
	// Bytes and Packets are counted of what this node sends.
	Bytes, HardBytes     uint64
	Packets, HardPackets uint64
}

// Default are limits far below those of the ciphers: with extended sequence numbers no nonce comes twice within 2^64
// packets (RFC 4106 section 3.1). Hard ones outlast a peer that cannot be spoken to for a week.
var Default = Limits{
	Age: time.Hour, HardAge: 7 * 24 * time.Hour,
	Bytes: 1 << 40, HardBytes: 1 << 50,
	Packets: 1 << 34, HardPackets: 1 << 44,
}
