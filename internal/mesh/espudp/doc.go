// SPDX-License-Identifier: Apache-2.0

// Package espudp is the UDP port of ESP in UDP (RFC 3948) beside the kernel's IPsec: the kernel takes what is ESP, and
// this package sends and reads everything else behind the marker of four zero bytes. It does not install states, does
// not encrypt, and reads no probe.
//
//	          ESP ──► the kernel's states
//	           │
//	UDP 4500 ──┤        ┌─ probes, STUN ──► bounded queues ──► handlers
//	           └─ 0000 ─┤
//	                    └─ QUIC ──────────► bounded queue ───► Packets
//
// STUN servers have to answer with the marker (package base/stunserver does): other servers can not be asked here.
//
// The keepalives of RFC 3948 section 2.3 are not sent: a path without traffic is pinged every 20 s from both ends
// (package path), which is what the RFC asks for, and a mapping that nobody has a path by is kept by STUN.
package espudp
