// SPDX-License-Identifier: Apache-2.0

// Package vpn is the reversed VPN by OpenVPN: it starts the real program, tells it through its management interface who
// may come and what is behind whom, and changes addresses, routes and rules itself. It does not carry packets, nor
// decide what is written to the kernel: OpenVPN and package network do.
package vpn
