// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

// Relay carries packets to peers that no address reaches. It must copy what it
// keeps, and must not wait: what has no room is dropped, as a network does.
type Relay interface {
	Relay(hub string, peer member.Key, packets [][]byte)
}

// Bind is the Socket as wireguard-go's device sees it. The device opens and closes it; the
// Socket stays open.
type Bind struct {
	socket *Socket
	peers  *peers
	relay  Relay
	inject *queue

	mu     sync.Mutex
	closed chan struct{} // nil while it is not open
}

var _ conn.Bind = (*Bind)(nil)

func newBind(s *Socket, p *peers, r Relay) *Bind {
	return &Bind{socket: s, peers: p, relay: r, inject: newQueue(tunnelInject, tunnelPacket, &s.counts.Inject)}
}

// Open gives the device its receivers: one for each family, and one for what comes through a relay.
func (b *Bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	closed := make(chan struct{})
	fns := []conn.ReceiveFunc{b.injected(closed)}
	for _, f := range b.socket.families {
		if err := f.conn.SetReadDeadline(time.Time{}); err != nil {
			return nil, 0, err
		}
		fns = append(fns, b.receiver(f, closed))
	}
	b.closed = closed
	return fns, b.socket.port, nil
}

// Close ends the receivers; a deadline wakes those that wait.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		return nil
	}
	close(b.closed)
	b.closed = nil
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
func (b *Bind) BatchSize() int { return tunnelBatch }

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

// Send sends packets to a peer by the path that it has now. What cannot be sent is
// counted, and no error: a network loses packets.
func (b *Bind) Send(packets [][]byte, to conn.Endpoint) error {
	switch e := to.(type) {
	case *endpoint:
		if e.yields(b.socket.sessions.own(), packets) {
			return nil
		}
		e.went(packets)
		b.learn(packets, e)
		b.carry(packets, e)
	case *heard:
		if sent, err := b.socket.send(e.addr, e.local, packets, true); err != nil {
			b.socket.counts.Unsent.Add(uint64(len(packets) - sent))
		}
	default:
		return conn.ErrWrongEndpointType
	}
	return nil
}

// carry sends packets by the path that the peer has now.
func (b *Bind) carry(packets [][]byte, e *endpoint) {
	w := e.via.Load()
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
		b.socket.counts.NoPath.Add(uint64(len(packets)))
	}
}

// learn reads the session indexes of handshakes that are sent, and keeps the newest handshake, in
// case another path has to carry it.
func (b *Bind) learn(packets [][]byte, e *endpoint) {
	for _, p := range packets {
		if isInitiation(p) || len(p) == sizeResponse && p[0] == typeResponse {
			b.socket.sessions.gave(e, p)
			e.newest.Store(&handshake{bind: b, packet: bytes.Clone(p), at: time.Now()})
		}
	}
}

func isInitiation(p []byte) bool { return len(p) == sizeInitiation && p[0] == typeInitiation }

// Receive takes a packet that came from a peer through a relay, and reports false if it is not for
// WireGuard. It never waits.
func (b *Bind) Receive(peer member.Key, packet []byte) bool {
	e := b.peers.get(peer)
	if e == nil || disco.KindOf(packet) != disco.WireGuard {
		b.socket.counts.Unrelayed.Add(1)
		return false
	}
	look := b.socket.sessions.look()
	defer look.unlock()
	if _, ok := look.find(packet); !ok {
		b.socket.counts.Stray.Add(1)
		return true
	}
	e.came(packet)
	b.inject.put(slot{data: packet, end: e})
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

// receiver receives from one family. Its error is net.ErrClosed or none: any other one would end
// the device's receiver for good.
func (b *Bind) receiver(f *family, closed chan struct{}) conn.ReceiveFunc {
	from := make([]source, tunnelBatch)
	return func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		in := room{bufs[:min(len(bufs), len(from))], sizes, eps, from}
		for {
			select {
			case <-closed:
				return 0, net.ErrClosed
			default:
			}
			n, err := b.receive(f, in)
			if n > 0 || err != nil {
				return n, err
			}
		}
	}
}

// receive reads once.
func (b *Bind) receive(f *family, in room) (int, error) {
	n, err := f.in.read(f.raw, f.gro.Load(), in)
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded): // Close
		return 0, net.ErrClosed
	case err != nil:
		b.socket.counts.Failed.Add(1)
		return 0, nil
	}
	in.sizes = in.sizes[:n]
	if b.socket.sort(f.in, in) == 0 {
		return 0, nil
	}
	return n, nil
}
