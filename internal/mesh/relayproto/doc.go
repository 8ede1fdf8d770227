// SPDX-License-Identifier: Apache-2.0

// Package relayproto is what a node and a hub say to each other on a connection of the
// relay, as bytes and values: docs/reference/mesh-wire.md section 4 is its specification.
// It reads and writes no connection, and knows nothing of what a datagram holds.
package relayproto
