// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// The connections of a session: which stream travels on which, when there shall
// be more or fewer, and which of them are dead.

// place chooses the connection of a stream's direction, and asks for more
// connections where they would help.
func (s *muxSession) place(st *muxStream, bulk bool, now time.Duration) {
	s.mu.Lock()
	if s.closed || s.streams[st.id] != st {
		s.mu.Unlock()
		return
	}
	places := make([]place, len(s.lanes), mostConns)
	at := -1
	for i, l := range s.lanes {
		places[i] = place{bulk: l.bulk, leaving: l.leaving || l.heLeft}
		if st.counted == l {
			at = i
		}
	}
	if st.counted == nil {
		at = -1
	}
	i := choose(places, at, bulk, s.busy.quiet(now), s.o.Beside)
	if i < 0 {
		s.mu.Unlock()
		return
	}
	to := s.lanes[i]
	s.countLocked(st, to, bulk, now)
	ask := s.enoughLocked(now)
	s.mu.Unlock()
	st.mu.Lock()
	st.want = to
	st.mu.Unlock()
	if ask != nil {
		ask()
	}
}

// countLocked moves a stream in the counts of bulk directions.
func (s *muxSession) countLocked(st *muxStream, to *lane, bulk bool, now time.Duration) {
	if st.counted != nil {
		st.counted.bulk--
		st.counted.needed = now
		st.counted = nil
	}
	if bulk {
		to.bulk++
		to.needed = now
		st.counted = to
		s.watchLocked(st)
	}
}

// enoughLocked says how to get more connections, nil if there are enough.
func (s *muxSession) enoughLocked(now time.Duration) func() {
	bulk := 0
	for _, l := range s.lanes {
		bulk += l.bulk
	}
	most := s.o.Connections
	if !s.busy.quiet(now) {
		most = min(most, 1+s.o.Beside)
	}
	want := wanted(bulk, most)
	if want <= len(s.lanes) || len(s.lanes) == 0 {
		return nil
	}
	if s.client {
		return s.dialMoreLocked(now)
	}
	if now < s.asking {
		return nil
	}
	s.asking = now + askEvery
	l := s.primaryLocked()
	frame := binary.BigEndian.AppendUint32(appendHeader(nil, frameConnections, 4, 0), uint32(want))
	return func() {
		l.control(frame)
		l.kick()
	}
}

func (s *muxSession) dialMoreLocked(now time.Duration) func() {
	if s.o.Dial == nil || s.dialling || now < s.dialAfter || s.closed || len(s.lanes) >= s.o.Connections {
		return nil
	}
	s.dialling = true
	s.owned.Add(1)
	return func() { go s.dial() }
}

// dial opens one more connection in the background.
func (s *muxSession) dial() {
	defer s.release()
	ctx, cancel := context.WithTimeout(life{s}, limit.Handshake+limit.Hello)
	conn, err := s.o.Dial(ctx)
	cancel()
	s.mu.Lock()
	s.dialling = false
	if err != nil {
		s.failedLocked()
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if err := s.Attach(conn); err != nil {
		conn.Close()
		return
	}
	s.mu.Lock()
	ask := s.enoughLocked(s.now())
	s.mu.Unlock()
	if ask != nil {
		ask()
	}
}

// failedLocked puts the next dial off.
func (s *muxSession) failedLocked() {
	s.failures++
	s.dialAfter = s.now() + min(askEvery<<min(s.failures, 6), time.Minute)
}

// backOffLocked judges a dial by how long its connection lived.
func (s *muxSession) backOffLocked(l *lane) {
	switch lived := s.now() - l.born; {
	case l.weLeft && l.heLeft, lived > laneIdle:
		s.failures = 0
	default:
		s.failedLocked()
	}
}

// asked handles the server's wish for so many connections.
func (s *muxSession) asked(n int) {
	s.mu.Lock()
	var dial func()
	if s.client && n > len(s.lanes) {
		dial = s.dialMoreLocked(s.now())
	}
	s.mu.Unlock()
	if dial != nil {
		dial()
	}
}

// Attach is described at Session.
func (s *muxSession) Attach(conn net.Conn) error {
	l := newLane(s, conn)
	s.mu.Lock()
	switch {
	case s.closed:
		err := lostSession(s.why)
		s.mu.Unlock()
		return err
	case len(s.lanes) >= s.o.Connections:
		s.mu.Unlock()
		return fault.New(fault.CodeLimit, "the session has as many connections as it may").Whyf("%d", s.o.Connections)
	}
	s.lanes = append(s.lanes, l)
	s.owned.Add(1)
	s.several.Store(true)
	s.armLocked()
	for st := range s.hot {
		st.mu.Lock()
		st.placed = -placeEvery // it is for them that l was opened
		st.mu.Unlock()
	}
	s.mu.Unlock()
	go l.serve()
	l.ping()
	return nil
}

// watch looks after a stream that is bulk or has a grown window.
func (s *muxSession) watch(st *muxStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		s.watchLocked(st)
	}
}

