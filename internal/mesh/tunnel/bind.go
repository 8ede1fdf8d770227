// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

// Relay carries packets to peers that no address reaches. It must copy what it
// keeps, and must not wait: what has no room is dropped, as a network does.
type Relay interface {
	Relay(hub string, peer member.Key, packets [][]byte)
}

// Bind is the Socket as a device of wireguard-go sees it. It is opened and closed by
// the device; the Socket stays open.
type Bind struct {
	socket *Socket
	peers  *peers
	relay  Relay
	inject *queue
	held   *held
	mac    atomic.Pointer[[blake2s.Size]byte] // of handshakes that are for it
	public atomic.Pointer[member.Key]

	crossing crossing

	mu     sync.Mutex
	closed chan struct{} // nil while it was not opened

	// Owned by the socket's sessions.
	indexes map[holder][]given
	places  int // of indexes, those of no peer
	swept   time.Time
}

var _ conn.Bind = (*Bind)(nil)

func newBind(s *Socket, p *peers, r Relay) *Bind {
	b := &Bind{
		socket: s, peers: p, relay: r, indexes: map[holder][]given{},
		inject: newQueue(limit.TunnelInject, limit.TunnelPacket, &s.counts.Inject),
	}
	b.held = newHeld(b)
	return b
}

// Open gives the device its receivers: one for each family, and one for what came by
// a relay or for another device of this socket.
func (b *Bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	closed := make(chan struct{})
	b.closed = closed
	fns := []conn.ReceiveFunc{b.injected(closed)}
	for _, f := range b.socket.families {
		fns = append(fns, b.receiver(f, closed))
	}
	b.socket.sessions.add(b)
	b.held.alarm.Start()
	return fns, b.socket.port, nil
}

