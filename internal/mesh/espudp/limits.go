// SPDX-License-Identifier: Apache-2.0

package espudp

// The bounds of this package.
const (
	// packetBytes bounds a packet: a ping of a full Ethernet frame.
	packetBytes = 1500
	// quicPackets bounds those that wait for QUIC: the handshakes that may be pending, of three datagrams each.
	quicPackets = 256
	// buffer is what the kernel keeps for the socket. ESP does not go through it.
	buffer = 1 << 20
	// tries are how often a port is chosen that is free for both families.
	tries = 100
)
