// SPDX-License-Identifier: Apache-2.0

// Package mesh is a node of the mesh: it joins what finds out, decides and acts,
// and shows how it is (docs/reference/mesh.md).
//
//	finder ──► members ──► routing ──► kernel       what is routed to whom
//	              │           │ peers
//	              └───────────┴──► peering ──► tunnel, attach (relay)     by which way
//	endpoint, attach, identity ──► announcement ──► finder                what others learn of us
//
// It decides nothing of ranges (topology), paths (path) and members (roster), and
// keeps only who this node is: its key and its overlay addresses.
package mesh
