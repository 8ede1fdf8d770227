// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	packets "github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
)

// relay holds the nodes of one cluster that are connected to this hub. A packet goes
// from the reader of its source into the queue of its destination, which the writer
// of that one empties:
//
//	reader(a) ──forward──► queue(b), 256 KiB ──► writer(b)
//	    └─► dropped: no packet of ours, beyond a rate, absent, queue full
//
// A reader never waits for a queue, and a queue has one writer: who does not read
// loses its own packets and nobody else's.
type relay struct {
	total *relayTotal // of the hub
	pool  *sync.Pool  // of buffers

	mu    sync.RWMutex
	nodes map[string]*relayed
	most  int // nodes
	node  int64

	rate  allowance // bytes a second of all of them
	moved relayCount
	full  atomic.Int64 // connections that found no place
}

// relayTotal counts the connections of all clusters.
type relayTotal struct{ conns atomic.Int64 }

// relayCount is what was forwarded and what was not.
type relayCount struct {
	packets, bytes               atomic.Int64
	full, rated, absent, foreign atomic.Int64 // dropped
}

func (c *relayCount) dropped() int64 {
	return c.full.Load() + c.rated.Load() + c.absent.Load() + c.foreign.Load()
}

// droppedFor is the count of one value of the metric's label.
func (c *relayCount) droppedFor(reason string) int64 {
	switch reason {
	case "queue":
		return c.full.Load()
	case "rate":
		return c.rated.Load()
	case "absent":
		return c.absent.Load()
	}
	return c.foreign.Load()
}

func newRelay(total *relayTotal, b quota.RelayBounds) *relay {
	r := &relay{total: total, pool: newPool(), nodes: map[string]*relayed{}}
	r.bound(b)
	return r
}

// bound puts other limits into force. Connections that are there stay.
func (r *relay) bound(b quota.RelayBounds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most, r.node = int(b.Nodes), b.Node
	r.rate.set(b.Cluster)
	for _, n := range r.nodes {
		n.rate.set(b.Node)
	}
}

func (r *relay) nodeRate() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.node
}

// room says whether one more node finds a place. A cluster takes another place only
// while it has fewer than are free: alone it gets half of the hub's, and each next one
// finds some, however greedy the others are.
func (r *relay) room() error {
	has, free := len(r.nodes), limit.RelayHub-int(r.total.conns.Load())
	switch {
	case has >= r.most:
		return fault.Newf(fault.CodeLimit, "%d nodes of the cluster are connected to the relay", r.most).
			Hint("raise limits.relay.nodes of the hub, or connect to another hub")
	case free <= 0:
		return fault.Newf(fault.CodeLimit, "%d nodes are connected to the relay of this hub", limit.RelayHub).Hint("connect to another hub")
	case has >= free:
		return fault.Newf(fault.CodeLimit, "%d nodes of the cluster are connected to the relay", has).
			Whyf("only %d places of the hub are free, which are for other clusters", free).Hint("connect to another hub")
	}
	return nil
}

// enter adds a connection, and gives the older one of the same node whose place it takes.
func (r *relay) enter(n *relayed) (older *relayed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	older = r.nodes[n.name]
	if older == nil {
		if err := r.room(); err != nil {
			r.full.Add(1)
			return nil, err
		}
		r.total.conns.Add(1)
	}
	n.rate.set(r.node)
	r.nodes[n.name] = n
	if older != nil {
		older.gone.Store(true)
	}
	return older, nil
}

// leave takes a connection out, unless another one has its place.
func (r *relay) leave(n *relayed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.gone.Store(true)
	if r.nodes[n.name] == n {
		delete(r.nodes, n.name)
		r.total.conns.Add(-1)
	}
}

func (r *relay) find(name []byte) *relayed {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.nodes[string(name)]
}

