// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// The socket and the engine of the mesh.
const (
	// TunnelBatch is the most packets that one system call takes or gives: what
	// wireguard-go makes its buffers for.
	TunnelBatch = 128
	// TunnelSegments is the most datagrams that the kernel joins to one (UDP_MAX_SEGMENTS).
	TunnelSegments = 64
	// TunnelBuffer is what the kernel keeps for the socket, each way: 7 MiB, as
	// wireguard-go has it, are 60 ms at 1 Gb/s.
	TunnelBuffer = 7 << 20
	// TunnelProbes and TunnelSTUN bound what waits for the owner of the mesh, in
	// packets. 1,000 peers that answer at once fit; a flood costs half a MiB.
	TunnelProbes, TunnelSTUN = 1024, 64
	// TunnelProbe bounds a packet that is no WireGuard's: a ping of a full Ethernet frame.
	TunnelProbe = 1500
	// TunnelInject bounds the packets that came by a relay and wait for WireGuard.
	TunnelInject = 1024
	// TunnelPacket bounds one of them, in bytes: what a relay carries.
	TunnelPacket = 9000
	// TunnelHeard is how many senders one receiver remembers, so that a packet of
	// theirs costs no memory: those of a large mesh that talk at one time.
	TunnelHeard = 256
	// TunnelIndex is how long an index that we gave to a session counts: WireGuard
	// refuses a session after 180 s, and its handshake may take 5 s before.
	TunnelIndex = 200 * time.Second
	// TunnelIndexes bounds the indexes of one peer: a handshake that is not answered
	// gets a new one each 5 s, for as long as one counts.
	TunnelIndexes = 64
	// TunnelAgain is how old a handshake may be that is sent again by another way: after it
	// WireGuard sends one of its own.
	TunnelAgain = 5 * time.Second
	// TunnelSelfTest is how long a datagram over loopback may take before its
	// offload counts as broken.
	TunnelSelfTest = time.Second
	// TunnelMTU is the least MTU of the link: IPv6 asks for it (RFC 8200 section 5).
	TunnelMTU = 1280
	// WireGuardLook is how often the kernel's WireGuard is asked about its peers: it tells of
	// nothing by itself. WireGuardRest times as long as the answer took is rested at least.
	WireGuardLook, WireGuardRest = time.Second, 20
	// WireGuardGone is how long a link may be missing before it counts as taken away: one that
	// was renamed gets its name back within RoutingRestMost, unless that fails.
	WireGuardGone = RoutingRestMost + WireGuardLook
	// WireGuardStale is how old an answer may be when a peer gets another endpoint: a handshake that
	// came since would say that the old one is good.
	WireGuardStale = 200 * time.Millisecond
	// WireGuardFresh is how old a session is before WireGuard makes another one (whitepaper,
	// section 6.1).
	WireGuardFresh = 120 * time.Second
	// WireGuardRepeats is how long the kernel repeats a handshake that has no answer: 90 s, and one
	// interval.
	WireGuardRepeats = 95 * time.Second
	// WireGuardPeers and WireGuardRanges bound a message to it: wgctrl sends what is more in
	// several, and then says of a peer that is named twice what was first alone.
	WireGuardPeers, WireGuardRanges = 32, 256
	// WireGuardPorts is how often a port is looked for that is free in both IP versions.
	WireGuardPorts = 8
	// PSKTurn is how long one of several preshared keys is tried: WireGuard repeats
	// a handshake after 5 s.
	PSKTurn = 10 * time.Second
)
