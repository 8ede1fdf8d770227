// SPDX-License-Identifier: Apache-2.0

package relay

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

// Relay holds the nodes of one cluster that are connected to this hub. The goroutine that
// reads from a packet's source puts it into the queue of its destination, from which the
// destination's writer sends it:
//
//	reader(a) ──forward──► queue(b), 256 KiB ──► writer(b)
//	    └─► dropped: no packet of ours, beyond a rate, absent, queue full
//
// A reader never waits for a queue, and each queue has a writer of its own: a node that
// does not read loses its own packets and nobody else's.
type Relay struct {
	total *Total     // of the hub
	pool  *sync.Pool // of buffers

	mu    sync.RWMutex
	nodes map[string]*Node
	most  int   // nodes
	node  int64 // bytes a second of each

	rate  allowance // bytes a second of all of them
	moved Counts
	full  atomic.Int64 // connections that found no place
}

// Total counts the connections of all clusters.
type Total struct{ conns atomic.Int64 }

// Nodes counts those that are connected to the relays of all clusters.
func (t *Total) Nodes() int64 { return t.conns.Load() }

// Counts is what was forwarded and what was not.
type Counts struct {
	packets, bytes               atomic.Int64
	full, rated, absent, foreign atomic.Int64 // dropped
}

func (c *Counts) dropped() int64 {
	return c.full.Load() + c.rated.Load() + c.absent.Load() + c.foreign.Load()
}

// Packets is how many were passed on.
func (c *Counts) Packets() int64 { return c.packets.Load() }

// Bytes is how many they had.
func (c *Counts) Bytes() int64 { return c.bytes.Load() }

// Add takes over what another one has counted.
func (c *Counts) Add(o *Counts) {
	batch{o.packets.Load(), o.bytes.Load(), o.full.Load(), o.rated.Load(), o.absent.Load(), o.foreign.Load()}.into(c)
}

// DroppedFor is the count of one value of the metric's label.
func (c *Counts) DroppedFor(reason string) int64 {
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

func New(total *Total, b quota.RelayBounds) *Relay {
	r := &Relay{total: total, pool: newPool(), nodes: map[string]*Node{}}
	r.Bound(b)
	return r
}

// Bound puts other limits into force. Connections that are there stay.
func (r *Relay) Bound(b quota.RelayBounds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most, r.node = int(b.Nodes), b.Node
	r.rate.set(b.Cluster)
	for _, n := range r.nodes {
		n.rate.set(b.Node)
	}
}

// Refused counts the connections that found no place.
func (r *Relay) Refused() int64 { return r.full.Load() }

// Counts is what the relay has forwarded and dropped.
func (r *Relay) Counts() *Counts { return &r.moved }

func (r *Relay) nodeRate() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.node
}

// roomLocked says whether there is a place for one more node. A cluster takes another place only
// while it has fewer than are free: alone it gets half of the hub's, and each next one
// finds some, however greedy the others are.
func (r *Relay) roomLocked() error {
	has, free := len(r.nodes), limit.RelayHub-int(r.total.conns.Load())
	switch {
	case has >= r.most:
		return fault.Newf(fault.CodeLimit, "%d nodes of the cluster are connected to the relay", r.most).
			Hint("raise limits.relay.nodes of the hub, or connect to another hub")
	case free <= 0:
		return fault.Newf(fault.CodeLimit, "%d nodes are connected to the relay of this hub", limit.RelayHub).
			Hint("connect to another hub")
	case has >= free:
		return fault.Newf(fault.CodeLimit, "%d nodes of the cluster are connected to the relay", has).
			Whyf("only %d places of the hub are free, which are for other clusters", free).Hint("connect to another hub")
	}
	return nil
}

// enter adds a connection. older is that of the same node whose place it takes, if any.
func (r *Relay) enter(n *Node) (older *Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	older = r.nodes[n.Name]
	if older == nil {
		if err := r.roomLocked(); err != nil {
			r.full.Add(1)
			return nil, err
		}
		r.total.conns.Add(1)
	}
	n.rate.set(r.node)
	r.nodes[n.Name] = n
	if older != nil {
		older.gone.Store(true)
	}
	return older, nil
}

// leave removes a connection, unless a newer one has its place already.
func (r *Relay) leave(n *Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.gone.Store(true)
	if r.nodes[n.Name] == n {
		delete(r.nodes, n.Name)
		r.total.conns.Add(-1)
	}
}

func (r *Relay) Find(name []byte) *Node {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.nodes[string(name)]
}

// All lists the connections in no particular order.
func (r *Relay) All() []*Node {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		out = append(out, n)
	}
	return out
}

// Holds is the memory that the cluster's nodes and their queues take.
func (r *Relay) Holds() (n int64) {
	for _, one := range r.All() {
		n += relayCost + one.out.waiting()
	}
	return n
}

// batch is what a reader has counted but not yet published: shared counters are touched
// once for each read, not once for each packet.
type batch struct{ packets, bytes, full, rated, absent, foreign int64 }

func (b batch) into(c *Counts) {
	for _, one := range []struct {
		n    int64
		into *atomic.Int64
	}{
		{b.packets, &c.packets}, {b.bytes, &c.bytes}, {b.full, &c.full}, {b.rated, &c.rated},
		{b.absent, &c.absent}, {b.foreign, &c.foreign},
	} {
		if one.n > 0 {
			one.into.Add(one.n)
		}
	}
}

// forward passes the body of a packet's frame on, or drops it. An error is one of the
// frame, and ends the connection.
func (n *Node) forward(body []byte, now time.Time, b *batch) error {
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
		if to = n.relay.Find(name); to == nil {
			delete(n.known, string(name))
			b.absent++
			if n.absent.take(1, now) {
				n.out.put(func(q []byte) []byte { return relayproto.AppendAbsent(q, string(name)) }, relayproto.Head+1+len(name))
			}
			return nil
		}
		if len(n.known) >= relayKnown {
			clear(n.known)
		}
		n.known[string(name)] = to
	}
	if !to.out.putPacket(n.Name, datagram) {
		to.lost.Add(1)
		b.full++
		return nil
	}
	if len(n.woken) == 0 || n.woken[len(n.woken)-1] != to.out {
		n.woken = append(n.woken, to.out)
	}
	b.packets++
	b.bytes += size
	return nil
}

// ciphertext says whether a datagram is one of WireGuard, of IPsec or of path discovery. Anything else
// is not encrypted between two nodes and is not forwarded.
func ciphertext(b []byte) bool {
	k := packets.KindOf(b)
	return k == packets.WireGuard || k == packets.IPsec || k == packets.Probe
}

// may takes bytes of the node's rate and of its cluster's, of that in larger pieces.
func (n *Node) may(size int64, now time.Time) bool {
	if !n.rate.take(size, now) {
		return false
	}
	if n.lease < size {
		want := max(size, relayLease)
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

// allowance is a rate with a burst of one second. What exceeds it takes nothing of it:
// packets are dropped, not delayed.
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
