// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// strangers are the connections whose peer has not proved who it is. There are
// at most so many. One more takes the place of the oldest, if that has kept us
// waiting for its grace; else it waits, and with it everybody behind it, in the
// kernel's queue. So thousands of agents that come back at once pass as fast as
// their handshakes can be done, instead of taking each other's places, and who
// holds a place and says nothing loses it.
//
//	accept ──► place free ──────────────────────────────────► in
//	             └─ none: the oldest ──young, or unread───► wait for a place, or for its grace
//	                                 └─silent for its grace─► shed, in
type strangers struct {
	most   int
	shed   func() // counts one that lost its place
	unread func(net.Conn) int
	freed  chan struct{} // signalled when a place is given back

	mu    sync.Mutex
	order list.List // of *stranger, the oldest first
	luck  luck
}

type stranger struct {
	of    *strangers
	conn  net.Conn
	since time.Time // since when it may have kept us waiting
	place *list.Element
}

func newStrangers(most int, shed func()) *strangers {
	return &strangers{most: most, shed: shed, unread: socket.Unread, freed: make(chan struct{}, 1), luck: 1}
}

// add takes a connection in. It waits for a place if need be, or for the end of ctx.
func (s *strangers) add(ctx context.Context, conn net.Conn) *stranger {
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
	p := &stranger{of: s, conn: conn, since: time.Now()}
	p.place = s.order.PushBack(p)
	return p
}

// room makes a place for one more. Where it cannot, it says how long to wait.
func (s *strangers) room(now time.Time) (wait time.Duration) {
	s.mu.Lock()
	if s.order.Len() < s.most {
		s.mu.Unlock()
		return 0
	}
	grace := s.luck.grace()
	oldest := s.order.Front().Value.(*stranger)
	wait = oldest.since.Add(grace).Sub(now)
	if wait <= 0 && s.unread(oldest.conn) > 0 { // it waits for us
		oldest.since = now
		s.order.MoveToBack(oldest.place)
		s.mu.Unlock()
		return limit.StrangerGrace / 10
	}
	if wait > 0 {
		s.mu.Unlock()
		return wait
	}
	s.order.Remove(oldest.place)
	s.luck.add(false)
	s.mu.Unlock()
	oldest.conn.Close()
	s.shed()
	return 0
}

// known gives the place back of a peer that has proved who it is.
func (p *stranger) known() { p.leave(true) }

// gone gives the place back of a connection that has ended, or is known already.
func (p *stranger) gone() { p.leave(false) }

func (p *stranger) leave(known bool) {
	s := p.of
	s.mu.Lock()
	held := p.place != nil
	if held {
		s.order.Remove(p.place) // nothing, if it was shed
		p.place = nil
		if known {
			s.luck.add(true)
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

// luck is how many of the last strangers turned out to be known, 0 to 1, of those
// and the ones that were shed. A peer that is slow because all are slow needs
// time; under a flood of silent ones time is what honest peers do not get.
type luck float64

// remembered is about how many strangers luck looks back on.
const remembered = 64

func (l *luck) add(known bool) {
	now := luck(0)
	if known {
		now = 1
	}
	*l += (now - *l) / remembered
}

// grace is how long a stranger may keep us waiting before it can lose its place.
func (l luck) grace() time.Duration {
	return limit.StrangerLeast + time.Duration(float64(l)*float64(limit.StrangerGrace-limit.StrangerLeast))
}
