// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// churn is two sessions with several connections, on which streams exchange
// bytes while something happens to the connections.
type churn struct {
	t          *testing.T
	agent, hub *muxSession
	dice       *rand.Rand
	stop       chan struct{}
	mu         sync.Mutex
	cut        int // streams that ended with a connection
	whole      int
}

func newChurn(t *testing.T, connections int) *churn {
	t.Helper()
	noLeak(t)
	near, far := pair(t, false)
	c := &churn{t: t, dice: rand.New(rand.NewPCG(1, 2)), stop: make(chan struct{})}
	o := Options{Incoming: 1000, Connections: connections + 2}
	of := func() Options { o.Tally = new(atomic.Int64); return o } // each its own
	c.hub, c.agent = session(t, Wrap(far), false, of()), session(t, Wrap(near), true, of())
	for range connections - 1 {
		c.connect()
	}
	return c
}

// connect adds a connection.
func (c *churn) connect() {
	near, far := pair(c.t, false)
	if err := c.hub.Attach(Wrap(far)); err != nil {
		return // as many as there may be
	}
	if err := c.agent.Attach(Wrap(near)); err != nil {
		near.Close()
	}
}

// streams lets both ends open so many, one after another in each of some rows,
// and waits for them.
func (c *churn) streams(rows, each int, lossy bool) {
	c.t.Helper()
	var all sync.WaitGroup
	for row := range rows {
		ends := [2]*muxSession{c.agent, c.hub}
		if row%2 == 1 {
			ends[0], ends[1] = ends[1], ends[0]
		}
		all.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(row), 3))
			for range each {
				size := dice.IntN(200_000)
				c.one(ends[0], size, 1+dice.IntN(20_000), lossy)
			}
		})
	}
	accepting := make(chan struct{})
	var served sync.WaitGroup
	for _, s := range []*muxSession{c.agent, c.hub} {
		served.Go(func() {
			for {
				st, err := s.AcceptStream(c.t.Context())
				if err != nil {
					return
				}
				served.Go(func() { c.serve(st.(*muxStream), lossy) })
				select {
				case <-accepting:
					return
				default:
				}
			}
		})
	}
	all.Wait()
	close(accepting)
	close(c.stop)
	for _, s := range []*muxSession{c.agent, c.hub} {
		runtest.Eventually(c.t, "the streams are gone", func() bool { return s.Info().Streams == 0 })
	}
	for _, s := range []*muxSession{c.agent, c.hub} { // lets the accepting end
		c.one(s, 1, 1, false)
	}
	served.Wait()
	for _, s := range []*muxSession{c.agent, c.hub} {
		runtest.Eventually(c.t, "the last streams are gone", func() bool { return s.Info().Streams == 0 })
	}
}

// one sends pattern and wants it back.
func (c *churn) one(s *muxSession, size, piece int, lossy bool) {
	want := pattern(size)
	opened, err := s.OpenStream(c.t.Context(), want[:min(size, 10)])
	if err != nil {
		c.t.Errorf("open: %v", err)
		return
	}
	st := opened.(*muxStream)
	defer st.Close()
	st.SetDeadline(deadlineNow())
	wrote := make(chan error, 1)
	go func() {
		var err error
		for rest := want[min(size, 10):]; len(rest) > 0 && err == nil; rest = rest[min(piece, len(rest)):] {
			_, err = st.Write(rest[:min(piece, len(rest))])
		}
		if err == nil {
			err = st.CloseWrite()
		}
		wrote <- err
	}()
	got, err := io.ReadAll(st)
	werr := <-wrote
	if !bytes.HasPrefix(want, got) {
		c.t.Errorf("stream %d: %d bytes came back that were not sent so", st.id, len(got))
	}
	c.ended(st, err, werr, len(got) == len(want), lossy)
}

// serve gives everything back, and half of the streams end without half-close.
func (c *churn) serve(st *muxStream, lossy bool) {
	defer st.Close()
	st.SetDeadline(deadlineNow())
	_, err := io.Copy(st, st)
	if err == nil && st.id%4 < 2 {
		err = st.CloseWrite()
	}
	if err != nil && !(lossy && fault.Has(err, fault.CodeSessionLost)) {
		c.t.Errorf("stream %d: the echo: %v", st.id, err)
	}
}

