// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
)

// lostSession is what streams say after the end of their session.
func lostSession(why error) error {
	if why == nil {
		why = net.ErrClosed
	}
	return lost(why)
}

func lostConnection() error {
	return fault.New(fault.CodeSessionLost, "the connection of the stream was lost").
		Whyf("the session goes on").Hint("try again")
}

// Close tells the peer, if the link takes it at once, and ends everything.
func (s *muxSession) Close() error {
	s.end(nil, goAwayEnd)
	return nil
}

// end ends the session; why is nil if we want it.
func (s *muxSession) end(why error, code uint32) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.why = true, why
	lanes := slices.Clone(s.lanes)
	streams := make([]*muxStream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	clear(s.streams)
	unseen := s.accepted
	s.accepted = nil
	if s.tick != nil {
		s.tick.Stop()
	}
	s.mu.Unlock()
	err := lostSession(why)
	for _, st := range streams {
		st.fail(err)
		s.dropWindow(st)
	}
	for _, l := range lanes {
		l.farewell(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), code))
	}
	for _, st := range unseen {
		st.Close()
	}
	close(s.done)
}

// find gives a live stream, or nil.
func (s *muxSession) find(id uint32) *muxStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// remove forgets a stream that has ended both ways.
func (s *muxSession) remove(st *muxStream) {
	s.mu.Lock()
	if s.streams[st.id] == st {
		delete(s.streams, st.id)
		if (st.id%2 == 1) != s.client {
			s.incoming--
			size, changed := s.levels()
			s.announce(changed, size)
		}
	}
	delete(s.hot, st)
	if st.counted != nil {
		st.counted.bulk--
		st.counted = nil
	}
	s.mu.Unlock()
	s.dropWindow(st)
	s.feed()
}

func (s *muxSession) dropWindow(st *muxStream) {
	st.mu.Lock()
	reserve := st.window.drop()
	st.mu.Unlock()
	s.growth.Add(reserve)
}

// hold counts unread bytes.
func (s *muxSession) hold(n int64) {
	s.unread.Add(n)
	s.budget.unread.Add(n)
}

// free gives the memory of what nobody will read back.
func (s *muxSession) free(l chunkList) {
	s.hold(-l.n)
	for c := l.pop(); c != nil; c = l.pop() {
		s.budget.pools.put(c)
	}
}

// lost takes leave of a connection: its streams end, all others go on.
func (s *muxSession) lost(l *lane, why error) {
	s.mu.Lock()
	i := slices.Index(s.lanes, l)
	if i >= 0 {
		s.lanes = slices.Delete(s.lanes, i, i+1)
		s.past.Received += l.in.Load()
		s.past.Sent += l.out.Load()
		if at := s.begin.Add(time.Duration(l.last.Load())); at.After(s.past.LastReceived) {
			s.past.LastReceived = at
		}
		s.backOff(l)
	}
	s.several.Store(len(s.lanes) > 1)
	last := len(s.lanes) == 0
	if s.closed || last {
		s.mu.Unlock()
		s.end(why, goAwayEnd)
		return
	}
	streams := make([]*muxStream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	other, again := s.primary(), s.weGone
	s.mu.Unlock()
	if again { // it may have been under way
		other.control(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), goAwayDrain))
		other.kick()
	}
	for _, st := range streams {
		if !st.travels(l) {
			st.repeat(l)
			continue
		}
		st.fail(lostConnection())
		s.remove(st)
		s.sendReset(other, st.id, resetLost)
	}
}
