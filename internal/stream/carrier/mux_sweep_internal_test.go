// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// cutter is one end of a connection that dies when so many frames have left it.
// What was sent before has been read by then: nothing is buffered below.
type cutter struct {
	net.Conn
	within bool // a half of the frame still leaves

	mu   sync.Mutex
	left int // frames, negative: it lives on
	dead bool
}

func (c *cutter) Write(b []byte) (wrote int, err error) {
	for wrote < len(b) {
		head := b[wrote:]
		n := headerSize + int(binary.BigEndian.Uint32(head)&0xffffff)
		if n > len(head) {
			panic("a session writes whole frames")
		}
		if c.last() {
			if c.within {
				c.Conn.Write(head[:n/2])
			}
			c.Close()
			return wrote, net.ErrClosed
		}
		m, err := c.Conn.Write(head[:n])
		if wrote += m; err != nil {
			return wrote, err
		}
	}
	return wrote, nil
}

func (c *cutter) last() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = c.dead || c.left == 0
	c.left--
	return c.dead
}

func (c *cutter) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// swept is two sessions with two connections, one of which will be cut.
type swept struct {
	t          *testing.T
	agent, hub *muxSession
	conns      [2][2]*cutter  // of the agent and of the hub
	all        sync.WaitGroup // who echoes
}

func newSwept(t *testing.T) *swept {
	noLeak(t)
	x := &swept{t: t}
	o := Options{Incoming: 100, Connections: 2}
	var near, far [2]*cutter
	for i := range near {
		a, b := net.Pipe()
		near[i], far[i] = &cutter{Conn: a, left: -1}, &cutter{Conn: b, left: -1}
	}
	x.conns = [2][2]*cutter{near, far}
	x.agent, x.hub = session(t, near[0], true, o), session(t, far[0], false, o)
	for i, s := range x.ends() {
		still(s)
		if err := s.Attach(x.conns[i][1]); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func (x *swept) ends() [2]*muxSession { return [2]*muxSession{x.agent, x.hub} }

// lanes are the live connections of a session.
func lanes(s *muxSession) []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lanes)
}

// shift lets our direction of a stream want to travel on the other connection, or on
// the one that is left.
func shift(st *muxStream) {
	for _, l := range lanes(st.s) {
		if !st.sends(l) {
			travel(st, l)
			return
		}
	}
}

// dialogue is a stream whose ends take turns.
type dialogue struct {
	x         *swept
	near, far *muxStream
	moved     [2]int // bytes from near, from far
}

const dialoguePiece = 30_000 // three give credit anew

// say carries a piece each way. It fails only with what the ends of the stream say.
func (d *dialogue) say() error {
	for i, way := range [2][2]*muxStream{{d.near, d.far}, {d.far, d.near}} {
		want := pattern(d.moved[i] + dialoguePiece)[d.moved[i]:]
		if _, err := way[0].Write(want); err != nil {
			return err
		}
		got := make([]byte, dialoguePiece)
		n, err := io.ReadFull(way[1], got)
		if !bytes.Equal(got[:n], want[:n]) {
			return fmt.Errorf("other bytes than were sent, among %d from %d", n, d.moved[i])
		}
		if err != nil {
			return err
		}
		d.moved[i] += dialoguePiece
	}
	return nil
}

// dialogue opens a stream whose directions travel on connections of either end.
func (x *swept) dialogue(near, far *lane) *dialogue {
	x.t.Helper()
	d := &dialogue{x: x, near: open(x.t, x.agent, "")}
	d.far = accept(x.t, x.hub)
	if err := d.say(); err != nil { // each knows that the other knows the stream
		x.t.Fatal(err)
	}
	for st, l := range map[*muxStream]*lane{d.near: near, d.far: far} {
		travel(st, l)
		st.send()
	}
	if err := d.say(); err != nil {
		x.t.Fatal(err)
	}
	runtest.Eventually(x.t, "both directions have moved", func() bool { return d.on(near, far) })
	return d
}

// on says that the directions travel there, with nothing under way elsewhere.
func (d *dialogue) on(near, far *lane) bool {
	at := func(st *muxStream, l *lane) bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.lane == l && st.prev == nil && st.coming == nil
	}
	return at(d.near, near) && at(d.far, far)
}

