// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// What a node learns of the NAT in front of it.
const (
	// STUNMessage bounds a STUN message: RFC 8489 keeps those of UDP within the
	// smallest MTU of IPv4, 576 bytes with the headers.
	STUNMessage = 548
	// STUNServers bounds the servers that a node has in its list, and STUNAsked how
	// many of a family it asks: with two it sees whether its mapping is the same for both.
	STUNServers, STUNAsked = 16, 2
	// STUNWait is how long the first request waits for its answer; each further one
	// twice as long (RFC 8489, 6.2.1).
	STUNWait = 500 * time.Millisecond
	// STUNTries is how often a server is asked before another one is: 3.5 s.
	STUNTries = 3
	// STUNOpen bounds requests without an answer.
	STUNOpen = 64
	// STUNKeep and STUNKeepLate bound the interval at which a mapping is kept while it is
	// needed: routers forget one after 30 s without a packet, and nodes that began
	// together shall not ask together.
	STUNKeep, STUNKeepLate = 20 * time.Second, 25 * time.Second
	// STUNSlow is the interval when nobody needs the mapping: enough to notice that
	// the network is another one.
	STUNSlow = 5 * time.Minute
	// STUNAgain is when a server that did not answer is asked again.
	STUNAgain = time.Minute
	// STUNRecheck is the least time between two requests to a server that is asked because another
	// one saw a change: two that never agree make no storm.
	STUNRecheck = time.Second
	// STUNHold is how long an endpoint counts that no server confirms: peers may reach it
	// while the servers are away.
	STUNHold = time.Minute

	// GatewayAgain is how long after a failure a router is asked again.
	GatewayAgain = 5 * time.Minute
	// GatewayLook is the longest time until a mapping is renewed, whatever its life: a router that
	// was restarted has forgotten it, and says so to nobody.
	GatewayLook = 10 * time.Minute

	// NetcheckTime bounds a check of the network as a whole.
	NetcheckTime = 5 * time.Second

	// LocalAddresses bounds the addresses of this machine that are announced.
	LocalAddresses = 32
)
