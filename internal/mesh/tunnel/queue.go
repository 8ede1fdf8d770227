// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
)

// slot holds a packet that waits, and what is known of it.
type slot struct {
	data  []byte
	from  netip.AddrPort
	local netip.Addr
	end   conn.Endpoint
}

// queue is a bounded one of packets. Its slots are used again, so that a flood costs
// what the bound says and not more.
type queue struct {
	full    chan *slot
	free    chan *slot
	most    int            // bytes of a packet
	dropped *atomic.Uint64 // its owner's
}

func newQueue(packets, most int, dropped *atomic.Uint64) *queue {
	return &queue{full: make(chan *slot, packets), free: make(chan *slot, packets), most: most, dropped: dropped}
}

// put copies a packet; false when there is no room, and it is dropped and counted. It never waits.
func (q *queue) put(s slot) bool {
	if len(s.data) > q.most || len(q.full) == cap(q.full) {
		q.dropped.Add(1)
		return false
	}
	var into *slot
	select {
	case into = <-q.free:
	default:
		into = &slot{}
	}
	s.data = append(into.data[:0], s.data...)
	*into = s
	select {
	case q.full <- into:
		return true
	default:
		q.back(into)
		q.dropped.Add(1)
		return false
	}
}

// back gives a slot for another packet.
func (q *queue) back(s *slot) {
	s.end = nil
	select {
	case q.free <- s:
	default:
	}
}
