// SPDX-License-Identifier: Apache-2.0

// Package routing owns what the mesh has in the kernel: it has it planned (package
// topology), compares that with what is there, and changes what differs (package
// kernel), until the end, when it takes all of it away.
//
//	Set ───────────────┐                          ┌──► Peers: whom a tunnel goes to
//	members, health    ▼                          │
//	               stale? ──► topology.Plan ──► wanted
//	                                              │         nothing differs
//	Watch, a look ──► changed? ──► Observe ──► plan.Diff ─────────────────► in force
//	each minute          ▲                        │
//	                     │ backoff: failed        ▼
//	                     └───────────────────── Apply ──► the kernel, which reports it
//
// Changes that come together are one, and between two of them it rests for a while, and
// on large meshes for some times as long as the last one took: neither its own echo nor
// another program that fights it makes a loop. It knows nothing of endpoints and paths, and does
// not make the link.
package routing