func (c *churn) ended(st *muxStream, err, werr error, whole, lossy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := fault.Has(err, fault.CodeSessionLost) || fault.Has(werr, fault.CodeSessionLost)
	switch {
	case gone && lossy:
		c.cut++
	case err == nil && werr == nil && whole:
		c.whole++
	default:
		c.t.Errorf("stream %d: read %v, write %v, all bytes %v", st.id, err, werr, whole)
	}
}

// meanwhile does something again and again, on either end, until the streams have ended.
func (c *churn) meanwhile(what func(s *muxSession)) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-c.stop:
				return
			default:
			}
			what([]*muxSession{c.agent, c.hub}[i%2])
		}
	}()
	return func() { <-ended }
}

// shove lets some stream's direction want to travel on some connection.
func (c *churn) shove(s *muxSession) {
	s.mu.Lock()
	var some *muxStream
	for _, st := range s.streams {
		some = st
		break
	}
	var to *lane
	if n := len(s.lanes); n > 0 {
		to = s.lanes[c.dice.IntN(n)]
	}
	s.mu.Unlock()
	if some == nil || to == nil {
		return
	}
	travel(some, to)
	some.send()
}

// some gives a live connection that is not the first, nil if there is none.
func (c *churn) some(s *muxSession) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lanes) < 2 {
		return nil
	}
	return s.lanes[1+c.dice.IntN(len(s.lanes)-1)]
}

func (c *churn) rests() {
	c.t.Helper()
	for _, s := range []*muxSession{c.agent, c.hub} {
		select {
		case <-s.done:
			c.t.Errorf("the session ended: %v", s.why)
		default:
		}
		if unread, queued, growth := s.budget.Unread(), s.queued.Load(), s.growth.Load(); unread|queued|growth != 0 {
			c.t.Errorf("%d bytes are unread, %d queued, %d reserved", unread, queued, growth)
		}
		if n := s.o.Tally.Load(); n != 0 {
			c.t.Errorf("%d bytes are counted as unread", n)
		}
		s.mu.Lock()
		bulk := 0
		for _, l := range s.lanes {
			bulk += l.bulk
		}
		if bulk != 0 || s.incoming != 0 || len(s.accepted) != 0 {
			c.t.Errorf("%d bulk directions, %d incoming streams, %d to be accepted are counted", bulk, s.incoming, len(s.accepted))
		}
		s.mu.Unlock()
	}
	c.t.Logf("%d streams whole, %d cut", c.whole, c.cut)
}

// TestMovesAtRandom: every byte of every stream arrives once and in order while
// directions move at any time, and ends are ends.
func TestMovesAtRandom(t *testing.T) {
	c := newChurn(t, 4)
	wait := c.meanwhile(c.shove)
	c.streams(10, 12, false)
	wait()
	c.rests()
}

// TestLeavesAtRandom: the same while connections are left and others come.
func TestLeavesAtRandom(t *testing.T) {
	c := newChurn(t, 3)
	left := 0
	wait := c.meanwhile(func(s *muxSession) {
		c.shove(s)
		if l := c.some(s); l != nil && c.dice.IntN(100) == 0 && s.client {
			leave(s, l)
		}
		s.retire(s.now())
		if n := s.Info().Connections; n < 3 {
			left++
			c.connect()
		}
	})
	c.streams(10, 12, false)
	wait()
	c.rests()
	if left == 0 {
		t.Error("no connection was left")
	}
}

// TestLossesAtRandom: connections break at any time. What arrives is what was
// sent, no stream hangs, those that end say so at both ends, and the session lives.
func TestLossesAtRandom(t *testing.T) {
	c := newChurn(t, 4)
	losses := 0
	wait := c.meanwhile(func(s *muxSession) {
		c.shove(s)
		if l := c.some(s); l != nil && c.dice.IntN(200) == 0 {
			l.conn.(interface{ NetConn() net.Conn }).NetConn().Close()
			losses++
			runtest.Eventually(t, "the loss is known", func() bool { return !has(s, l) })
		}
		if s.Info().Connections < 3 {
			c.connect()
		}
	})
	c.streams(10, 12, true)
	wait()
	c.rests()
	if losses == 0 || c.cut == 0 || c.whole == 0 {
		t.Errorf("%d connections broke, %d streams were cut, %d not", losses, c.cut, c.whole)
	}
}

func has(s *muxSession, l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.lanes, l)
}
