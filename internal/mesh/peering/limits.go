// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// peeringSecrets bounds the shared secrets of a pair that a probe is tried with: two during
	// a rotation, and two of another one that began before the last one ended.
	peeringSecrets = 4
	// peeringProbes is how many pings and calls of one member are accepted per second. A round of
	// 64 candidates in 0.25 s exceeds it; the first of them are repeated in the next round.
	peeringProbes = 50
	// peeringLook is how often a recently active peer is checked for traffic, and its handshakes
	// while a decision depends on them.
	peeringLook = time.Second
	// peeringTogether is how often peers are asked together at most.
	peeringTogether = time.Second
	// peeringAlone is how long a peer is alone, or not, until it may be heard to be otherwise.
	peeringAlone = time.Second
	// peeringSoon is how often WireGuard is asked during the first handshake with a peer: a little
	// later it may report another address of a peer without probes.
	peeringSoon = 100 * time.Millisecond
	// peeringStats is how often WireGuard is asked about all peers while nothing depends on it.
	peeringStats = 30 * time.Second
	// peeringShake is how long a handshake may wait for its answer before another one is
	// requested: WireGuard starts none within 5 s.
	peeringShake = 5 * time.Second
	// peeringAsk is how long handshakes stay unanswered before the peer is asked to start one:
	// WireGuard has tried twice by then.
	peeringAsk = 10 * time.Second
	// peeringWish is how long a peer with traffic has to start a session itself: a round trip within
	// a continent.
	peeringWish = 100 * time.Millisecond
	// peeringYield is how long a handshake that either end may start is left to the end with the
	// greater key: a round trip around the world, and the time between the two learning of it.
	peeringYield = 500 * time.Millisecond
	// peeringTry is how long after a packet the preshared keys of a lazy peer are tried: each try is
	// a handshake, which must not keep alive a peer that nobody uses.
	peeringTry = 2 * time.Minute
	// peeringRekey is how long a first handshake, or the first one with a peer's new key, is retried:
	// a peer that has not answered by then has no traffic, and starts one with its first packet.
	peeringRekey = 30 * time.Second
	// peeringKeepalive is WireGuard's keepalive for peers without probes: below the 30 s after
	// which routers forget a mapping.
	peeringKeepalive = 25 * time.Second
	// peeringLocals bounds the addresses of this machine that are remembered for paths
	// to one peer.
	peeringLocals = 2 * (limit.PathCandidates + limit.PathHeard)
)
