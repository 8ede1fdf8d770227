// SPDX-License-Identifier: Apache-2.0

package path

import (
	"time"
)

// The bounds of this package alone.
const (
	// pathRelays bounds the hubs that a peer is looked for at.
	pathRelays = 8
	// pathAnswer is how long a ping may take: the longest way around the world with
	// a busy modem at each end takes half of it.
	pathAnswer = time.Second
	// pathMissed pings in a row without an answer make a path a dead one.
	pathMissed = 3
	// pathLive is the ping interval of a path with traffic; with pathRetry it makes
	// a dead path known 2.5 to 4.5 s after its last answer.
	pathLive = 2 * time.Second
	// pathLiveSoon is the same with peers of which it has to be known sooner: 2.5 to 3.5 s after its last answer.
	pathLiveSoon = time.Second
	// pathRetry is the interval after a ping that had no answer.
	pathRetry = 500 * time.Millisecond
	// pathKeep is the interval without traffic. Routers forget a UDP mapping after 30 s
	// of silence (Linux' conntrack for one that was not answered; RFC 4787 asks for
	// two minutes, and is not heeded).
	pathKeep = 20 * time.Second
	// pathSpare is how often other candidates that answer are pinged.
	pathSpare = 30 * time.Second
	// pathHopeless is how often candidates that never answered are pinged while the
	// path is direct.
	pathHopeless = 5 * time.Minute
	// pathSeekOften and pathSeek are the intervals of rounds after the first ones, in
	// the first pathSeekLong and after it. Both ends do not wait for each other: within
	// 30 s, the life of a mapping, each has sent.
	pathSeekOften, pathSeek = 5 * time.Second, 25 * time.Second
	// pathSeekLong is how long rounds come often.
	pathSeekLong = time.Minute
	// pathCall is the least time between two calls to a peer, and pathCalled between
	// two of its calls that count.
	pathCall, pathCalled = 2 * time.Second, time.Second
	// pathBetter is how long another candidate must be the better one: paths that
	// swap places with each ping are changed once.
	pathBetter = 10 * time.Second
	// pathGain is the least gain in round trip for which a path is changed.
	pathGain = time.Millisecond
	// pathAbsent is for how long a hub is believed that a peer is not there.
	pathAbsent = 10 * time.Second
	// pathTurn is how long a candidate of a peer that speaks no probes is tried:
	// WireGuard repeats a handshake after 5 s.
	pathTurn = 6 * time.Second
	// pathSize is how often the size that a path passes is determined again.
	pathSize = 10 * time.Minute
	// pathSizeTries is how often a size is tried before it counts as too large.
	pathSizeTries = 3
)
