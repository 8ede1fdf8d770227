// SPDX-License-Identifier: Apache-2.0

// Package netcheck finds out within a bounded time what the network in front of a
// node lets through: it asks STUN servers from the node's own socket, the router, and
// the hubs. What the answers mean is decided by package nat; it changes nothing.
package netcheck
