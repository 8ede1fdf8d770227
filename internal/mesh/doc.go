// SPDX-License-Identifier: Apache-2.0

// Package mesh is a node of the mesh: it joins what finds out, decides and acts, and shows how
// the node is (docs/reference/mesh.md).
//
//	discovery, machine, attach, endpoint, peering ──► gather ──► world ─┐
//	API, reload, routing's peers ──────────────────────────────► event ─┤
//	                                                                    ▼
//	       published: state ◄── loop: step(state, event, now) ──► state, effects
//	          │                                                      │
//	   status, API, callbacks            files, announcement, routing, peering, attach
//
// One loop owns the state. A step is a pure function; what it decides is carried out by the
// loop, in the order of the effects. The rest reads the state that was published last, or asks the
// loop. What runs is made from the bottom up (parts), each of what is before it: routing, the engine
// with its socket, endpoints, peering.
//
// The package decides nothing about ranges (topology), paths (path) and members (roster).
package mesh
