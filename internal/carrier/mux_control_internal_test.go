// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"testing"
)

// strayed is a session with a stream whose credit waits on l, a connection that
// does not send, although the stream travels on that of p: it has moved between the
// choice of l and the queueing.
func strayed(t *testing.T) (s *muxSession, l *lane, p, q *peer, release func()) {
	t.Helper()
	s, p = scripted(t, false, Options{Connections: 3})
	q = p.attach(s)
	p.settle()
	q.settle()
	l = s.lanes[1]
	release = halt(l)
	s.growth.Store(mostGrowth)                     // the window stays as it is
	p.send("02 000008 00000001 00040000 00001000") // it may send 4096
	st := accept(t, s)
	p.send(data(1, 4096))
	eventually(t, "the bytes are there", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.data.n == 4096
	})
	st.mu.Lock()
	st.ctlLane = l
	st.mu.Unlock()
	l.pushControl(st)
	if n, err := st.Read(make([]byte, 4096)); n != 4096 || err != nil {
		t.Fatal(n, err)
	}
	return s, l, p, q, release
}

// TestCreditOnALostConnection: credit that waited to be sent there comes elsewhere.
func TestCreditOnALostConnection(t *testing.T) {
	_, l, p, _, _ := strayed(t)
	l.lose(io.ErrUnexpectedEOF, true)
	p.want(numbered(3, 1, 8192))
}

// TestCreditOnAClosedConnection: the same if both ends had left it.
func TestCreditOnAClosedConnection(t *testing.T) {
	s, l, p, _, _ := strayed(t)
	s.mu.Lock()
	l.weLeft, l.heLeft = true, true
	s.mu.Unlock()
	l.lose(io.EOF, true)
	p.want(numbered(3, 1, 8192))
}

// TestCreditBehindLeave: credit that waits on a connection that is left comes elsewhere.
func TestCreditBehindLeave(t *testing.T) {
	s, l, p, q, release := strayed(t)
	l.shut.Store(true)
	s.sendLeave(l)
	release()
	q.want("0b 000000 00000000")
	p.want(numbered(3, 1, 8192))
	q.quiet()
}

// TestConnectionsBesideTalk: while something interactive happens a session asks for
// no more connections than bulk may use then.
func TestConnectionsBesideTalk(t *testing.T) {
	for talk, want := range map[bool]string{false: "0c 000004 00000000 00000004", true: "0c 000004 00000000 00000002"} {
		s, p := scripted(t, false, Options{Connections: 4, Beside: 1})
		p.settle()
		s.mu.Lock()
		s.lanes[0].bulk = 8
		for range heartbeatFrames + 1 {
			if talk {
				s.busy.note(s.now())
			}
		}
		ask := s.enough(askEvery)
		s.lanes[0].bulk = 0
		s.mu.Unlock()
		ask()
		p.want(want)
	}
}

// TestBulkIsPlacedOnANewConnection: at once, not at its next turn to be placed.
func TestBulkIsPlacedOnANewConnection(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	st := open(t, s, "")
	p.settle()
	now := s.now()
	s.mu.Lock()
	s.watchLocked(st)
	s.mu.Unlock()
	st.mu.Lock()
	st.pace, st.placed = bulkPace(s), now
	st.mu.Unlock()
	p.attach(s)
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.paced(1, now) {
		t.Error("it is not placed anew")
	}
}