func (s *muxSession) watchLocked(st *muxStream) {
	if s.hot == nil {
		s.hot = map[*muxStream]struct{}{}
	}
	s.hot[st] = struct{}{}
	s.armLocked()
}

func (s *muxSession) armLocked() {
	if s.tick == nil && !s.closed {
		s.owned.Add(1)
		s.tick, s.tickDue = time.AfterFunc(tickEvery, s.onTick), s.now()+tickEvery
	}
}

// onTick runs while there are several connections, or streams to be watched.
func (s *muxSession) onTick() {
	defer s.release()
	now := s.now()
	s.mu.Lock()
	s.tick = nil
	if s.closed {
		s.mu.Unlock()
		return
	}
	cool := make([]*muxStream, 0, len(s.hot))
	for st := range s.hot {
		cool = append(cool, st)
	}
	late := max(0, now-s.tickDue)
	var pings, dead []*lane
	for _, l := range s.lanes {
		if time.Duration(l.last.Load()) >= l.unheard {
			l.unheard = 0
		} else { // we were not there to hear (liveness.Looks)
			l.unheard += late
		}
		if in := l.in.Load(); in-l.counted > notIdle {
			l.needed, l.counted = now, in // the peer needs it
		} else {
			l.counted = in
		}
		switch {
		case len(s.lanes) > 1 && l.unheard > 0 && now-l.unheard >= limit.DeadLive:
			dead = append(dead, l)
		case now-l.pinged >= limit.PingLive:
			l.pinged = now
			if l.unheard == 0 {
				l.unheard = now
			}
			pings = append(pings, l)
		}
	}
	s.mu.Unlock()

	var growth int64
	for _, st := range cool {
		reserve, grown, bulk := st.rest(now)
		growth += reserve
		s.cooled(st, grown, bulk, now)
	}
	s.growth.Add(growth)
	for _, l := range dead {
		l.lose(fault.New(fault.CodeSessionLost, "the connection is dead").Whyf("no byte came for %v", limit.DeadLive), false)
	}
	for _, l := range pings {
		l.ping()
	}
	s.retire(now)
	s.mu.Lock()
	ask := s.enoughLocked(now) // streams that stay bulk do not ask again after a loss, or a dial that failed
	if len(s.hot) > 0 || len(s.lanes) > 1 {
		s.armLocked()
	}
	s.mu.Unlock()
	if ask != nil {
		ask()
	}
}

// cooled takes a stream that is neither bulk nor grown from the watch.
func (s *muxSession) cooled(st *muxStream, grown, bulk bool, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bulk && st.counted != nil {
		st.counted.bulk--
		st.counted.needed = now
		st.counted = nil
	}
	if !bulk && !grown {
		delete(s.hot, st)
	}
}

// retire leaves the newest connection when it was not needed for a while, and
// those that the peer leaves.
func (s *muxSession) retire(now time.Duration) {
	s.mu.Lock()
	if n := len(s.lanes); n > 1 && s.client {
		if l := s.lanes[n-1]; l.bulk == 0 && now-l.needed > laneIdle {
			l.leaving = true
			l.shut.Store(true)
		}
	}
	var from []*lane
	for _, l := range s.lanes {
		if (l.leaving || l.heLeft) && !l.weLeft {
			from = append(from, l)
		}
	}
	i := slices.IndexFunc(s.lanes, func(l *lane) bool { return !l.leaving && !l.heLeft })
	if len(from) == 0 || i < 0 {
		s.mu.Unlock()
		return
	}
	to := s.lanes[i]
	streams := make([]*muxStream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	for _, l := range from {
		empty := true
		for _, st := range streams {
			if st.leave(l, to) {
				empty = false
			}
		}
		if empty {
			s.sendLeave(l)
		}
	}
}

func (s *muxSession) sendLeave(l *lane) {
	s.mu.Lock()
	l.weLeft = true
	both := l.heLeft
	s.mu.Unlock()
	l.control(appendHeader(nil, frameLeave, 0, 0))
	l.kick()
	if both && s.client {
		l.retire()
	}
}

// left handles LEAVE.
func (s *muxSession) left(l *lane) {
	s.mu.Lock()
	l.heLeft = true
	l.shut.Store(true)
	both := l.weLeft
	s.armLocked()
	s.mu.Unlock()
	if both && s.client {
		l.retire()
	}
}

// leave moves our direction of a stream away from l; true while it is there.
func (st *muxStream) leave(l, to *lane) bool {
	st.mu.Lock()
	here := st.lane == l || st.prev == l || st.want == l
	if st.want == l {
		st.want = to
	}
	over := st.werr != nil
	st.mu.Unlock()
	if here && !over {
		st.send()
	}
	return here && !over
}

// travels says whether a direction of the stream is on l or has bytes under way there.
func (st *muxStream) travels(l *lane) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.lane == l || st.prev == l || st.receiver.lane == l || st.coming != nil && st.coming.lane == l
}

// sends says whether our direction is on l.
func (st *muxStream) sends(l *lane) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.lane == l
}
