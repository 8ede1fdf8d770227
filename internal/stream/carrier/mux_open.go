// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"net"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// OpenStream sends OPEN and first in one write.
func (s *muxSession) OpenStream(ctx context.Context, first []byte) (Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	switch {
	case s.closed:
		err := lostSession(s.why)
		s.mu.Unlock()
		return nil, err
	case s.heGone:
		s.mu.Unlock()
		return nil, fault.New(fault.CodeDraining, "the peer takes no new streams").Hint("try again")
	}
	l := s.primaryLocked()
	if l == nil {
		err := lostSession(s.why)
		s.mu.Unlock()
		return nil, err
	}
	receive, _ := s.levelsLocked()
	st := newMuxStream(s, s.nextIDLocked(), l, s.assumed, max(receive, leastWindow))
	st.opening = true
	s.streams[st.id] = st
	s.mu.Unlock()

	head := first[:min(len(first), sendPayload, int(st.limit))]
	if len(head) > 0 {
		c := s.budget.pools.get(headerSize + len(head))
		c.r = headerSize
		c.w = c.r + copy(c.b[c.r:], head)
		if _, err := st.submit(c); err != nil {
			return nil, err
		}
	} else {
		st.send()
	}
	if rest := first[len(head):]; len(rest) > 0 {
		stop := context.AfterFunc(ctx, func() { st.Reset(resetClosed) })
		_, err := st.Write(rest)
		if !stop() {
			err = ctx.Err()
		}
		if err != nil {
			st.Reset(resetClosed)
			return nil, err
		}
	}
	return st, nil
}

// primaryLocked is the connection for new and interactive streams: the oldest that is not
// being closed, nil if there is none.
func (s *muxSession) primaryLocked() *lane {
	for _, l := range s.lanes {
		if !l.leaving && !l.heLeft {
			return l
		}
	}
	if len(s.lanes) > 0 {
		return s.lanes[0]
	}
	return nil
}

func (s *muxSession) nextIDLocked() uint32 {
	for {
		switch {
		case s.newest == 0 && s.client, s.newest >= mostID-1 && s.client:
			s.newest = 1
		case s.newest == 0, s.newest >= mostID-1:
			s.newest = 2
		default:
			s.newest += 2
		}
		if _, used := s.streams[s.newest]; !used {
			return s.newest
		}
	}
}

// levelsLocked are the first windows that new streams get: the size, and the size that
// the peer should know.
func (s *muxSession) levelsLocked() (size int64, changed bool) {
	// Streams that were reset before anybody accepted them take room as well.
	used := int64(max(s.incoming, len(s.accepted)))
	size = min(first(used, int64(max(s.o.Incoming, 1))), first(s.budget.Unread(), s.budget.most.Load()))
	return size, max(size, leastWindow) != s.announced
}

// opened handles OPEN.
func (s *muxSession) opened(l *lane, id, grant, assumed uint32) error {
	if (id%2 == 1) == s.client || grant > firstWindow || assumed > firstWindow {
		return violation("stream %d cannot be opened with windows of %d and %d", id, grant, assumed)
	}
	s.mu.Lock()
	if _, used := s.streams[id]; used {
		s.mu.Unlock()
		return violation("stream %d is open", id)
	}
	if l.dead.Load() { // who takes leave of l must see all streams that are on it
		s.mu.Unlock()
		return net.ErrClosed
	}
	size, changed := s.levelsLocked()
	refuse := size == 0 || s.weGone || s.closed
	var st, astray *muxStream
	if !refuse {
		st = newMuxStream(s, id, l, int64(grant), int64(assumed))
		st.known = true
		if l.leaving || l.heLeft { // our direction does not begin there
			st.want, astray = s.primaryLocked(), st
		}
		s.streams[id] = st
		s.incoming++
		if s.o.Accept == nil {
			s.accepted = append(s.accepted, st)
			select {
			case s.came <- struct{}{}:
			default:
			}
		}
	}
	s.announceLocked(changed, size)
	s.mu.Unlock()
	if refuse {
		return s.sendReset(l, id, ResetRefused)
	}
	if astray != nil {
		astray.send()
	}
	if s.o.Accept != nil {
		s.o.Accept(st)
	}
	return nil
}

// announceLocked tells the peer a new first window.
func (s *muxSession) announceLocked(changed bool, size int64) {
	l := s.primaryLocked()
	if !changed || l == nil {
		return
	}
	size = max(size, leastWindow)
	frame := binary.BigEndian.AppendUint64(appendHeader(nil, frameWindow, 8, 0), uint64(size))
	if l.control(frame) { // it leaves with the next write; nobody waits for it
		s.announced = size
	}
}

func (s *muxSession) sendReset(l *lane, id, code uint32) error {
	frame := binary.BigEndian.AppendUint32(appendHeader(nil, frameRst, 4, id), code)
	if !l.control(frame) {
		return violation("too many streams are refused without the refusals being read")
	}
	l.kick()
	return nil
}

func (s *muxSession) assume(size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assumed = int64(min(size, firstWindow))
}

// AcceptStream gives the streams in the order in which they came.
func (s *muxSession) AcceptStream(ctx context.Context) (Stream, error) {
	for {
		s.mu.Lock()
		if s.closed {
			err := lostSession(s.why)
			s.mu.Unlock()
			return nil, err
		}
		if len(s.accepted) > 0 {
			st := s.accepted[0]
			s.accepted[0] = nil
			if s.accepted = s.accepted[1:]; len(s.accepted) == 0 {
				s.accepted = nil
			} else {
				select {
				case s.came <- struct{}{}:
				default:
				}
			}
			s.mu.Unlock()
			return st, nil
		}
		s.mu.Unlock()
		select {
		case <-s.came:
		case <-s.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// GoAway is described at Session.
func (s *muxSession) GoAway() {
	s.mu.Lock()
	l := s.primaryLocked()
	if s.closed || s.weGone || l == nil {
		s.mu.Unlock()
		return
	}
	s.weGone = true
	s.mu.Unlock()
	l.control(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), goAwayDrain))
	l.kick()
}

func (s *muxSession) wentAway(code uint32) error {
	if code != goAwayDrain {
		err := fault.New(fault.CodeSessionLost, "the peer ended the session").Whyf("code %d", code)
		if code == goAwayViolation {
			s.broken(err, goAwayEnd)
		} else {
			s.end(err, goAwayEnd)
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heGone = true
	return nil
}
