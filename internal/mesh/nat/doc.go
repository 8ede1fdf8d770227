// SPDX-License-Identifier: Apache-2.0

// Package nat decides what a node knows of the network in front of it: STUN messages
// and the answers that count, the endpoints under which the world sees its socket,
// what kind of NAT that tells of (in the terms of RFC 4787), and which of the
// machine's addresses others may try. It sends nothing and knows no clock.
package nat
