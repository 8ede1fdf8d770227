// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// Unauthenticated holds the connections whose peer has not proved who it is, a bounded
// number of them. When it is full, a new one takes the place of the oldest if that one has
// kept us waiting longer than its grace; otherwise the new one waits, and all behind it wait
// in the kernel's queue. So thousands of agents that reconnect at once pass as fast as their
// handshakes can be done, instead of displacing each other, and a peer that holds a place
// and sends nothing loses it.
//
//	accept ──► place free ──────────────────────────────────► in
//	             └─ none: the oldest ──young, or unread───► wait for a place, or for its grace
//	                                 └─silent for its grace─► shed, in
type Unauthenticated struct {
	most   int
	shed   func() // counts one that lost its place
	unread func(net.Conn) int
	freed  chan struct{} // signalled when a place is given back

	mu      sync.Mutex
	order   list.List // of *Pending, the oldest first
	success successRate
}

// Pending is one such connection.
type Pending struct {
	of    *Unauthenticated
	conn  net.Conn
	since time.Time // since when it may have kept us waiting
	place *list.Element
}

// NewUnauthenticated holds at most so many; shed is called for each that lost its place.
func NewUnauthenticated(most int, shed func()) *Unauthenticated {
	return &Unauthenticated{most: most, shed: shed, unread: socket.Unread, freed: make(chan struct{}, 1), success: 1}
}

// Add takes a connection in. It waits for a place if need be, or for the end of ctx.
func (s *Unauthenticated) Add(ctx context.Context, conn net.Conn) *Pending {
	for {
		wait := s.room(time.Now())
		if wait <= 0 || ctx.Err() != nil {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.freed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &Pending{of: s, conn: conn, since: time.Now()}
	p.place = s.order.PushBack(p)
	return p
}

// room makes a place for one more, or says how long to wait for it.
func (s *Unauthenticated) room(now time.Time) (wait time.Duration) {
	s.mu.Lock()
	if s.order.Len() < s.most {
		s.mu.Unlock()
		return 0
	}
	grace := s.success.grace()
	oldest := s.order.Front().Value.(*Pending)
	wait = oldest.since.Add(grace).Sub(now)
	if wait <= 0 && s.unread(oldest.conn) > 0 { // it waits for us
		oldest.since = now
		s.order.MoveToBack(oldest.place)
		s.mu.Unlock()
		return limit.SilentGrace / 10
	}
	if wait > 0 {
		s.mu.Unlock()
		return wait
	}
	s.order.Remove(oldest.place)
	s.success.add(false)
	s.mu.Unlock()
	oldest.conn.Close()
	s.shed()
	return 0
}

// Authenticated gives the place back of a peer that has proved who it is.
func (p *Pending) Authenticated() { p.leave(true) }

// Gone gives the place back of a connection that has ended, or is known already.
func (p *Pending) Gone() { p.leave(false) }

func (p *Pending) leave(known bool) {
	s := p.of
	s.mu.Lock()
	held := p.place != nil
	if held {
		s.order.Remove(p.place) // nothing, if it was shed
		p.place = nil
		if known {
			s.success.add(true)
		}
	}
	s.mu.Unlock()
	if held {
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// successRate is the share, 0 to 1, of the last connections that authenticated, of those and
// the ones that were shed. A peer that is slow because all are slow needs time; under a flood
// of silent ones the places have to turn over faster.
type successRate float64

// remembered is about how many connections successRate looks back on.
const remembered = 64

func (l *successRate) add(known bool) {
	now := successRate(0)
	if known {
		now = 1
	}
	*l += (now - *l) / remembered
}

// grace is how long a connection may keep us waiting before it can lose its place.
func (l successRate) grace() time.Duration {
	return limit.SilentLeast + time.Duration(float64(l)*float64(limit.SilentGrace-limit.SilentLeast))
}