// end finishes both ways.
func (d *dialogue) end() error {
	err := errors.Join(d.near.CloseWrite(), d.far.CloseWrite())
	for _, st := range []*muxStream{d.near, d.far} {
		if n, e := st.Read(make([]byte, 1)); n != 0 || e != io.EOF {
			err = errors.Join(err, fmt.Errorf("%d bytes, then %w", n, e))
		}
		st.Close()
	}
	return err
}

// lost wants both ends to say so, whatever was read before.
func (d *dialogue) lost() error {
	for _, st := range []*muxStream{d.near, d.far} {
		for _, op := range []func() error{
			func() error { _, err := io.Copy(io.Discard, struct{ io.Reader }{st}); return err },
			func() error { _, err := st.Write([]byte("a")); return err },
			st.CloseWrite,
		} {
			if err := op(); !fault.Has(err, fault.CodeSessionLost) {
				return fmt.Errorf("an end says %v, want session_lost", err)
			}
		}
		st.Close()
	}
	return nil
}

// echo gives back what the streams that are opened towards a session say. Its own
// direction moves after each piece.
func (x *swept) echo(end int) {
	s := x.ends()[end]
	x.all.Go(func() {
		for {
			opened, err := s.AcceptStream(x.t.Context())
			if err != nil {
				return
			}
			st := opened.(*muxStream)
			st.SetDeadline(deadlineNow())
			x.all.Go(func() {
				defer st.Close()
				b := make([]byte, dialoguePiece)
				for {
					n, err := st.Read(b)
					if err == io.EOF {
						err = st.CloseWrite()
					}
					if n > 0 {
						_, err = st.Write(b[:n])
						shift(st)
						st.send()
					}
					if err != nil || n == 0 {
						return
					}
				}
			})
		}
	})
}

// wander has a stream of a session echoed while both of its directions move, and
// its end too. It gives an error unless the stream is whole.
func (x *swept) wander(end int) error {
	opened, err := x.ends()[end].OpenStream(x.t.Context(), pattern(10))
	if err != nil {
		return err
	}
	st := opened.(*muxStream)
	defer st.Close()
	st.SetDeadline(deadlineNow())
	want, got := pattern(410), make([]byte, 410)
	sent := 10
	for range 4 {
		if _, err := io.ReadFull(st, got[sent-10:sent]); err != nil {
			return cleanCut(err)
		}
		shift(st)
		if _, err := st.Write(want[sent : sent+10]); err != nil {
			return err
		}
		sent += 10
	}
	if err := st.CloseWrite(); err != nil {
		return err
	}
	shift(st) // the end is said again there
	st.send()
	rest, err := io.ReadAll(st)
	if err != nil {
		return err
	}
	if got := append(got[:sent-10], rest...); !bytes.Equal(got, want[:sent]) {
		return fmt.Errorf("%d bytes came back, or others, and then a clean end", len(got))
	}
	return nil
}

// cleanCut makes an end that looks clean and is none an error that nobody forgives.
func cleanCut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a loss looks like the end of the stream")
	}
	return err
}

// brief opens streams that end in other ways.
func (x *swept) brief(end int) error {
	for _, how := range []func(Stream) error{Stream.Close, func(st Stream) error { return st.Reset(5) }} {
		st, err := x.ends()[end].OpenStream(x.t.Context(), []byte("a word"))
		if err != nil {
			return err
		}
		if err := how(st); err != nil {
			return err
		}
	}
	return nil
}

// unlessLost is a failure that the cut does not excuse.
func (x *swept) unlessLost(what string, err error, cut *cutter) {
	x.t.Helper()
	if err != nil && !(cut.cut() && fault.Has(err, fault.CodeSessionLost)) {
		x.t.Errorf("%s: %v", what, err)
	}
}

