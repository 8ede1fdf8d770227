// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// lane is one control stream of a session that has more than one connection.
type lane struct {
	net.Conn
	of         *session
	broken     *atomic.Bool // of both ends
	background atomic.Bool
}

func (l *lane) Background() { l.background.Store(true) }

func (l *lane) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.of.last.Store(time.Now().UnixNano())
	}
	if err == io.EOF && l.broken.Load() {
		err = io.ErrClosedPipe // a connection that was lost is no end in order
	}
	return n, err
}

func (l *lane) Reset(uint32) error {
	l.broken.Store(true)
	return l.Close()
}

// session is a link whose control streams can be broken while it lives. The
// agent opens them, the hub takes them.
type session struct {
	last    atomic.Int64
	opened  atomic.Int32
	offered chan *lane
	done    chan struct{}

	mu    sync.Mutex
	lanes []*lane
}

func newSession() *session {
	s := &session{offered: make(chan *lane, 100), done: make(chan struct{})}
	s.last.Store(time.Now().UnixNano())
	return s
}

// open makes a stream; its other end waits for the hub.
func (s *session) open(context.Context) (heartbeat.Stream, error) {
	select {
	case <-s.done:
		return nil, fault.New(fault.CodeSessionLost, "the session has ended")
	default:
	}
	s.opened.Add(1)
	x, y := net.Pipe()
	broken := &atomic.Bool{}
	near, far := &lane{Conn: x, of: s, broken: broken}, &lane{Conn: y, of: s, broken: broken}
	s.mu.Lock()
	s.lanes = append(s.lanes, near, far)
	s.mu.Unlock()
	s.offered <- far
	return near, nil
}

func (s *session) accept(ctx context.Context) (heartbeat.Stream, error) {
	select {
	case l := <-s.offered:
		return l, nil
	case <-s.done:
		return nil, fault.New(fault.CodeSessionLost, "the session has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut breaks the streams that there are.
func (s *session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		l.Reset(0)
	}
	s.lanes = nil
}

func (s *session) end() {
	s.mu.Lock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.mu.Unlock()
	s.cut()
}

// runOver runs a beat that takes further streams from next.
func (s *session) runOver(ctx context.Context, next func(context.Context) (heartbeat.Stream, error)) *beat {
	first, err := next(ctx)
	if err != nil {
		panic(err)
	}
	b := &beat{result: make(chan error, 1)}
	b.Beat = heartbeat.New(heartbeat.Options{
		Stream: first, Next: next, Done: s.done, End: s.end,
		LastReceived: func() time.Time { return time.Unix(0, s.last.Load()) },
		OnFrame:      func(f *pb.Control) { b.mu.Lock(); defer b.mu.Unlock(); b.frames = append(b.frames, f) },
		OnRTT:        func(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.rtts = append(b.rtts, d) },
	})
	go func() { b.result <- b.Run(ctx) }()
	return b
}

func (b *beat) trips() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rtts)
}

// told gives the frames that came since the last call, as text.
func (b *beat) told() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.frames {
		switch x := f.GetFrame().(type) {
		case *pb.Control_Load:
			out = append(out, "load "+itoa(x.Load.GetStreams()))
		case *pb.Control_Drain:
			out = append(out, "drain "+x.Drain.GetReason())
		default:
			out = append(out, f.String())
		}
	}
	b.frames = nil
	return out
}

func itoa(n uint32) string { return string(rune('0' + n)) }

func loadOf(n uint32) *pb.Control {
	return &pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: n}}}
}

func drainFor(why string) *pb.Control {
	return &pb.Control{Frame: &pb.Control_Drain{Drain: &pb.Drain{Reason: why}}}
}

// TestTheStreamMoves: a control stream that breaks while the session lives is
// replaced; pings go on, what stands is said again, what waited arrives.
func TestTheStreamMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		agent := s.runOver(t.Context(), s.open)
		hub := s.runOver(t.Context(), s.accept)
		agent.Busy(+1)
		hub.Busy(+1)
		agent.Send(loadOf(3))
		agent.Send(loadOf(4))
		agent.Send(drainFor("stop"))
		time.Sleep(10 * time.Second)
		hub.told()

		for round := range 5 {
			before, since := agent.trips()+hub.trips(), time.Now()
			s.cut()
			agent.Send(loadOf(7)) // while there is no stream
			time.Sleep(time.Millisecond)
			if got := strings.Join(hub.told(), ", "); !strings.HasPrefix(got, "load 7, drain stop") {
				t.Errorf("round %d: after the move the hub was told %q", round, got)
			}
			time.Sleep(5 * time.Second)
			if n := agent.trips() + hub.trips() - before; n < 5 {
				t.Errorf("round %d: %d round trips within %v after the stream broke, want one each second", round, n, time.Since(since))
			}
			if agent.RTT() > time.Second || hub.RTT() > time.Second {
				t.Errorf("round %d: the gap counts as a round trip: %v, %v", round, agent.RTT(), hub.RTT())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := hub.Probe(ctx); err != nil {
				t.Errorf("round %d: probe: %v", round, err)
			}
			cancel()
		}
		if n := s.opened.Load(); n != 6 {
			t.Errorf("%d streams were opened, want 6", n)
		}
		s.end()
		for name, b := range map[string]*beat{"agent": agent, "hub": hub} {
			if err := <-b.result; !fault.Has(err, fault.CodeSessionLost) {
				t.Errorf("%s ended with %v", name, err)
			}
		}
	})
}

