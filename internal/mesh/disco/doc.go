// SPDX-License-Identifier: Apache-2.0

// Package disco is what nodes of the mesh say to each other beside WireGuard, on
// its very socket: pings, their answers and calls, sealed for one receiver. It
// tells the three kinds of packets of that socket apart, and decides nothing of
// paths; docs/reference/mesh-wire.md section 3 is its specification.
package disco
