// SPDX-License-Identifier: Apache-2.0

// Package ipsectunnel is the mesh's engine of IPsec: it keeps a tunnel to each peer on the path that is chosen for it,
// and decides when keys are exchanged and when states go. What the kernel has is package ipsec's, how two nodes agree
// on keys is package keyexchange's. It does not choose paths, and does not open sockets: who uses it does.
//
//	SetPath, age, use ──► decide ──► Dial ──► keyexchange ──► states: receive, send
//	peer ──► Run ────────────────────────────► keyexchange ──┘        │
//	                                                                  ▼
//	                                             policies of the peer, states before them go
//
// A tunnel belongs to the path on which it was agreed, and to the node that began it. A node begins one when it has
// none on the path by which it sends; another one of the same node takes its place, and what was before is received for
// a while longer. So both nodes may send by different paths, and neither has to know the other one's.
package ipsectunnel
