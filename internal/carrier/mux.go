// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

// muxSession is a session of our own mux: docs/reference/mux.md.
type muxSession struct {
	o      Options
	client bool
	budget *Budget
	begin  time.Time
	local  net.Addr
	remote net.Addr

	queued  atomic.Int64 // bytes given to be sent
	starved starved
	growth  atomic.Int64 // what windows have beyond their start
	several atomic.Bool  // more than one connection
	busy    activity
	least   atomic.Int64 // shortest round trip, nanoseconds

	mu        sync.Mutex
	lanes     []*lane // live ones, the oldest first
	streams   map[uint32]*muxStream
	newest    uint32 // id of our newest stream, 0 at first
	incoming  int    // streams of the peer
	accepted  []*muxStream
	announced int64 // first window that the peer was told
	assumed   int64 // first window that the peer told us
	weGone    bool  // GOAWAY sent
	heGone    bool  // GOAWAY received
	trips     trips
	samples   int                     // round trips measured
	pinged    time.Duration           // newest PING for a round trip
	hot       map[*muxStream]struct{} // bulk, or with a grown window
	tick      *time.Timer
	dialling  bool
	dialAfter time.Duration
	failures  int // dials in a row
	asking    time.Duration
	past      Traffic // of connections that ended
	closed    bool
	why       error

	came   chan struct{} // something in accepted
	done   chan struct{}
	cancel context.CancelFunc
	life   context.Context
}

const (
	// mostGrowth bounds what the windows of a session have beyond their start.
	mostGrowth = 64 << 20
	// mostQueued bounds what all streams of a session have given to be sent, for a
	// link that does not move.
	mostQueued = 8 << 20
	// firstSamples is how many round trips are measured at once at the begin: the
	// first alone may have met a busy machine.
	firstSamples = 4
	sampleEvery  = 100 * time.Millisecond // while windows want to grow
	tickEvery    = 500 * time.Millisecond
	laneIdle     = time.Minute // after which a connection without bulk is left
	notIdle      = 8 << 10     // bytes that come within a tick, more than heartbeats
	askEvery     = time.Second // between two CONNECTIONS, and two dials
)

func newMux(conn net.Conn, o Options, client bool) (Session, error) {
	o.Connections = max(1, min(o.Connections, mostConns))
	if o.Budget == nil {
		o.Budget = NewBudget(limit.ClusterUnread)
	}
	s := &muxSession{
		o: o, client: client, budget: o.Budget, begin: time.Now(), local: conn.LocalAddr(), remote: conn.RemoteAddr(),
		streams: map[uint32]*muxStream{}, announced: firstWindow, assumed: firstWindow,
		came: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.life, s.cancel = context.WithCancel(context.Background())
	l := newLane(s, conn)
	s.lanes = append(s.lanes, l)
	go l.serve()
	l.ping()
	return s, nil
}

// now is the session's clock, which nobody can set.
func (s *muxSession) now() time.Duration { return time.Since(s.begin) }

func (s *muxSession) trip() time.Duration { return time.Duration(s.least.Load()) }

func (s *muxSession) localAddr() net.Addr  { return s.local }
func (s *muxSession) RemoteAddr() net.Addr { return s.remote }

func (s *muxSession) Done() <-chan struct{} { return s.done }

func (s *muxSession) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Info{Kind: Mux, Connections: len(s.lanes), Streams: len(s.streams)}
	for _, st := range s.streams {
		i.Unread += int(st.unread())
	}
	return i
}

func (s *muxSession) Traffic() Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.past
	for _, l := range s.lanes {
		t.Received += l.in.Load()
		t.Sent += l.out.Load()
		if at := s.begin.Add(time.Duration(l.last.Load())); at.After(t.LastReceived) {
			t.LastReceived = at
		}
	}
	return t
}

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
	l := s.primary()
	if l == nil {
		err := lostSession(s.why)
		s.mu.Unlock()
		return nil, err
	}
	receive, _ := s.levels()
	st := newMuxStream(s, s.nextID(), l, s.assumed, max(receive, leastWindow))
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
		if !stop() && err != nil {
			err = ctx.Err()
		}
		if err != nil {
			st.Reset(resetClosed)
			return nil, err
		}
	}
	return st, nil
}