// all lists the connections in no particular order.
func (r *relay) all() []*relayed {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*relayed, 0, len(r.nodes))
	for _, n := range r.nodes {
		out = append(out, n)
	}
	return out
}

// holds is what the relay takes of the hub's memory for the cluster.
func (r *relay) holds() (n int64) {
	for _, one := range r.all() {
		n += limit.RelayCost + one.out.waiting()
	}
	return n
}

// batch is what a reader has counted and not told yet: shared counters are touched
// once for each read, not for each packet.
type batch struct{ packets, bytes, full, rated, absent, foreign int64 }

func (b batch) into(c *relayCount) {
	for _, one := range []struct {
		n    int64
		into *atomic.Int64
	}{{b.packets, &c.packets}, {b.bytes, &c.bytes}, {b.full, &c.full}, {b.rated, &c.rated}, {b.absent, &c.absent}, {b.foreign, &c.foreign}} {
		if one.n > 0 {
			one.into.Add(one.n)
		}
	}
}

// forward passes the body of a packet's frame on, or drops it. An error is one of the
// frame, and ends the connection.
func (n *relayed) forward(body []byte, now time.Time, b *batch) error {
	name, datagram, err := relayproto.ParseNamed(body)
	if err != nil {
		return err
	}
	size := int64(len(datagram))
	if size > limit.RelayDatagram || !ciphertext(datagram) {
		b.foreign++
		return nil
	}
	if !n.may(size, now) {
		b.rated++
		return nil
	}
	to := n.known[string(name)]
	if to == nil || to.gone.Load() {
		if to = n.relay.find(name); to == nil {
			delete(n.known, string(name))
			b.absent++
			if n.absent.take(1, now) {
				n.out.put(func(q []byte) []byte { return relayproto.AppendAbsent(q, string(name)) }, relayproto.Head+1+len(name))
			}
			return nil
		}
		if len(n.known) >= limit.RelayKnown {
			clear(n.known)
		}
		n.known[string(name)] = to
	}
	if !to.out.packet(n.name, datagram) {
		to.lost.Add(1)
		b.full++
		return nil
	}
	if len(n.rung) == 0 || n.rung[len(n.rung)-1] != to.out {
		n.rung = append(n.rung, to.out)
	}
	b.packets++
	b.bytes += size
	return nil
}

// ciphertext says whether a datagram is one of WireGuard or a probe: all else is not
// sealed between two nodes, and no business of a relay.
func ciphertext(b []byte) bool {
	k := packets.KindOf(b)
	return k == packets.WireGuard || k == packets.Probe
}

// may takes bytes of the node's rate and of its cluster's, of that in larger pieces.
func (n *relayed) may(size int64, now time.Time) bool {
	if !n.rate.take(size, now) {
		return false
	}
	if n.lease < size {
		want := max(size, limit.RelayLease)
		if !n.relay.rate.take(want, now) {
			if want = size; !n.relay.rate.take(want, now) {
				return false
			}
		}
		n.lease += want
	}
	n.lease -= size
	return true
}

// allowance is a rate with a burst of a second, of which who finds too little takes
// nothing: packets are dropped, not kept.
type allowance struct {
	mu   sync.Mutex
	each float64 // a second; 0: no bound
	left float64
	at   time.Time
}

func (a *allowance) set(each int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if each == quota.Unbounded {
		each = 0
	}
	if a.each == 0 {
		a.left, a.at = float64(each), time.Time{}
	}
	a.each = float64(each)
	a.left = min(a.left, a.each)
}

// granted is the rate, 0 without a bound.
func (a *allowance) granted() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(a.each)
}

func (a *allowance) take(n int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.each == 0 {
		return true
	}
	if a.at.IsZero() {
		a.at = now
	}
	if since := now.Sub(a.at); since > 0 {
		a.left, a.at = min(a.left+since.Seconds()*a.each, a.each), now
	}
	if a.left < float64(n) {
		return false
	}
	a.left -= float64(n)
	return true
}
