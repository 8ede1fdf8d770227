// SPDX-License-Identifier: Apache-2.0

// Package nat decides what a node knows about the network in front of it: STUN messages and the
// answers that count, the endpoints of its socket as seen from outside, the kind of NAT that they
// imply (in the terms of RFC 4787), and which of the machine's addresses others may try. It sends
// nothing and reads no clock.
package nat
