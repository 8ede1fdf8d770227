// SPDX-License-Identifier: Apache-2.0

package netstack

import "time"

// Bounds of this package.
const (
	// mostPending bounds the connections about which nothing is decided yet, as a hub bounds the dials of a cluster.
	mostPending = 2_000
	// mostFlows bounds the flows of datagrams. Those that are not answered end after limit.DatagramIdle.
	mostFlows = 4_096
	// refusedFor is how long the datagrams of a refused flow are dropped before one is a dial again.
	refusedFor = time.Second
	// flowQueue and flowBytes bound the datagrams of a flow that wait for its stream, allBytes those of all flows.
	flowQueue = 64
	flowBytes = 256 << 10
	allBytes  = 16 << 20
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
