// SPDX-License-Identifier: Apache-2.0

package keyconn

import "time"

// The bounds of this package.
const (
	// connsMost bounds connections that others have opened, connsOfOne those of one address (one /64 of IPv6). A
	// connection lasts some round trips: whoever is refused tries again.
	connsMost, connsOfOne = 64, 16
	// connsUnknown bounds those of addresses that no peer has: whoever has many addresses does not keep peers out.
	connsUnknown = connsMost / 2
	// connsTrusted is how many there may be before an address has to prove itself: half as many as of one address, so
	// that one alone does not use them up.
	connsTrusted = 8
	// connWithin is how long a connection may last: its handshake has handshakeWithin of it.
	connWithin, handshakeWithin = 10 * time.Second, 5 * time.Second
	// closeWithin is how long the other end may take to have read all, after that it has lost it.
	closeWithin = 2 * time.Second
	// packetBytes are those of a packet of QUIC: with the marker, UDP and IPv6 it has 1,252, and passes where IPv6 does.
	packetBytes = 1200
	// window bounds the bytes that wait to be read: three messages of an exchange have fewer.
	window = 4 << 10
)
