// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestCreditGrows only by a WINDOW above the newest limit.
func TestCreditGrows(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send("02 000008 00000001 00000002 00040000")
	st := accept(t, s)
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write([]byte("abcdef"))
		wrote <- err
	}()
	p.want("01 000002 00000001 6162")
	for _, old := range []uint64{0, 1, 2} {
		p.send(numbered(3, 1, old))
		p.quiet()
	}
	p.send(numbered(3, 1, 3), numbered(3, 1, 2))
	p.want("01 000001 00000001 63")
	p.send(numbered(3, 1, 1<<40))
	p.want("01 000003 00000001 646566")
	if err := done(t, "the write", wrote); err != nil {
		t.Error(err)
	}
	st.Reset(1)
}

// TestCreditFollowsReading: nothing before a quarter of the window has been read, or
// an eighth when something is sent anyway, then all of it; nothing once the peer has
// finished.
func TestCreditFollowsReading(t *testing.T) {
	s, p := scripted(t, false, Options{})
	s.growth.Store(mostGrowth) // the window stays as it is
	p.send("02 000008 00000001 00000000 00000064", data(1, 100))
	p.quiet()
	st := accept(t, s)
	read := func(n int) {
		t.Helper()
		if _, err := io.ReadFull(st, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	read(11)
	p.quiet()
	read(14)
	p.want(numbered(3, 1, 125))
	runtest.Eventually(t, "nobody sends", func() bool { // who does still would take the next credit along
		s.lanes[0].mu.Lock()
		defer s.lanes[0].mu.Unlock()
		return !s.lanes[0].turn
	})
	read(12)
	p.send(numbered(6, 0, 7))
	p.want(numbered(7, 0, 7), numbered(3, 1, 137))
	read(63)
	p.want(numbered(3, 1, 200))
	p.send(data(1, 100), "04 000000 00000001")
	p.quiet()
	s.growth.Store(0)
	read(100)
	p.quiet()
	reads(t, st, "", io.EOF)
	st.Close()
	p.want("04 000000 00000001")
}

// TestNoWindowAfterEnd: credit that was due when the stream ended is not given.
func TestNoWindowAfterEnd(t *testing.T) {
	s, p := scripted(t, false, Options{})
	s.pinged.Store(int64(time.Hour))
	p.send(open1, data(1, 65536))
	p.settle()
	st := accept(t, s)
	release := halt(s.lanes[0])
	if _, err := io.ReadFull(st, make([]byte, 65536)); err != nil {
		t.Fatal(err)
	}
	p.send("05 000004 00000001 00000001")
	runtest.Eventually(t, "the stream has ended", func() bool { return s.Info().Streams == 0 })
	release()
	p.quiet()
}

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
	runtest.Eventually(t, "the bytes are there", func() bool {
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
