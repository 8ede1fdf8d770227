// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// answering is a peer in simulated time. It answers PING after a delay, LEAVE
// with LEAVE if it may, and remembers the rest.
type answering struct {
	conn   net.Conn
	delay  time.Duration // negative: it never answers
	closed time.Time     // when the session closed the connection

	mu   sync.Mutex
	seen []frameSeen
	over chan struct{}
}

func answer(conn net.Conn, delay time.Duration) *answering {
	a := &answering{conn: conn, delay: delay, over: make(chan struct{})}
	go a.serve()
	return a
}

func (a *answering) serve() {
	defer close(a.over)
	for {
		head := make([]byte, headerSize)
		if _, err := io.ReadFull(a.conn, head); err != nil {
			a.closed = time.Now()
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head)&0xffffff)
		io.ReadFull(a.conn, payload)
		if head[0] == framePing && a.delay >= 0 {
			time.AfterFunc(a.delay, func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.conn.Write(append([]byte{framePong, 0, 0, 8, 0, 0, 0, 0}, payload...))
			})
		} else if head[0] != framePing {
			a.mu.Lock()
			a.seen = append(a.seen, frameSeen{head[0], binary.BigEndian.Uint32(head[4:]), string(payload)})
			a.mu.Unlock()
		}
	}
}

// frames are those of a type that have come.
func (a *answering) frames(kind byte) (out []frameSeen) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.seen {
		if f.kind == kind {
			out = append(out, f)
		}
	}
	return out
}

func (a *answering) say(t testing.TB, frames string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.conn.Write(unhex(t, frames)); err != nil {
		t.Fatal(err)
	}
}

// timed is a session in simulated time, and its connections as the peer sees them.
func timed(t *testing.T, client bool, trip time.Duration, o Options) (*muxSession, *answering) {
	t.Helper()
	near, far := net.Pipe()
	s, err := newMux(near, o, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*muxSession), answer(far, trip)
}

func attachTimed(t *testing.T, s *muxSession, delay time.Duration) *answering {
	t.Helper()
	near, far := net.Pipe()
	a := answer(far, delay)
	if err := s.Attach(near); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSilentConnection is lost when its peer has not answered for limit.DeadLive,
// one that answers late is not, however long both were idle before.
func TestSilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := timed(t, false, 2*time.Second, Options{Incoming: 10, Connections: 3})
		time.Sleep(time.Hour) // one connection is not looked after
		begin := time.Now()
		late := attachTimed(t, s, 2*time.Second)
		silent := attachTimed(t, s, -1)
		<-silent.over
		if took := silent.closed.Sub(begin); took < limit.DeadLive || took > limit.DeadLive+time.Second+tickEvery {
			t.Errorf("the silent connection was closed after %v", took)
		}
		time.Sleep(30 * time.Second)
		if i := s.Info(); i.Connections != 2 {
			t.Errorf("%d connections are left", i.Connections)
		}
		select {
		case <-late.over:
			t.Error("the connection that answers late was closed")
		default:
		}
	})
}

// TestStalledLook: a look that comes late, as where the machine stood still, does not
// take that for the silence of the peers, which answer a moment later. Those that do
// not are lost after the rest of the bound.
func TestStalledLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 4 * time.Second
		s, _ := timed(t, false, stall+time.Second, Options{Incoming: 10, Connections: 3})
		time.Sleep(time.Hour)
		attachTimed(t, s, stall+time.Second)
		silent := attachTimed(t, s, -1)
		time.Sleep(tickEvery + tickEvery/5) // they have been asked
		s.mu.Lock()
		s.tick.Stop()
		s.mu.Unlock()
		time.Sleep(stall)
		woke := time.Now()
		s.onTick()
		if i := s.Info(); i.Connections != 3 {
			t.Fatalf("%d connections are left after a stall of our own", i.Connections)
		}
		<-silent.over
		if took := silent.closed.Sub(woke); took > limit.DeadLive+tickEvery {
			t.Errorf("the silent connection was closed %v after the stall", took)
		}
		synctest.Wait() // it is closed first, and then taken off the session
		if i := s.Info(); i.Connections != 2 {
			t.Errorf("%d connections are left", i.Connections)
		}
	})
}

