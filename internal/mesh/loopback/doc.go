// SPDX-License-Identifier: Apache-2.0

// Package loopback has the kernel reach peers through a relay, as if they were on this machine: each peer has an
// address of 127.84.0.0/16, and one socket on the loopback link has the port of all of them. What the kernel sends
// there leaves through the relay, and what comes from the relay goes to the kernel's port from the address of its
// sender.
//
//	kernel ──► 127.84.0.7:p ──► Engine ──► relay ──► hub        WireGuard, or ESP in UDP: all of it encrypted
//	kernel ◄── 127.84.0.7:p ◄── Engine ◄── relay ◄── hub
//
// It does not choose paths, which package peering does, nor look into packets.
package loopback
