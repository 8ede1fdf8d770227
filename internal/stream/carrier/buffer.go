// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"math/bits"
	"sync"
)

// chunk is a piece of memory with the bytes b[r:w] in it. Received chunks form a
// list; a chunk to be sent leaves room for a frame header before its bytes.
type chunk struct {
	b    []byte
	r, w int
	next *chunk
}

func (c *chunk) len() int { return c.w - c.r }

const (
	leastChunk = 9  // 512 bytes
	mostChunk  = 15 // 32 KiB
)

// chunkPools recycle chunks by size, in powers of two. The garbage collector
// takes what is not used for a while.
type chunkPools [mostChunk - leastChunk + 1]sync.Pool

// get gives an empty chunk of at least n bytes, n <= 32 KiB.
func (p *chunkPools) get(n int) *chunk {
	class := max(bits.Len(uint(n-1)), leastChunk)
	if c, ok := p[class-leastChunk].Get().(*chunk); ok {
		return c
	}
	return &chunk{b: make([]byte, 1<<class)}
}

// put takes c back; nil is nothing.
func (p *chunkPools) put(c *chunk) {
	if c == nil {
		return
	}
	c.r, c.w, c.next = 0, 0, nil
	p[bits.Len(uint(len(c.b)-1))-leastChunk].Put(c)
}

// chunkList is a list of chunks with n bytes.
type chunkList struct {
	head, tail *chunk
	n          int64
}

func (l *chunkList) append(c *chunk) {
	c.next = nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	l.n += int64(c.len())
}

// prepend puts c before all others.
func (l *chunkList) prepend(c *chunk) {
	c.next = l.head
	l.head = c
	if l.tail == nil {
		l.tail = c
	}
	l.n += int64(c.len())
}

func (l *chunkList) pop() *chunk {
	c := l.head
	if c == nil {
		return nil
	}
	if l.head = c.next; l.head == nil {
		l.tail = nil
	}
	c.next = nil
	l.n -= int64(c.len())
	return c
}

// join appends other and empties it.
func (l *chunkList) join(other *chunkList) {
	if other.head == nil {
		return
	}
	if l.tail == nil {
		l.head = other.head
	} else {
		l.tail.next = other.head
	}
	l.tail = other.tail
	l.n += other.n
	*other = chunkList{}
}

// trim takes the last n bytes away, and the chunks that hold nothing else. They
// are not for the pool: somebody may still be reading them.
func (l *chunkList) trim(n int64) {
	for n > 0 {
		c := l.tail
		m := min(n, int64(c.len()))
		c.w -= int(m)
		l.n -= m
		n -= m
		if c.len() > 0 {
			return
		}
		if l.head == c {
			l.head, l.tail = nil, nil
			return
		}
		before := l.head
		for before.next != c {
			before = before.next
		}
		before.next, l.tail = nil, before
	}
}

// took counts n bytes that were taken from the first chunk, and gives the chunk
// once it is empty.
func (l *chunkList) took(n int) (empty *chunk) {
	c := l.head
	c.r += n
	l.n -= int64(n)
	if c.len() == 0 {
		return l.pop()
	}
	return nil
}
