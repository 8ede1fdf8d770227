// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// Paths between nodes of the mesh.
const (
	// PathCandidates bounds the candidates of a peer: a member states 64 at most,
	// and strangers who learn its key must not make it ping the world.
	PathCandidates = 64
	// PathHeard bounds those of them that were only heard: whoever replays a ping
	// from many addresses displaces no candidate that a member stated.
	PathHeard = 8
	// PathRelays bounds the hubs that a peer is looked for at.
	PathRelays = 8
	// PathAnswer is how long a ping may take: the longest way around the world with
	// a busy modem at each end takes half of it.
	PathAnswer = time.Second
	// PathMissed pings in a row without an answer make a path a dead one.
	PathMissed = 3
	// PathLive is the ping interval of a path with traffic; with PathRetry it makes
	// a dead path known 2.5 to 4.5 s after its last answer.
	PathLive = 2 * time.Second
	// PathRetry is the interval after a ping that had no answer.
	PathRetry = 500 * time.Millisecond
	// PathActive is how long after its last packet a path has traffic.
	PathActive = 30 * time.Second
	// PathKeep is the interval without traffic. Routers forget a UDP mapping after 30 s
	// of silence (Linux' conntrack for one that was not answered; RFC 4787 asks for
	// two minutes, and is not heeded).
	PathKeep = 20 * time.Second
	// PathSpare is how often other candidates that answer are pinged.
	PathSpare = 30 * time.Second
	// PathHopeless is how often candidates that never answered are pinged while the
	// path is direct.
	PathHopeless = 5 * time.Minute
	// PathSeekOften and PathSeek are the intervals of rounds after the first ones, in
	// the first PathSeekLong and after it. Both ends do not wait for each other: within
	// 30 s, the life of a mapping, each has sent.
	PathSeekOften, PathSeek = 5 * time.Second, 25 * time.Second
	// PathSeekLong is how long rounds come often.
	PathSeekLong = time.Minute
	// PathCall is the least time between two calls to a peer, and PathCalled between
	// two of its calls that count.
	PathCall, PathCalled = 2 * time.Second, time.Second
	// PathCalledAt bounds the endpoints of a call: with them a packet of 640 bytes, which
	// passes everywhere.
	PathCalledAt = 32
	// PathBetter is how long another candidate must be the better one: paths that
	// swap places with each ping are changed once.
	PathBetter = 10 * time.Second
	// PathGain is the least gain in round trip for which a path is changed.
	PathGain = time.Millisecond
	// PathIdle is how long a lazy peer is kept after its last packet.
	PathIdle = 5 * time.Minute
	// PathAbsent is for how long a hub is believed that a peer is not there.
	PathAbsent = 10 * time.Second
	// PathTurn is how long a candidate of a peer that speaks no probes is tried:
	// WireGuard repeats a handshake after 5 s.
	PathTurn = 6 * time.Second
	// PathHandshake is how old the handshake of such a peer may be while there is
	// traffic: WireGuard makes a new one after 120 s, and gives that 15 s here.
	PathHandshake = 135 * time.Second
	// PathSize is how often the size that a path passes is found anew.
	PathSize = 10 * time.Minute
	// PathSizeTries is how often a size is tried before it counts as too large.
	PathSizeTries = 3
)
