// SPDX-License-Identifier: Apache-2.0

// Package wireguard is the mesh's other engine: the kernel's own WireGuard, behind the
// methods that package tunnel's Engine has. It makes the link, or takes over the one that
// an ended run has left, and tells the kernel what differs, and nothing else: sessions of
// peers that stay are not touched, and traffic flows while nobody is there to look.
//
// # What the kernel can, and what it cannot
//
// The kernel has the socket: probes and STUN share its port (package rawudp), and a relay is
// behind an address of this machine (package loopback). The kernel sends where it has heard a
// peer last; whoever has probes is sent to where they say, which is mended with each look. A
// peer without probes is followed by handshakes.
//
// A handshake is begun by the kernel alone: when a packet is to be sent and there is no
// session, or one of 120 s. From outside it can be asked for by a keepalive interval that
// becomes one from none (set_peer in drivers/net/wireguard/netlink.c: it sends a keepalive
// at once, and that begins a handshake where there is no session). While a session stands
// nothing begins one: another preshared key counts with the kernel's own next handshake,
// after 120 s at the latest while there is traffic, and the session continues until 180 s. An
// initiation that has no answer is repeated every 5 s, for 90 s, by whichever endpoint is
// set then: a turn of candidates needs no second request.
//
// A range can be given to a peer, which takes it from the one that had it, in one step; it
// can be taken away only together with all others of that peer. So what nobody is to have
// is given to a peer that nobody is, and that is removed in the same message: what stays is
// never away in between.
//
// What it shows of a peer are bytes and the time of the newest handshake. They are looked
// at again and again; who looks finds out what a peer with traffic is.
package wireguard
