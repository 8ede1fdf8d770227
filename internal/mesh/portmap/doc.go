// SPDX-License-Identifier: Apache-2.0

// Package portmap asks the router in front of a node to hand a UDP port on to it: by
// NAT-PMP (RFC 6886), else by UPnP IGD. It believes nothing that a router should not
// say, asks none but the default gateway, and never maps a port that is not ours.
package portmap
