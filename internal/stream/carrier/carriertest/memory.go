// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// MemoryOptions of a twin.
type MemoryOptions struct {
	Incoming int // streams that each end lets the other open; 0: 10,000
	Window   int // bytes that a direction of a stream holds unread; 0: 256 KiB
}

// Memory is a pair of sessions without sockets, TLS and frames: what one end
// does the other sees at once. It keeps every rule of carrier.Session, holds no
// goroutine, waits on nothing but its own streams and timers, and so may live in a
// synctest bubble. Like a transport that dies, the end of a session drops what
// its peer had not read.
func Memory(o MemoryOptions) Pair {
	if o.Incoming == 0 {
		o.Incoming = 10_000
	}
	if o.Window == 0 {
		o.Window = 256 << 10
	}
	pair := &memoryPair{MemoryOptions: o}
	pair.buffers.New = func() any { b := make([]byte, memoryChunk); return &b }
	a, b := pair.end(1), pair.end(2)
	a.peer, b.peer = b, a
	return Pair{
		A: a, B: b, Cut: func() { a.Close() },
		Lacks: map[Rule]string{PromptSinks: "there is no connection that somebody reads"},
	}
}

const (
	memoryChunk = 32 << 10
	// memoryFrame is what Traffic counts for each event beside its bytes.
	memoryFrame = 8
	// refused is the code of a stream that nobody has seen.
	refused = carrier.ResetRefused
)

// memoryPair is what both ends share. One lock guards everything.
type memoryPair struct {
	MemoryOptions
	mu      sync.Mutex
	buffers sync.Pool // of *[]byte
}

func (p *memoryPair) end(host byte) *memorySession {
	s := &memorySession{
		pair: p, addr: address(host), streams: map[*memoryStream]struct{}{},
		done: make(chan struct{}), traffic: carrier.Traffic{LastReceived: time.Now()},
	}
	s.arrived.L = &p.mu
	return s
}

// memorySession is one end.
type memorySession struct {
	pair *memoryPair
	peer *memorySession
	addr net.Addr
	done chan struct{}

	arrived  sync.Cond // a stream came, the session ended or a context did
	pending  []*memoryStream
	streams  map[*memoryStream]struct{}
	incoming int  // streams that the peer opened and that live or were not accepted yet
	draining bool // the peer shall open no more
	ended    bool
	unread   int
	traffic  carrier.Traffic
}

func sessionLost() error {
	return fault.New(fault.CodeSessionLost, "the session has ended")
}

// moved counts an event of n bytes that this end has sent. It needs the lock.
func (s *memorySession) moved(n int) {
	s.traffic.Sent += int64(n + memoryFrame)
	s.peer.traffic.Received += int64(n + memoryFrame)
	s.peer.traffic.LastReceived = time.Now()
}

// OpenStream gives first as a Write would: if it is larger than the window, it
// waits for the peer to read, or for the end of ctx.
func (s *memorySession) OpenStream(ctx context.Context, first []byte) (carrier.Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stream, err := s.open()
	if err != nil || len(first) == 0 {
		return stream, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Reset(0) })
	_, err = stream.Write(first)
	if !stop() {
		return nil, ctx.Err()
	}
	if err != nil {
		stream.Reset(0)
		return nil, err
	}
	return stream, nil
}

func (s *memorySession) open() (*memoryStream, error) {
	p := s.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s.ended:
		return nil, sessionLost()
	case s.peer.draining:
		return nil, fault.New(fault.CodeDraining, "the peer takes no new streams")
	}
	there, back := newQueue(&p.mu, p.Window), newQueue(&p.mu, p.Window)
	near := &memoryStream{session: s, in: back, out: there}
	far := &memoryStream{session: s.peer, in: there, out: back, incoming: true}
	near.other, far.other = far, near
	s.moved(0)
	if s.peer.incoming >= p.Incoming {
		near.wasReset(refused)
		return near, nil
	}
	for _, stream := range []*memoryStream{near, far} {
		stream.session.streams[stream] = struct{}{}
		stream.in.on = stream.count
	}
	s.peer.incoming++
	s.peer.pending = append(s.peer.pending, far)
	s.peer.arrived.Broadcast()
	return near, nil
}

func (s *memorySession) AcceptStream(ctx context.Context) (carrier.Stream, error) {
	mu := &s.pair.mu
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		s.arrived.Broadcast()
	})
	defer stop()
	mu.Lock()
	defer mu.Unlock()
	for {
		switch {
		case s.ended:
			return nil, sessionLost()
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(s.pending) > 0:
			next := s.pending[0]
			s.pending = s.pending[1:]
			next.accepted = true
			if _, live := s.streams[next]; !live {
				s.incoming--
			}
			return next, nil
		}
		s.arrived.Wait()
	}
}

func (s *memorySession) GoAway() {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if !s.draining && !s.ended {
		s.draining = true
		s.moved(0)
	}
}

func (s *memorySession) Attach(net.Conn) error {
	return fault.New(fault.CodeLimit, "a session in memory has no connections")
}

func (s *memorySession) Close() error {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	for _, end := range []*memorySession{s, s.peer} {
		if end.ended {
			continue
		}
		end.ended = true
		close(end.done)
		end.arrived.Broadcast()
		for stream := range end.streams {
			stream.lost()
		}
		clear(end.streams)
		end.pending, end.incoming = nil, 0
	}
	return nil
}

func (s *memorySession) Done() <-chan struct{} { return s.done }

func (s *memorySession) Traffic() carrier.Traffic {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	return s.traffic
}

func (s *memorySession) Info() carrier.Info {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	info := carrier.Info{Connections: 1, Streams: len(s.streams), Unread: s.unread}
	if s.ended {
		info.Connections = 0
	}
	return info
}

func (s *memorySession) RemoteAddr() net.Addr { return s.peer.addr }
