// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sync"
	"time"
)

// narrow is the narrow place of one direction, shared by all connections: it
// serves packets at a rate, from a queue of each connection in turns or from one
// queue of all.
type narrow struct {
	spec pathSpec

	mu      sync.Mutex
	changed sync.Cond
	flows   []*flow // those with packets, next first
	arrived []*flow // with one queue: whose packet is next, in order of arrival
	queued  int     // bytes of all
	closed  bool
	served  sync.WaitGroup
}

// flow is one direction of a connection before the narrow place.
type flow struct {
	at     *narrow
	line   *line
	chunks []chunk
	bytes  int
}

func newNarrow(spec pathSpec) *narrow {
	n := &narrow{spec: spec}
	n.changed.L = &n.mu
	n.served.Go(n.serve)
	return n
}

func (n *narrow) flow(l *line) *flow { return &flow{at: n, line: l} }

// push waits for room in the queue, as a sender does whose window is full.
func (f *flow) push(c chunk) {
	n := f.at
	n.mu.Lock()
	defer n.mu.Unlock()
	for f.full(c.n) {
		n.changed.Wait()
	}
	f.chunks = append(f.chunks, c)
	f.bytes += c.n
	n.queued += c.n
	if n.spec.Fair {
		if len(f.chunks) == 1 {
			n.flows = append(n.flows, f)
		}
	} else {
		n.arrived = append(n.arrived, f)
	}
	n.changed.Broadcast()
}

func (f *flow) full(more int) bool {
	if f.at.spec.Fair {
		return f.bytes > 0 && f.bytes+more > f.at.spec.Queue
	}
	return f.at.queued > 0 && f.at.queued+more > f.at.spec.Queue
}

// next takes the packet whose turn it is, and says whether it had to wait for
// one. It gives no flow when the narrow place is closed.
func (n *narrow) next() (f *flow, c chunk, idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.flows) == 0 && len(n.arrived) == 0 {
		if idle = true; n.closed {
			return nil, c, idle
		}
		n.changed.Wait()
	}
	if n.spec.Fair {
		f = n.flows[0]
		n.flows = slices.Delete(n.flows, 0, 1)
	} else {
		f = n.arrived[0]
		n.arrived = n.arrived[1:]
	}
	c = f.chunks[0]
	f.chunks = f.chunks[1:]
	f.bytes -= c.n
	n.queued -= c.n
	if n.spec.Fair && len(f.chunks) > 0 {
		n.flows = append(n.flows, f)
	}
	n.changed.Broadcast()
	return f, c, idle
}

// close waits until the queues are empty, and for the end of serve.
func (n *narrow) close() {
	n.mu.Lock()
	n.closed = true
	n.changed.Broadcast()
	n.mu.Unlock()
	n.served.Wait()
}

// serve lets packets pass at the rate. It sleeps when it is a step ahead, and
// what a sleep took too long is made up for while packets wait.
func (n *narrow) serve() {
	const step = 500 * time.Microsecond
	free := time.Now() // when the narrow place has served what it took
	for {
		f, c, idle := n.next()
		if f == nil {
			return
		}
		if now := time.Now(); idle && free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(float64(c.n) / n.spec.Rate * float64(time.Second)))
		if ahead := time.Until(free); ahead > step {
			time.Sleep(ahead)
		}
		c.due = free.Add(n.spec.Delay)
		f.line.push(c)
	}
}
