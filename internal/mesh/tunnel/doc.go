// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries the packets of the mesh: a Socket for WireGuard, STUN and
// probes, and an Engine, which is WireGuard in this process over that socket and a
// TUN device. It does not decide which path a peer is reached (package path), nor
// what is routed into the TUN (package kernel), and it reads no probe.
//
//	          probes, STUN ──► bounded queue ──► callbacks
//	             │
//	UDP ──► Socket ──► Bind ──► device of wireguard-go ──► Tun
//	                    ▲  │
//	Receive(relay) ─────┘  └──► the peer's path: an address, or the Relay
//
// A peer's endpoint is one object for as long as the peer is there; its path is
// swapped by SetPath, from one packet to the next, and no session notices. WireGuard's
// own roaming is off for peers that speak probes, and on for others.
//
// An engine has one device and one key. Another key ends all sessions; a re-handshake costs a round
// trip, and is what peers do once they learn the key.
package tunnel
