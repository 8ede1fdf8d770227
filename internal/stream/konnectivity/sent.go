// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// sent counts the packets that gRPC has for a caller. It keeps them for a caller that
// does not read, up to 64 KiB and a packet, long after the stream's handler has returned:
// so the handler waits, and the stream has its place for as long as it costs memory. It is
// the pool of the packets' buffers, to which gRPC gives them back.
type sent struct {
	mem.BufferPool
	n     atomic.Int64
	freed chan struct{} // signalled when nothing is left
}

func newSent(pool mem.BufferPool) *sent {
	return &sent{BufferPool: pool, freed: make(chan struct{}, 1)}
}

// buffer is one of a packet's bytes. gRPC does not give back small ones, whose packets
// are not counted.
func (s *sent) buffer(b *[]byte) mem.Buffer {
	if !mem.IsBelowBufferPoolingThreshold(cap(*b)) {
		s.n.Add(1)
	}
	return mem.NewBuffer(b, s)
}

// Put implements mem.BufferPool.
func (s *sent) Put(b *[]byte) {
	s.BufferPool.Put(b)
	if s.n.Add(-1) == 0 {
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// wait returns when gRPC has let go of all packets, or ctx ends.
func (s *sent) wait(ctx context.Context) {
	for s.n.Load() > 0 {
		select {
		case <-s.freed:
		case <-ctx.Done():
			return
		}
	}
}
