// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// The relay of nodes over a hub.
const (
	// RelayDatagram bounds a datagram: WireGuard over a link of 8,920 bytes, the largest
	// that networks carry as jumbo frames.
	RelayDatagram = 9_000
	// RelayFrame bounds the body of a frame: a datagram with the longest name, and what
	// later versions may add.
	RelayFrame = 16 << 10
	// RelayRead is the buffer for what a connection reads: the largest TLS record
	// behind the largest part of a frame.
	RelayRead = RelayFrame + 4 + 16<<10
	// RelayQueue bounds what waits for one node: 20 ms at 100 Mbit/s; more would be
	// late before it is sent.
	RelayQueue = 256 << 10
	// RelayWrite is what is written at once: four TLS records.
	RelayWrite = 64 << 10
	// RelayRecord is the most that one TLS record holds: what is longer leaves in several, at
	// once.
	RelayRecord = 16 << 10
	// RelayKept is the room that small frames have beyond the packets that wait: pongs
	// must pass a full queue, or a busy connection would seem a dead one.
	RelayKept = 16 << 10
	// RelayHub bounds those of all clusters: at RelayCost 1.6 GiB.
	RelayHub = 20_000
	// RelayNodeRate and RelayClusterRate are the bytes a second that a node and all of
	// a cluster may send, by default: a link of 1 Gbit/s, and of two. One core forwards some
	// 500 MB a second.
	RelayNodeRate, RelayClusterRate = 128 << 20, 256 << 20
	// RelayHubs bounds the hubs that a node is connected to, and the addresses by which
	// it tries to be.
	RelayHubs = 8
)

// Times of the relay.
const (
	// RelayDead is the silence after which a connection counts as dead, of the 30 s
	// that are promised; and how long a write may take.
	RelayDead = 29 * time.Second
	// AttachRefused is the longest wait after a hub has refused a node's
	// identity, if nothing else changes: a clock may be put right and a name become free;
	// and hubs record each attempt.
	AttachRefused = 10 * time.Minute
)
