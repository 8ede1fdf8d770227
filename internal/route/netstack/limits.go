// SPDX-License-Identifier: Apache-2.0

package netstack

// Bounds of this package.
const (
	// mostPending bounds the connections about which nothing is decided yet, as a hub bounds the dials of a cluster.
	mostPending = 2_000
	// queued bounds the packets that wait to be written to the device, which never waits for long.
	queued = 512
	// batch is how many packets are written at once at most.
	batch = 32
	// splits is into how many packets at most the device splits one: 64 KiB with the segments of an Ethernet.
	splits = 48
	// offset leaves room for the virtio-net header in front of a packet (10 bytes).
	offset = 16
	// quoted is how much of a packet an ICMP message quotes at most: RFC 4443 asks for as much as fits into 1280 bytes,
	// and headers with all their options fit into this.
	quoted = 128
)