// primary is the connection for what is new and interactive: the oldest that
// stays, nil if none lives. It needs the lock.
func (s *muxSession) primary() *lane {
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

// nextID needs the lock.
func (s *muxSession) nextID() uint32 {
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

// levels are the first windows that new streams get: the size, and the size that
// the peer should know. It needs the lock.
func (s *muxSession) levels() (size int64, changed bool) {
	// Streams that were reset before anybody accepted them take room as well.
	used := int64(max(s.incoming, len(s.accepted)))
	size = min(first(used, int64(max(s.o.Incoming, 1))), first(s.budget.Unread(), s.budget.most))
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
	size, changed := s.levels()
	refuse := size == 0 || s.weGone || s.closed
	if !refuse {
		st := newMuxStream(s, id, l, int64(grant), int64(assumed))
		st.known = true
		if l.leaving || l.heLeft { // our direction does not begin there
			st.want = s.primary()
		}
		s.streams[id] = st
		s.incoming++
		s.accepted = append(s.accepted, st)
		select {
		case s.came <- struct{}{}:
		default:
		}
	}
	s.announce(changed, size)
	s.mu.Unlock()
	if refuse {
		return s.sendReset(l, id, ResetRefused)
	}
	return nil
}

// announce tells the peer a new first window. It needs the lock.
func (s *muxSession) announce(changed bool, size int64) {
	l := s.primary()
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
	l := s.primary()
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
		s.end(err, goAwayEnd)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heGone = true
	return nil
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
	s.cancel()
	err := lostSession(why)
	for _, l := range lanes {
		l.control(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), code))
		if l.sock != nil { // without blocking
			l.kick()
		}
		l.lose(net.ErrClosed, false)
	}
	for _, st := range streams {
		st.fail(err)
		s.dropWindow(st)
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

// free gives the memory of what nobody will read back.
func (s *muxSession) free(l chunkList) {
	s.budget.unread.Add(-l.n)
	for c := l.pop(); c != nil; c = l.pop() {
		s.budget.pools.put(c)
	}
}

func (s *muxSession) ponged(sent time.Duration) {
	now := s.now()
	if sent <= 0 || sent > now {
		return // not ours
	}
	s.mu.Lock()
	s.trips.add(now-sent, now)
	s.least.Store(int64(s.trips.least()))
	s.samples++
	l := s.primary()
	again := s.samples < firstSamples && l != nil
	s.mu.Unlock()
	if again {
		l.ping()
	}
}

// measure sends a PING if the newest is old: a window wants to grow, and must know
// the path as it is.
func (s *muxSession) measure(now time.Duration) {
	s.mu.Lock()
	l := s.primary()
	due := l != nil && now-s.pinged >= sampleEvery
	if due {
		s.pinged = now
	}
	s.mu.Unlock()
	if due {
		l.ping()
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
	f := fault.From(why)
	if s.closed || last || f != nil && f.Code == fault.CodeFrameInvalid {
		s.mu.Unlock()
		code := uint32(goAwayEnd)
		if f != nil && f.Code == fault.CodeFrameInvalid {
			code = goAwayViolation
		}
		s.end(why, code)
		return
	}
	streams := make([]*muxStream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	other := s.primary()
	s.mu.Unlock()
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

// activity tells whether something interactive happens: more than a heartbeat.
type activity struct{ second, count, before atomic.Int64 }

const heartbeatFrames = 3

func (a *activity) note(now time.Duration) {
	if sec := int64(now / time.Second); sec != a.second.Load() {
		if old := a.second.Swap(sec); old == sec-1 {
			a.before.Store(a.count.Swap(0))
		} else if old != sec {
			a.before.Store(0)
			a.count.Store(0)
		}
	}
	a.count.Add(1)
}

func (a *activity) quiet(now time.Duration) bool {
	sec, at := int64(now/time.Second), a.second.Load()
	switch {
	case at == sec:
		return a.count.Load() <= heartbeatFrames && a.before.Load() <= heartbeatFrames
	case at == sec-1:
		return a.count.Load() <= heartbeatFrames
	}
	return true
}
