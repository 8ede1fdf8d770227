// SPDX-License-Identifier: Apache-2.0

// Package relay forwards the packets of a cluster's mesh between those of its nodes that
// have no direct path. It holds one connection for each node, bounds their number and
// rates, and never waits for a slow reader. It does not decide who is a node, and it cannot
// read the packets: they are WireGuard's.
package relay
