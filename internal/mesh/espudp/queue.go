// SPDX-License-Identifier: Apache-2.0

package espudp

import (
	"net/netip"
	"sync/atomic"
)

// packet is one that waits.
type packet struct {
	data  []byte
	from  netip.AddrPort
	local netip.Addr
}

// queue is a bounded one. Its packets are used again: a flood costs what the bound says.
type queue struct {
	full, free chan *packet
	dropped    *atomic.Uint64 // its owner's
}

func newQueue(packets int, dropped *atomic.Uint64) *queue {
	return &queue{make(chan *packet, packets), make(chan *packet, packets), dropped}
}

// put copies a packet; it is dropped when there is no room.
func (q *queue) put(p packet) {
	if len(p.data) > packetBytes || len(q.full) == cap(q.full) {
		q.dropped.Add(1)
		return
	}
	var into *packet
	select {
	case into = <-q.free:
	default:
		into = &packet{}
	}
	p.data = append(into.data[:0], p.data...)
	*into = p
	select {
	case q.full <- into:
	default:
		q.back(into)
		q.dropped.Add(1)
	}
}

// back gives room for another packet.
func (q *queue) back(p *packet) {
	select {
	case q.free <- p:
	default:
	}
}