// TestControlIsNoTalk: each control stream, the first and those after it, is said to be
// in the background, at both ends.
func TestControlIsNoTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		beats := []*beat{s.runOver(t.Context(), s.open), s.runOver(t.Context(), s.accept)}
		for range 3 {
			time.Sleep(2 * limit.ControlAgain)
			s.mu.Lock()
			for i, l := range s.lanes {
				if !l.background.Load() {
					t.Errorf("end %d is not in the background", i)
				}
			}
			if len(s.lanes) != 2 {
				t.Errorf("%d ends", len(s.lanes))
			}
			s.mu.Unlock()
			s.cut()
		}
		s.end()
		for _, b := range beats {
			<-b.result
		}
	})
}

// TestTheEndIsNotWaitedFor: the end of the session ends the beat at once, also
// when its stream is younger than the pause between two.
func TestTheEndIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		agent := s.runOver(t.Context(), s.open)
		hub := s.runOver(t.Context(), s.accept)
		time.Sleep(limit.ControlAgain / 4)
		begin := time.Now()
		s.end()
		for _, b := range []*beat{agent, hub} {
			if err := <-b.result; !fault.Has(err, fault.CodeSessionLost) || time.Since(begin) != 0 {
				t.Errorf("ended after %v with %v", time.Since(begin), err)
			}
		}
	})
}

// TestStreamsThatBreakInALoop: whoever breaks them, they are replaced once a second at most.
func TestStreamsThatBreakInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		agent := s.runOver(t.Context(), s.open)
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
			s.last.Store(time.Now().UnixNano()) // the session is alive
			select {
			case l := <-s.offered:
				l.Reset(1)
				s.cut()
			default:
			}
		}
		if n := s.opened.Load(); n > 61 || n < 50 {
			t.Errorf("%d streams in a minute, want about 60", n)
		}
		s.end()
		<-agent.result
	})
}

// TestDeadWithoutAStream: the watch goes on while there is no control stream.
func TestDeadWithoutAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		if _, err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		hub := s.runOver(t.Context(), s.accept)
		hub.Busy(+1)
		time.Sleep(1100 * time.Millisecond)
		s.last.Store(time.Now().UnixNano())
		begin := time.Now()
		s.cut()
		err := <-hub.result
		if took := time.Since(begin); took != limit.DeadLive || !fault.Has(err, fault.CodeSessionLost) {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

// TestWhatIsNoBreak: an end in order and frames that cannot be are not repaired.
func TestWhatIsNoBreak(t *testing.T) {
	for name, c := range map[string]struct {
		sent []byte
		want fault.Code
	}{
		"an end in order": {nil, fault.CodeSessionLost},
		"a huge frame":    {binary.BigEndian.AppendUint32(nil, limit.ControlFrame+1), fault.CodeFrameTooLarge},
		"garbage":         {frame([]byte{0xff, 0xff, 0xff}), fault.CodeFrameInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession()
				agent := s.runOver(t.Context(), s.open)
				far := <-s.offered
				go io.Copy(io.Discard, far.Conn)
				time.Sleep(5 * time.Second)
				if far.Write(c.sent); c.sent == nil {
					far.Close()
				}
				if err := <-agent.result; !fault.Has(err, c.want) {
					t.Errorf("ended with %v, want %s", err, c.want)
				}
				if n := s.opened.Load(); n != 1 {
					t.Errorf("%d streams were opened", n)
				}
				far.Close()
			})
		})
	}
}

// TestAPartOfAFrame: a stream that broke within a frame leaves nothing of it to the next.
func TestAPartOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession()
		agent := s.runOver(t.Context(), s.open)
		far := <-s.offered
		go io.Copy(io.Discard, far.Conn)
		time.Sleep(5 * time.Second)
		far.Write([]byte{0, 0, 0, 9, 1})
		s.cut()
		time.Sleep(time.Millisecond)
		far = <-s.offered
		go io.Copy(io.Discard, far.Conn)
		wire.Write(far, loadOf(5))
		synctest.Wait()
		if got := strings.Join(agent.told(), ", "); got != "load 5" {
			t.Errorf("told %q", got)
		}
		s.end()
		<-agent.result
	})
}
