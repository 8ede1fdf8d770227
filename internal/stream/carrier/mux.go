// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// muxSession is a session of our own mux: docs/reference/mux.md.
type muxSession struct {
	o      Options
	client bool
	budget *Budget
	begin  time.Time
	local  net.Addr
	remote net.Addr

	queued  atomic.Int64 // bytes that wait to be sent
	starved starved
	growth  atomic.Int64 // total growth of windows beyond their initial size
	several atomic.Bool  // more than one connection
	unread  atomic.Int64 // bytes received and not read
	busy    activity
	least   atomic.Int64 // shortest round trip, nanoseconds
	pinged  atomic.Int64 // newest PING for a round trip, nanoseconds

	mu        sync.Mutex
	lanes     []*lane // live ones, the oldest first
	streams   map[uint32]*muxStream
	newest    uint32 // id of our newest stream, 0 at first
	incoming  int    // streams of the peer
	accepted  []*muxStream
	announced int64 // first window announced to the peer
	assumed   int64 // first window announced by the peer
	weGone    bool  // GOAWAY sent
	heGone    bool  // GOAWAY received
	trips     trips
	samples   int                     // round trips measured
	hot       map[*muxStream]struct{} // bulk, or with a grown window
	tick      *time.Timer
	tickDue   time.Duration
	under     []underWay
	dialling  bool
	dialAfter time.Duration
	failures  int // dials in a row
	asking    time.Duration
	past      Traffic // of connections that ended
	closed    bool
	why       error

	came  chan struct{} // accepted is not empty
	done  chan struct{}
	owned atomic.Int64  // goroutines and the timer, and 1 until the session ends
	quiet chan struct{} // closed when owned is 0
}

const (
	// mostGrowth bounds the total growth of a session's windows beyond their initial size.
	mostGrowth = 64 << 20
	// mostQueued bounds the bytes that all streams of a session have queued for a stalled
	// link.
	mostQueued = 8 << 20
	// firstSamples is how many round trips are measured at the start, one after the other:
	// a single one may have met a busy machine.
	firstSamples = 4
	sampleEvery  = 100 * time.Millisecond // while windows want to grow
	tickEvery    = 500 * time.Millisecond
	laneIdle     = time.Minute // after which a connection without bulk traffic is closed
	notIdle      = 8 << 10     // bytes received within a tick, more than heartbeats
	askEvery     = time.Second // between two CONNECTIONS, and two dials
)

func newMux(conn net.Conn, o Options, client bool) (Session, error) {
	o.Connections = max(1, min(o.Connections, mostConns))
	if o.Beside <= 0 {
		o.Beside = max(1, runtime.GOMAXPROCS(0)-1)
	}
	if o.Budget == nil {
		o.Budget = NewBudget(limit.ClusterUnread)
	}
	s := &muxSession{
		o: o, client: client, budget: o.Budget, begin: time.Now(), local: conn.LocalAddr(), remote: conn.RemoteAddr(),
		streams: map[uint32]*muxStream{}, announced: firstWindow, assumed: firstWindow,
		came: make(chan struct{}, 1), done: make(chan struct{}), quiet: make(chan struct{}),
	}
	l := newLane(s, conn)
	s.lanes = append(s.lanes, l)
	s.owned.Store(2)
	go l.serve()
	l.ping()
	return s, nil
}

// life is a context that ends with the session.
type life struct{ s *muxSession }

func (l life) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l life) Done() <-chan struct{}       { return l.s.done }
func (l life) Value(any) any               { return nil }

func (l life) Err() error {
	select {
	case <-l.s.done:
		return context.Canceled
	default:
		return nil
	}
}

// now is the session's monotonic clock.
func (s *muxSession) now() time.Duration { return time.Since(s.begin) }

func (s *muxSession) trip() time.Duration { return time.Duration(s.least.Load()) }

func (s *muxSession) localAddr() net.Addr { return s.local }

func (s *muxSession) RemoteAddr() net.Addr { return s.remote }

func (s *muxSession) Done() <-chan struct{} { return s.done }

func (s *muxSession) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Info{Connections: len(s.lanes), Streams: len(s.streams), Unread: int(s.unread.Load())}
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

func (s *muxSession) ponged(sent time.Duration) {
	now := s.now()
	if sent <= 0 || sent > now {
		return // not ours
	}
	s.mu.Lock()
	s.trips.add(now-sent, now)
	s.least.Store(int64(s.trips.least()))
	s.samples++
	l := s.primaryLocked()
	again := s.samples < firstSamples && l != nil
	s.mu.Unlock()
	if again {
		l.ping()
	}
}

// measure sends a PING if the newest one is older than every, so that windows follow the
// current round trip.
func (s *muxSession) measure(now, every time.Duration) {
	newest := s.pinged.Load()
	if now-time.Duration(newest) < every || !s.pinged.CompareAndSwap(newest, int64(now)) {
		return
	}
	s.mu.Lock()
	l := s.primaryLocked()
	s.mu.Unlock()
	if l != nil {
		l.ping()
	}
}
