// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// Peers of the mesh, seen by the owner of their paths.
const (
	// PeeringSecrets bounds the secrets that a pair has in common and that a probe is tried
	// with: two in a rotation, and one rotation that came before the last one ended.
	PeeringSecrets = 4
	// PeeringProbes is how many pings and calls of one member count in a second. 64 candidates in
	// one round of 0.25 s are more, of which the first ones come again in the next.
	PeeringProbes = 50
	// PeeringLook is how often it is looked whether a peer has traffic that had some lately,
	// and how its handshakes do while they decide of something.
	PeeringLook = time.Second
	// PeeringSoon is how often WireGuard is asked while the first handshake with a peer is under way:
	// a little later it may say another address of a peer without probes.
	PeeringSoon = 100 * time.Millisecond
	// PeeringStats is how often WireGuard is asked about all peers while nothing hangs on it.
	PeeringStats = 30 * time.Second
	// PeeringShake is how long a handshake may wait for its answer before another one is asked
	// for: WireGuard begins none within 5 s.
	PeeringShake = 5 * time.Second
	// PeeringAsk is how long handshakes stay without an answer before the peer is asked for one of its
	// own: WireGuard has tried twice.
	PeeringAsk = 10 * time.Second
	// PeeringWish is how long a peer with traffic has to begin a session itself: a round trip on a
	// continent.
	PeeringWish = 100 * time.Millisecond
	// PeeringYield is for how long a handshake that either end may begin is left to the end with
	// the greater key: a round trip around the world, and what the two learned apart.
	PeeringYield = 500 * time.Millisecond
	// PeeringTry is for how long after a packet the preshared keys of a lazy peer are tried: each
	// try is a handshake, which must not keep alive what nobody wants.
	PeeringTry = 2 * time.Minute
	// PeeringRekey is for how long a first handshake, or the first one with a peer's new key, is
	// pressed for: whoever does not answer then has no traffic, and begins one with the first packet.
	PeeringRekey = 30 * time.Second
	// PeeringKeepalive is WireGuard's, of peers that speak no probes: below the 30 s after which
	// routers forget.
	PeeringKeepalive = 25 * time.Second
	// PeeringLocals bounds the addresses of this machine that are remembered for ways to one
	// peer.
	PeeringLocals = 2 * (PathCandidates + PathHeard)
)
