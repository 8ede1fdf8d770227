// SPDX-License-Identifier: Apache-2.0

// Package keyexchange agrees on the keys of IPsec between two nodes: over a TLS 1.3 connection between them, whose
// exporter (RFC 8446 section 7.5) gives one key for each direction. Every exchange is a full handshake with ephemeral
// keys; nothing is resumed, and nothing of an exchange outlives it but the keys. It does not open connections, does not
// decide when an exchange is due, and does not install states in the kernel: whoever calls it does.
//
//	initiator                                   responder
//	   TLS 1.3, both with their certificates, each pinned by the other
//	receives by SPI a
//	   ──────────── offer: epoch, SPI a, life ───►
//	                                            receives by SPI b, sends by SPI a,
//	                                            forgets what was before
//	   ◄─────────── answer: epoch, SPI b, life ────
//	sends by SPI b
//	   ──────────── done: epoch, SPI b ──────────►
//	forgets what was before
//
// Whoever receives has its key before anybody sends by it: no packet is lost to a change of keys.
package keyexchange