// TestIdleConnection: a client leaves the newest when nothing large has travelled
// on it for a minute, in either direction; the first one never.
func TestIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first := timed(t, true, 0, Options{Incoming: 10, Connections: 3})
		needed := attachTimed(t, s, 0)
		needed.say(t, open2)
		synctest.Wait()
		st, err := s.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go st.CopyTo(io.Discard, nil)
		for range 120 { // the server is bulk for two minutes
			time.Sleep(time.Second)
			needed.say(t, data(2, 20_000))
		}
		if n := len(first.frames(frameMove)); n != 0 {
			t.Fatal("a connection is left that the server uses")
		}
		time.Sleep(laneIdle - 2*time.Second)
		if n := len(first.frames(frameMove)); n != 0 {
			t.Fatal("it is left early")
		}
		time.Sleep(4 * time.Second)
		if moves := first.frames(frameMove); len(moves) != 1 || moves[0].id != 2 {
			t.Fatalf("our direction moved with %v", moves)
		}
		if n := len(needed.frames(frameLeave)); n != 0 {
			t.Fatal("it was left before MOVED")
		}
		first.say(t, numbered(10, 2, 1)+numbered(9, 2, 120*20_000))
		time.Sleep(time.Second)
		if n := len(needed.frames(frameLeave)); n != 1 {
			t.Fatalf("LEAVE came %d times", n)
		}
		needed.say(t, "0b 000000 00000000")
		<-needed.over
		time.Sleep(time.Hour)
		if s.Info().Connections != 1 || len(first.frames(frameLeave)) != 0 {
			t.Error("the last connection was left")
		}
		if s.Info().Streams != 1 {
			t.Error("the stream was lost")
		}
		s.mu.Lock()
		if s.tick != nil {
			t.Error("the clock ticks although there is nothing to look after")
		}
		s.mu.Unlock()
		st.Close()
	})
}

// TestDialsAreSpaced: a hub that cannot be dialled again, or whose connections
// die at once, is asked less and less often.
func TestDialsAreSpaced(t *testing.T) {
	for name, dead := range map[string]bool{"dials fail": false, "connections die": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				dial := func(context.Context) (net.Conn, error) {
					at = append(at, time.Now())
					if !dead {
						return nil, errors.New("no")
					}
					near, far := net.Pipe()
					far.Close()
					return near, nil
				}
				s, first := timed(t, true, 0, Options{Incoming: 10, Connections: 4, Dial: dial})
				for range 600 {
					first.say(t, "0c 000004 00000000 00000004")
					time.Sleep(time.Second)
				}
				if len(at) < 10 || len(at) > 20 {
					t.Errorf("%d dials in ten minutes", len(at))
				}
				for i := 1; i < len(at); i++ {
					if d := at[i].Sub(at[i-1]); d < askEvery || d > 62*time.Second {
						t.Errorf("dial %d comes %v after the one before", i, d)
					}
				}
				if n := s.Info().Connections; n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

// TestWishesAreSpaced: a server with a bulk stream asks for a connection once in
// a second, until it has one.
func TestWishesAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first := timed(t, false, 0, Options{Incoming: 10, Connections: 2})
		st, err := s.OpenStream(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first.say(t, numbered(3, 2, 1<<40))
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					st.Write(make([]byte, 8192)) // 8 MB/s
				}
			}
		})
		time.Sleep(10 * time.Second)
		if n := len(first.frames(frameConnections)); n < 8 || n > 11 {
			t.Errorf("%d wishes in 10 s", n)
		}
		attachTimed(t, s, 0)
		before := len(first.frames(frameConnections))
		time.Sleep(5 * time.Second)
		if n := len(first.frames(frameConnections)) - before; n != 0 {
			t.Errorf("%d wishes although there are enough", n)
		}
		close(stop)
		writer.Wait()
		st.Close()
	})
}

// TestWindowRestsByItself: a grown window gives its budget back although nobody
// reads.
func TestWindowRestsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first := timed(t, false, 50*time.Millisecond, Options{Incoming: 10})
		time.Sleep(time.Second) // PINGs have told the round trip
		first.say(t, open1)
		st, err := s.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go st.CopyTo(io.Discard, nil)
		piece := data(1, 32768)
		sent, limit := 0, firstWindow
		for round := 0; round < 20 && s.growth.Load() < 1<<20; round++ {
			for ; limit-sent >= 32768; sent += 32768 {
				first.say(t, piece)
			}
			time.Sleep(50 * time.Millisecond)
			if w := first.frames(frameWindow); len(w) > 0 {
				limit = int(binary.BigEndian.Uint64([]byte(w[len(w)-1].payload)))
			}
		}
		grown := s.growth.Load()
		if grown < 1<<20 {
			t.Fatalf("the window has grown by %d only", grown)
		}
		first.say(t, data(1, 1000))
		time.Sleep(windowIdle + 2*tickEvery)
		st.(*muxStream).mu.Lock()
		held := st.(*muxStream).window.granted - st.(*muxStream).window.consumed
		st.(*muxStream).mu.Unlock()
		if n := s.growth.Load(); n > max(0, held-firstWindow) {
			t.Errorf("after idleness %d of %d are reserved, %d are granted still", n, grown, held)
		}
		st.Close()
		synctest.Wait()
		if n := s.growth.Load(); n != 0 {
			t.Errorf("after the end %d are reserved", n)
		}
	})
}
