// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries the packets of the mesh: a Socket for WireGuard, STUN and
// probes, and an Engine, which is WireGuard in this process over that socket and a
// TUN device. It does not decide which way a peer is reached (package path), nor
// what is routed into the TUN (package kernel), and it reads no probe.
//
//	          probes, STUN ──► bounded queue ──► callbacks
//	             │
//	UDP ──► Socket ──► Bind ──► device of wireguard-go ──► Tun
//	                    ▲  │
//	Receive(relay) ─────┘  └──► the peer's way: an address, or the Relay
//
// A peer's endpoint is one object for as long as the peer is there; its way is
// swapped by SetWay, from one packet to the next, and no session notices. WireGuard's
// own roaming is off for peers that speak probes, and on for others.
//
// # Two devices on one socket
//
// A packet of WireGuard says for whom it is by the receiver's index (types 2, 3 and 4),
// which the receiver chose and sent: the socket learns it from what its binds send.
// Type 1 bears a MAC under the receiver's public key. So several devices, each with
// a Bind of its own, share one Socket: whichever reads hands over what is the
// other's.
package tunnel
