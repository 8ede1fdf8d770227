// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// rangesText bounds the ranges that a hub keeps of an agent: about 400 rules.
	rangesText = 8 << 10
	// clientConnections bounds those of all clients on a hub's main port: ten at their bound.
	clientConnections = 100_000
	// certifiedHosts bounds the names and addresses in a certificate.
	certifiedHosts = 16
	// operatorConnections are kept for operators beyond that.
	operatorConnections = 64
	// namesWait is how long a request for the names of clusters may wait for a change. What a
	// changed policy takes away or gives is noticed at its end.
	namesWait = 30 * time.Second
	// tokenUses bounds the uses of one token.
	tokenUses = 10_000
	// askedAgain bounds the retries of a dial on the same session after its connection was
	// lost: the agent may report the loss before the hub notices it, and the retry may
	// use the lost connection, too.
	askedAgain = 2
	// revokedListed bounds the revoked identities that a status lists.
	revokedListed = 1_000
	// agentRecords bounds the agents that the hub remembers per cluster after they left.
	agentRecords = 64
	// dialUnwatched is how long a dial is under way before somebody listens to a client
	// that must be silent meanwhile: most have ended, and a look at the socket is enough.
	dialUnwatched = 100 * time.Millisecond
	// atOnce bounds an answer for which nobody shall wait.
	atOnce = 100 * time.Millisecond
	// portDial bounds the connect to the target of a port: the agent that waits may have to ask another hub.
	portDial = limit.DialTarget / 2
	// renewGrace is how long after its expiry an agent's certificate can still be renewed.
	renewGrace = 30 * 24 * time.Hour
)
