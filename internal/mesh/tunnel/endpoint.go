// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// endpointPrefix begins the text of a peer's endpoint.
const endpointPrefix = "peer:"

// endpoint is a peer as the socket sees it: one object for as long as the peer is
// there, whose path its owner swaps.
type endpoint struct {
	key   member.Key
	of    *peers
	via   atomic.Pointer[via]
	began time.Time

	sent, received atomic.Uint64 // packets with content
	lastSent       atomic.Int64  // since began, in nanoseconds; 0: never
	lastReceived   atomic.Int64
	asked          atomic.Int64 // the first handshake that was sent since one was completed
	watched        atomic.Bool
	newest         atomic.Pointer[handshake]
	initiations    atomic.Uint32 // since a handshake was completed

	mu     sync.Mutex
	shaken time.Time // by WireGuard's clock, which may jump
	shakes uint64
	unsent atomic.Pointer[failure]
}

// via is a path.Path, and the address of this machine that packets leave from; none if
// the kernel chooses.
type via struct {
	path.Path
	local netip.Addr
	plain atomic.Bool // packets are not joined
}

type failure struct{ error }

// handshake is the newest initiation or response that was sent.
type handshake struct {
	bind   *Bind
	packet []byte
	at     time.Time
}

// take sets the path of packets from now on. A handshake that was sent by the old path, or could not
// be sent at all, is sent again: WireGuard would wait for 5 s. If the first one did arrive, the
// peer drops this one as a replay.
func (e *endpoint) take(w *via) {
	was := e.via.Swap(w)
	h := e.newest.Load()
	if w.IsZero() || was.Path == w.Path || h == nil || time.Since(h.at) > tunnelAgain {
		return
	}
	h.bind.carry([][]byte{h.packet}, e)
}

func newEndpoint(k member.Key, of *peers) *endpoint {
	e := &endpoint{key: k, of: of, began: time.Now()}
	e.via.Store(&via{})
	return e
}

// Activity is what is known of a peer's traffic without asking WireGuard. Keepalives
// and handshakes do not count as packets.
type Activity struct {
	Sent, Received         uint64 // packets
	LastSent, LastReceived time.Time
	// Asked is when the first handshake was sent since one was completed; zero: none was. It is
	// as new as the last Stats.
	Asked time.Time
	// Unsent is why the kernel last refused to send.
	Unsent error
}

func (e *endpoint) activity() Activity {
	at := func(v *atomic.Int64) (t time.Time) {
		if n := v.Load(); n != 0 {
			t = e.began.Add(time.Duration(n))
		}
		return t
	}
	a := Activity{
		Sent: e.sent.Load(), Received: e.received.Load(),
		LastSent: at(&e.lastSent), LastReceived: at(&e.lastReceived), Asked: at(&e.asked),
	}
	if f := e.unsent.Load(); f != nil {
		a.Unsent = f.error
	}
	return a
}

// shook notes WireGuard's time of the last handshake, and counts it if it is another one
// than before.
func (e *endpoint) shook(at time.Time) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !at.IsZero() && !at.Equal(e.shaken) {
		e.shaken = at
		e.shakes++
		e.asked.Store(0)
		e.initiations.Store(0)
	}
	return e.shakes
}

// yields reports whether an initiation is left out: every other one that this node repeats, if its key is the smaller
// one. Two ends that begin at one instant refuse each other's answers, and with traffic at both they begin again at one
// instant, 5 s later, for as long as it lasts: the random part of WireGuard's timer never comes to count.
func (e *endpoint) yields(own member.Key, packets [][]byte) bool {
	if len(packets) != 1 || !isInitiation(packets[0]) {
		return false
	}
	return e.initiations.Add(1)%2 == 0 && bytes.Compare(own[:], e.key[:]) < 0
}

// now is not 0.
func (e *endpoint) now() int64 { return int64(time.Since(e.began)) | 1 }

// went counts what is sent, and wakes the owner of a peer that was idle: a handshake is
// what the first packet to it, or the first one of its own, makes.
func (e *endpoint) went(packets [][]byte) {
	n, shake := uint64(0), false
	for _, b := range packets {
		switch {
		case len(b) > sizeTransport && b[0] == typeTransport:
			n++
		case len(b) > 0 && b[0] != typeTransport:
			shake = true
		}
	}
	if n > 0 {
		e.sent.Add(n)
		e.lastSent.Store(e.now())
	}
	if shake {
		e.asked.CompareAndSwap(0, e.now())
	}
	if n > 0 || shake {
		e.wake()
	}
}

// came counts a received packet, before it is decrypted: that it bears an index of the peer's
// session is enough to know that the peer is awake.
func (e *endpoint) came(packet []byte) {
	if e == nil || packet[0] != typeTransport || len(packet) <= sizeTransport {
		return
	}
	e.received.Add(1)
	e.lastReceived.Store(e.now())
	e.wake()
}

func (e *endpoint) wake() {
	if e.watched.Load() && e.watched.CompareAndSwap(true, false) && e.of.wake != nil {
		e.of.wake(e.key)
	}
}

// The methods of conn.Endpoint.

func (e *endpoint) ClearSrc()           {}
func (e *endpoint) SrcToString() string { return "" }
func (e *endpoint) DstToString() string { return endpointPrefix + e.key.String() }
func (e *endpoint) DstToBytes() []byte  { return e.key[:] }

// DstIP is what WireGuard limits the rate of handshakes by: one address for each peer.
func (e *endpoint) DstIP() netip.Addr     { return netip.AddrFrom16([16]byte(e.key[:16])) }
func (e *endpoint) SrcIP() (a netip.Addr) { return a }

// peers are the endpoints of all peers.
type peers struct {
	mu   sync.RWMutex
	of   map[member.Key]*endpoint
	wake func(member.Key) // must return at once, and call nothing of this package
}

func (p *peers) get(k member.Key) *endpoint {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.of[k]
}

func (p *peers) add(k member.Key) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.of[k]
	if e == nil {
		e = newEndpoint(k, p)
		p.of[k] = e
	}
	return e
}

func (p *peers) remove(k member.Key) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.of[k]
	delete(p.of, k)
	return e
}
