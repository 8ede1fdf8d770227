// SPDX-License-Identifier: Apache-2.0

// Package reach decides by which node each range of a linked cluster is reached, and through which of its own cluster's
// gateways a node sends. It gives ranges to the members of a mesh, whose planner makes tunnels and routes of them; it
// plans nothing in the kernel.
//
//	node ──► own gateway ──► gateway of the other cluster ──► node      both of type gateway
//	node ─────────────────────────────────────────────────► node      both of type p2p
//	node ──► own gateway ────────────────────────────────► node      the first of type gateway, the second p2p
//
// WireGuard takes packets from a peer only if it would send answers to the same peer. So what two nodes decide has to
// fit together: it depends on what all of them know alike, and on whether a gateway is down, which they notice alike.
package reach
