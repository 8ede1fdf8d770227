// SPDX-License-Identifier: Apache-2.0

// Package conns bounds the hub's connections: the descriptors that agents and callers
// leave free for the admin port, and how many connections a session may have. It also
// knows the live connections of each certificate, so that a revocation can end them. It does
// not authenticate a peer.
package conns
