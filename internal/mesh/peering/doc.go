// SPDX-License-Identifier: Apache-2.0

// Package peering keeps this node's paths to its peers: it owns the engine of WireGuard and
// what is known of the paths to each peer, sends and answers probes, and chooses preshared
// keys and key pairs. Which ranges go to which peer is given; the kernel and endpoints of this
// node belong to other packages (docs/reference/mesh.md, docs/reference/mesh-wire.md).
//
//	Set ──────────► pairs, peers ──► Engine.Apply
//	Probe, Relayed ─► path.Peer ─┐
//	Wake, Moved ───► path.Peer ──┤ touched
//	time ───► due, by a heap ────┴─► tick: path.Next ──► pings and calls, Engine.SetPath, keys
//
// What comes in is looked up without a lock, opened, and noted under mu. All that goes out but
// for pongs, and all that changes the engine, is done by tick or by a caller's own call, one
// at a time, under turn and without mu: no packet waits for the engine.
package peering
