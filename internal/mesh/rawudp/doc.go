// SPDX-License-Identifier: Apache-2.0

// Package rawudp shares a UDP port with the kernel's WireGuard, which has the socket for itself: by raw sockets it
// sends from that port, and hears what comes to it of probes and STUN. So others see both at one port, behind one
// mapping of a NAT.
//
//	from others ──► port ──┬──► the kernel's WireGuard, which drops what is not its own
//	                       └──► a filter in the kernel ──► probes, STUN: Run
//
// It does not take anything away from the socket's owner, and no packet of WireGuard comes up from the kernel. It does
// not judge what it hands over: whatever is in there proves itself.
package rawudp