// Close ends the receivers. The socket's readers are woken by a deadline: one of
// another bind goes on.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		return nil
	}
	close(b.closed)
	b.closed = nil
	b.held.alarm.Stop()
	b.held.drop()
	b.socket.sessions.remove(b)
	for _, f := range b.socket.families {
		if err := f.conn.SetReadDeadline(time.Unix(1, 0)); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// SetMark is not used: the mark is the socket's.
func (b *Bind) SetMark(uint32) error { return nil }

// BatchSize is how many packets a receiver or Send takes.
func (b *Bind) BatchSize() int { return limit.TunnelBatch }

// ParseEndpoint finds the endpoint of a peer, which is the same object each time.
func (b *Bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	text, ok := strings.CutPrefix(s, endpointPrefix)
	if !ok {
		return nil, fmt.Errorf("endpoint %q: only those of peers, %s and a key, are taken", s, endpointPrefix)
	}
	k, err := member.ParseKey(text)
	if err != nil {
		return nil, err
	}
	e := b.peers.get(k)
	if e == nil {
		return nil, fmt.Errorf("endpoint of %v: no such peer", k)
	}
	return e, nil
}

// Send sends packets to a peer by the way that it has now. What cannot be sent is
// counted, and no error: a network loses packets.
func (b *Bind) Send(packets [][]byte, to conn.Endpoint) error {
	switch e := to.(type) {
	case *endpoint:
		b.sendPeer(packets, e)
	case *heard:
		b.learn(packets, holder{at: e.addr})
		b.held.answered(packets)
		if sent, err := b.socket.send(e.addr, e.local, packets, true); err != nil {
			b.socket.counts.Unsent.Add(uint64(len(packets) - sent))
		}
	default:
		return conn.ErrWrongEndpointType
	}
	return nil
}

func (b *Bind) sendPeer(packets [][]byte, e *endpoint) {
	e.went(packets)
	if len(packets) != 1 || !isInitiation(packets[0]) {
		b.learn(packets, holder{peer: e})
		b.carry(packets, e)
		return
	}
	now := time.Now()
	if e.answer.Load().forbids(b, now) {
		b.socket.counts.Crossed.Add(1)
		return
	}
	b.crossing.begun(now)
	shake := b.learn(packets, holder{peer: e})
	if wait := b.yields(e, now); wait > 0 {
		b.held.put(e, shake, wait)
		return
	}
	b.carry(packets, e)
}

// carry sends packets by the way that the peer has now.
func (b *Bind) carry(packets [][]byte, e *endpoint) {
	w := e.way.Load()
	switch {
	case w.Direct():
		sent, err := b.socket.send(w.Addr, w.local, packets, !w.plain.Load())
		if err != nil {
			e.unsent.Store(&failure{err})
			b.socket.counts.Unsent.Add(uint64(len(packets) - sent))
		}
	case w.Relay != "" && b.relay != nil:
		b.relay.Relay(w.Relay, e.key, packets)
	default:
		b.socket.counts.NoWay.Add(uint64(len(packets)))
	}
}

// learn reads the indexes of handshakes. Who answers one has given up its own: the answer
// is what another way has to carry then. The newest is returned, of a peer's.
func (b *Bind) learn(packets [][]byte, to holder) (newest *handshake) {
	for _, p := range packets {
		if !isInitiation(p) && (len(p) != sizeResponse || p[0] != typeResponse) {
			continue
		}
		b.socket.sessions.gave(b, to, p)
		if e := to.peer; e != nil {
			newest = newHandshake(b, p, e.newest.Load())
			e.newest.Store(newest)
			if !isInitiation(p) {
				e.answer.Store(&answer{bind: b, index: binary.LittleEndian.Uint32(p[4:]), at: time.Now()})
			}
		}
	}
	return newest
}

func isInitiation(p []byte) bool { return len(p) == sizeInitiation && p[0] == typeInitiation }

// Receive takes a packet that came from a peer by a relay, and says false if it
// is not for WireGuard. It never waits.
func (b *Bind) Receive(peer member.Key, packet []byte) bool {
	e := b.peers.get(peer)
	if e == nil || disco.KindOf(packet) != disco.WireGuard {
		b.socket.counts.Unrelayed.Add(1)
		return false
	}
	look := b.socket.sessions.look()
	defer look.done()
	owner, _ := look.find(packet)
	if owner == nil {
		b.socket.counts.Stray.Add(1)
		return true
	}
	if owner.crosses(packet) {
		return true
	}
	e.came(owner, packet)
	owner.inject.put(slot{data: packet, end: e})
	return true
}

// injected receives what was put into the queue.
func (b *Bind) injected(closed chan struct{}) conn.ReceiveFunc {
	return func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		n := 0
		take := func(s *slot) {
			sizes[n], eps[n] = copy(bufs[n], s.data), s.end
			b.inject.back(s)
			n++
		}
		select {
		case <-closed:
			return 0, net.ErrClosed
		case s := <-b.inject.full:
			take(s)
		}
		for n < len(bufs) {
			select {
			case s := <-b.inject.full:
				take(s)
			default:
				return n, nil
			}
		}
		return n, nil
	}
}

// receiver receives from one family. Binds of one socket take turns: who waits for
// packets holds the baton.
func (b *Bind) receiver(f *family, closed chan struct{}) conn.ReceiveFunc {
	from := make([]source, limit.TunnelBatch)
	return func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		in := room{bufs[:min(len(bufs), len(from))], sizes, eps, from}
		for {
			select {
			case <-closed:
				return 0, net.ErrClosed
			case f.baton <- struct{}{}:
			}
			n, err := b.turn(f, closed, in)
			<-f.baton
			if n > 0 || err != nil {
				return n, err
			}
		}
	}
}

// turn reads once. The error is net.ErrClosed or none: any other one would end the
// device's receiver for good.
func (b *Bind) turn(f *family, closed chan struct{}, in room) (int, error) {
	select {
	case <-closed: // both were ready
		return 0, net.ErrClosed
	default:
	}
	n, err := f.in.read(f.raw, f.gro.Load(), in)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // some bind was closed
		if err := f.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, net.ErrClosed
		}
		return 0, nil
	case errors.Is(err, net.ErrClosed):
		return 0, net.ErrClosed
	case err != nil:
		b.socket.counts.Failed.Add(1)
		return 0, nil
	}
	in.sizes = in.sizes[:n]
	if b.socket.sort(b, f.in, in) == 0 {
		return 0, nil
	}
	return n, nil
}
