// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"time"
)

// The bounds of this package alone.
const (
	// tunnelBatch is the most packets that one system call takes or gives: what
	// wireguard-go makes its buffers for.
	tunnelBatch = 128
	// tunnelSegments is the most datagrams that the kernel joins to one (UDP_MAX_SEGMENTS).
	tunnelSegments = 64
	// tunnelBuffer is what the kernel keeps for the socket, each way: 7 MiB, as
	// wireguard-go has it, are 60 ms at 1 Gb/s.
	tunnelBuffer = 7 << 20
	// tunnelProbe bounds a packet that is no WireGuard's: a ping of a full Ethernet frame.
	tunnelProbe = 1500
	// tunnelInject bounds the packets that came through a relay and wait for WireGuard.
	tunnelInject = 1024
	// tunnelPacket bounds one of them, in bytes: what a relay carries.
	tunnelPacket = 9000
	// tunnelHeard is how many senders one receiver remembers, so that a packet of
	// theirs costs no memory: those of a large mesh that talk at one time.
	tunnelHeard = 256
	// tunnelIndex is how long an index that we gave to a session counts: WireGuard
	// refuses a session after 180 s, and its handshake may take 5 s before.
	tunnelIndex = 200 * time.Second
	// tunnelIndexes bounds the indexes of one peer: a handshake that is not answered
	// gets a new one each 5 s, for as long as one counts.
	tunnelIndexes = 64
	// tunnelAgain is how old a handshake may be that is sent again by another path: after it
	// WireGuard sends one of its own.
	tunnelAgain = 5 * time.Second
	// tunnelSelfTest is how long a datagram over loopback may take before its
	// offload counts as broken.
	tunnelSelfTest = time.Second
	// tunnelMTU is the least MTU of the link: IPv6 asks for it (RFC 8200 section 5).
	tunnelMTU = 1280
)
