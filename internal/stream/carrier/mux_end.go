// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// lostSession is what streams say after the end of their session. It cuts the chain
// of causes on purpose: io.EOF of the connection is not io.EOF of a stream.
func lostSession(why error) error {
	if why == nil {
		why = net.ErrClosed
	}
	return fault.New(fault.CodeSessionLost, "the session has ended").Whyf("%v", why)
}

func lostConnection() error {
	return fault.New(fault.CodeSessionLost, "the connection of the stream was lost").
		Whyf("the session goes on").Hint("try again")
}

// closeWithin bounds how long Close waits: for a Dial that ignores its context, and
// where it was called by Accept, Dial or Lost, for itself.
const closeWithin = 5 * time.Second

// Close tells the peer, if the link takes it at once, ends everything, and waits for
// the goroutines of the session.
func (s *muxSession) Close() error {
	s.end(nil, goAwayEnd)
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-s.quiet:
	case <-timer.C:
	}
	return nil
}

// release ends what was counted in owned. What is started is counted while the
// session, or the reader of its connection, still is: at 0 nothing starts any more.
func (s *muxSession) release() {
	if s.owned.Add(-1) == 0 {
		close(s.quiet)
	}
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
	if s.tick != nil && s.tick.Stop() {
		s.release() // never the last: the session itself is counted
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
	s.release()
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
		if at := st.unheard(); at != nil {
			s.rememberLocked(st.id, at)
		}
		if (st.id%2 == 1) != s.client {
			s.incoming--
			size, changed := s.levelsLocked()
			s.announceLocked(changed, size)
		}
		st.noteShort()
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

// noteShort counts a stream that has ended after a few bytes either way as talk: one
// of many, perhaps, of which none has come as far as to be counted by its frames.
func (st *muxStream) noteShort() {
	st.mu.Lock()
	short, l := !st.background && st.sent > 0 && st.sent < paceBulk && st.offset < paceBulk, st.lane
	st.mu.Unlock()
	if short {
		now := st.s.now()
		st.s.busy.note(now)
		l.busy.note(now)
	}
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
	if s.o.Tally != nil {
		s.o.Tally.Add(n)
	}
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
		s.backOffLocked(l)
	}
	s.several.Store(len(s.lanes) > 1)
	remain, closed, clean := len(s.lanes), s.closed, l.weLeft && l.heLeft
	if closed || remain == 0 {
		s.mu.Unlock()
		if !closed {
			s.tell(Loss{causeOf(why, clean), 0, why})
		}
		s.end(why, goAwayEnd)
		return
	}
	streams := make([]*muxStream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	other, again := s.primaryLocked(), s.weGone
	gone := s.forgottenLocked(l)
	if clean { // all that was sent on it has been read, or will be
		gone = nil
	}
	s.mu.Unlock()
	if again { // it may have been under way
		other.control(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), goAwayDrain))
		other.kick()
	}
	for _, st := range streams {
		if clean && !st.sends(l) {
			if st.waitsOn(l) {
				st.repeat(l)
			}
			continue
		}
		if !st.travels(l) {
			st.repeat(l)
			continue
		}
		st.fail(lostConnection())
		s.remove(st)
		gone = append(gone, st.id)
	}
	var frames []byte
	s.mu.Lock()
	for _, id := range gone {
		s.rememberLocked(id, other)
		frames = binary.BigEndian.AppendUint32(appendHeader(frames, frameRst, 4, id), resetLost)
	}
	s.mu.Unlock()
	other.say(frames)
	s.tell(Loss{causeOf(why, clean), remain, why}) // last: streams must not wait for Lost
}

// tell needs to be without locks.
func (s *muxSession) tell(l Loss) {
	if s.o.Lost != nil {
		s.o.Lost(l)
	}
}

// broken ends a session for a violation.
func (s *muxSession) broken(why error, code uint32) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		s.tell(Loss{CauseViolation, 0, why})
	}
	s.end(why, code)
}

// causeOf tells from its failure why a connection was lost. What is known to be
// dead is a fault of ours or a bound of TCP's; all else failed at once.
func causeOf(why error, clean bool) Cause {
	switch {
	case clean:
		return CauseLeft
	case fault.Has(why, fault.CodeSessionLost), errors.Is(why, os.ErrDeadlineExceeded), errors.Is(why, syscall.ETIMEDOUT):
		return CauseSilent
	}
	return CauseBroken
}

// underWay is a stream that has ended here, of which the peer may not know the
// whole because something is under way on l.
type underWay struct {
	id uint32
	l  *lane
	at time.Duration
}

// rememberLocked keeps one for as long as bytes can be under way: then they have
// arrived, or the connection is dead.
func (s *muxSession) rememberLocked(id uint32, l *lane) {
	now := s.now()
	for len(s.under) > 0 && now-s.under[0].at > limit.DeadIdle {
		s.under = s.under[1:]
	}
	s.under = append(s.under, underWay{id, l, now})
}

// forgottenLocked gives those of which something was under way on l, which is lost.
func (s *muxSession) forgottenLocked(l *lane) (ids []uint32) {
	s.under = slices.DeleteFunc(s.under, func(u underWay) bool {
		if u.l == l {
			ids = append(ids, u.id)
		}
		return u.l == l
	})
	return ids
}

// unheard is the connection on which a MOVE of ours may be under way, nil if none is.
func (st *muxStream) unheard() *lane {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.prev == nil {
		return nil
	}
	return st.lane
}
