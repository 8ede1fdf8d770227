// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"sort"
	"sync"

	"google.golang.org/grpc/mem"
)

// buffers is a pool of the buffers of packets. gRPC's own goes from 32 KiB, which a packet of kube-apiserver is a
// little above, to 1 MiB, and fills each buffer with zeros before it gives it: half of what a transfer cost. Whoever
// takes one of these writes to all of it. Small ones are no larger than asked for: gRPC never gives them back.
type buffers struct {
	sizes []int
	pools []sync.Pool
}

// newPool makes one. Its sizes are those of packets: of what talks, of data, of kube-apiserver's data, and up to the
// largest that is received.
func newPool() mem.BufferPool {
	sizes := []int{4 << 10, 16 << 10, 32 << 10, 33 << 10}
	for size := 64 << 10; size <= 4<<20; size <<= 1 {
		sizes = append(sizes, size)
	}
	return &buffers{sizes: sizes, pools: make([]sync.Pool, len(sizes))}
}

// Get implements mem.BufferPool.
func (b *buffers) Get(length int) *[]byte {
	i := sort.SearchInts(b.sizes, length)
	if i == len(b.sizes) || mem.IsBelowBufferPoolingThreshold(length) {
		out := make([]byte, length)
		return &out
	}
	if had, ok := b.pools[i].Get().(*[]byte); ok {
		*had = (*had)[:length]
		return had
	}
	out := make([]byte, length, b.sizes[i])
	return &out
}

// Put implements mem.BufferPool.
func (b *buffers) Put(buf *[]byte) {
	if i := sort.SearchInts(b.sizes, cap(*buf)); i < len(b.sizes) && b.sizes[i] == cap(*buf) {
		b.pools[i].Put(buf)
	}
}