// run cuts connection which after so many frames of an end; false if it sends less.
func (x *swept) run(which, end, frames int, within bool) bool {
	t, kept := x.t, 1-which
	agent, hub := lanes(x.agent), lanes(x.hub)
	there := x.dialogue(agent[which], hub[which])
	half := []*dialogue{x.dialogue(agent[which], hub[kept]), x.dialogue(agent[kept], hub[which])}
	other := x.dialogue(agent[kept], hub[kept])
	for end := range x.ends() {
		x.echo(end)
	}
	cut := x.conns[end][which]
	cut.mu.Lock()
	cut.left, cut.within = frames, within
	cut.mu.Unlock()

	for range 2 {
		x.unlessLost("a stream on the connection", there.say(), cut)
		for _, d := range half {
			x.unlessLost("a stream with one direction on it", d.say(), cut)
		}
		if err := other.say(); err != nil {
			t.Errorf("a stream on the other connection: %v", err)
		}
	}
	for end := range x.ends() {
		x.unlessLost("a stream that moves", x.wander(end), cut)
		x.unlessLost("a stream that ends", x.brief(end), cut)
	}
	if !cut.cut() {
		for _, d := range append(half, there, other) {
			x.unlessLost("the end", d.end(), cut)
		}
		x.over()
		return false
	}
	runtest.Eventually(t, "both ends know", func() bool { return agent[which].dead.Load() && x.connections() == [2]int{1, 1} })
	for _, d := range append(half, there) {
		if err := d.lost(); err != nil {
			t.Errorf("a stream with a direction on the lost connection: %v", err)
		}
	}
	x.repaired(other)
	x.over()
	return true
}

func (x *swept) connections() (n [2]int) {
	for i, s := range x.ends() {
		n[i] = s.Info().Connections
	}
	return n
}

// repaired: the sessions take a connection in place of the lost one, and the
// streams that are left use it, as new ones do.
func (x *swept) repaired(other *dialogue) {
	t := x.t
	if err := other.say(); err != nil {
		t.Errorf("a stream on the connection that is left: %v", err)
	}
	a, b := net.Pipe()
	var added [2]*lane
	for i, conn := range []net.Conn{a, b} {
		s := x.ends()[i]
		if err := s.Attach(conn); err != nil {
			t.Fatalf("another connection: %v", err)
		}
		added[i] = lanes(s)[1]
	}
	for i, st := range []*muxStream{other.near, other.far} {
		travel(st, added[i])
		st.send()
	}
	for range 3 {
		if err := other.say(); err != nil {
			t.Errorf("a stream that moves to the new connection: %v", err)
		}
	}
	runtest.Eventually(t, "it has moved", func() bool { return other.on(added[0], added[1]) })
	for end := range x.ends() {
		if err := x.wander(end); err != nil {
			t.Errorf("a new stream beside the new connection: %v", err)
		}
	}
	if err := other.end(); err != nil {
		t.Errorf("the end of a stream that went on: %v", err)
	}
}

// over wants the sessions to live and to hold nothing.
func (x *swept) over() {
	for _, s := range x.ends() {
		runtest.Eventually(x.t, "the streams are gone", func() bool { return s.Info().Streams == 0 })
		// Who echoes may still have to read what came before a reset.
		runtest.Eventually(x.t, "no byte is unread or queued", func() bool { return s.budget.Unread()|s.queued.Load() == 0 })
		select {
		case <-s.Done():
			x.t.Errorf("the session has ended: %v", s.why)
		default:
		}
	}
	for _, s := range x.ends() {
		s.Close()
	}
	x.all.Wait()
}

// TestDeathOfOneOfTwo cuts one of two connections after each frame that either end
// sends on it, and within each: the streams on it end with the code for that at
// both ends, all others go on with the bytes that were sent, the session lives,
// and a connection in place of the lost one is used.
func TestDeathOfOneOfTwo(t *testing.T) {
	for which := range 2 {
		for end, name := range []string{"agent", "hub"} {
			for _, within := range []bool{false, true} {
				where := map[bool]string{false: "before", true: "within"}[within]
				t.Run(fmt.Sprintf("connection %c, %s the frames of the %s", 'A'+which, where, name), func(t *testing.T) {
					frames := 0
					for on := true; on && !t.Failed(); frames++ {
						t.Run(fmt.Sprint(frames), func(t *testing.T) { on = newSwept(t).run(which, end, frames, within) })
					}
					t.Logf("%d frames", frames-1)
					if frames <= 12 {
						t.Errorf("only %d frames are sent there; the exchange is not what it was", frames-1)
					}
				})
			}
		}
	}
}
