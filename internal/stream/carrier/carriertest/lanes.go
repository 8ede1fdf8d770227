// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Lanes is a pair that may use several connections, numbered in the order of dialling.
type Lanes struct {
	Pair
	Lose    func(i int)       // the connection dies
	Carried func(i int) int64 // bytes, both ways; 0 if there is none yet
	Refuse  func()            // from now on no further one can be dialled
	Another func() net.Conn   // the hub's end of one more, with nobody behind it
	Dialled func() (count int)
}

// MakeLanes makes a pair that begins with one connection.
type MakeLanes func(t *testing.T, connections int, o carrier.Options) Lanes

// RunLanes holds a carrier to what it says of several connections.
// In full it plays those cases alone that go by numbers.
func RunLanes(t *testing.T, lanes MakeLanes, full bool) {
	for _, c := range []struct {
		name        string
		connections int
		body        func(*testing.T, Lanes)
		counts      bool // see Case
	}{
		{"A's bulk", 2, func(t *testing.T, l Lanes) { streamsMove(t, l, 2, 4, 0) }, true},
		{"B's bulk", 2, func(t *testing.T, l Lanes) { streamsMove(t, l, 2, 0, 4) }, true},
		{"bulk both ways", 4, func(t *testing.T, l Lanes) { streamsMove(t, l, 4, 4, 4) }, true},
		{"ends while streams move", 3, endsWhileMoving, true},
		{"the second is lost", 2, func(t *testing.T, l Lanes) { laneLost(t, l, 2, 1) }, false},
		{"one of three is lost", 3, func(t *testing.T, l Lanes) { laneLost(t, l, 3, 2) }, false},
		{"the first is lost", 2, func(t *testing.T, l Lanes) { laneLost(t, l, 2, 0) }, false},
		{"all are lost", 2, lanesLost, false},
		{"no second can be dialled", 2, laneRefused, false},
		{"one too many", 2, laneTooMany, false},
	} {
		if full && !c.counts {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			l := lanes(t, c.connections, carrier.Options{Incoming: incoming, Budget: carrier.NewBudget(unread)})
			l.full = full
			t.Cleanup(func() {
				l.A.Close()
				l.B.Close()
			})
			c.body(t, l)
		})
	}
}

// traffic of one direction of a stream that goes on until it is told to end.
type flow struct {
	of   content
	stop chan struct{}

	wrote, got        atomic.Int64
	writeErr, readErr error
}

// run writes at w and reads at r what w sends.
func (f *flow) run(all *sync.WaitGroup, w, r carrier.Stream) {
	all.Go(func() {
		for f.writeErr == nil {
			select {
			case <-f.stop:
				f.writeErr = w.CloseWrite()
				return
			default:
			}
			var n int
			n, f.writeErr = w.Write(f.of.at(f.wrote.Load(), mostChunk))
			f.wrote.Add(int64(n))
		}
	})
	all.Go(func() {
		var dstErr error
		dstErr, f.readErr = r.CopyTo(&prompt{Writer: &sink{of: f.of}, rng: seeded(uint64(f.of))},
			func(n int) { f.got.Add(int64(n)) })
		if dstErr != nil {
			f.readErr = dstErr
			r.Reset(1)
		}
	})
}

// whole wants everything to have come.
func (f *flow) whole() error {
	if f.writeErr != nil || f.readErr != io.EOF || f.got.Load() != f.wrote.Load() {
		return fmt.Errorf("wrote %d bytes, then %v; read %d, then %v", f.wrote.Load(), f.writeErr, f.got.Load(), f.readErr)
	}
	return nil
}

// fair wants the flow to be whole, or to have ended with the loss of its connection.
func (f *flow) fair() (lost bool, err error) {
	if f.whole() == nil {
		return false, nil
	}
	for _, err := range []error{f.writeErr, f.readErr} {
		if err != nil && err != io.EOF && !fault.Has(err, fault.CodeSessionLost) || f.got.Load() > f.wrote.Load() {
			return true, f.whole()
		}
	}
	if f.readErr == io.EOF && f.got.Load() != f.wrote.Load() {
		return true, f.whole()
	}
	return true, nil
}

// bulk is streams that carry as much as they can.
type bulk struct {
	l     Lanes
	all   sync.WaitGroup
	stop  func()
	flows []*flow
	ends  []carrier.Stream
}

// startBulk opens so many streams with A's bytes and with B's, from both sides.
func startBulk(t *testing.T, l Lanes, fromA, fromB int) *bulk {
	t.Helper()
	stop := make(chan struct{})
	b := &bulk{l: l, stop: sync.OnceFunc(func() { close(stop) })}
	t.Cleanup(func() {
		b.stop()
		for _, s := range b.ends {
			s.Close()
		}
		b.all.Wait()
	})
	for i := range fromA + fromB {
		near, far := opposite(t, l.Pair, i%2 == 0)
		if i >= fromA {
			near, far = far, near
		}
		for _, s := range []carrier.Stream{near, far} {
			s.SetDeadline(time.Now().Add(2 * bound))
		}
		b.ends = append(b.ends, near, far)
		b.flows = append(b.flows, &flow{of: content(i), stop: stop})
	}
	for i, f := range b.flows {
		f.run(&b.all, b.ends[2*i], b.ends[2*i+1])
	}
	return b
}

func (b *bulk) moved() (n int64) {
	for _, f := range b.flows {
		n += f.got.Load()
	}
	return n
}

// spread waits until so many connections are in use.
func (b *bulk) spread(t *testing.T, connections int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connections at both ends", connections), func() bool {
		return b.l.A.Info().Connections == connections && b.l.B.Info().Connections == connections
	})
	for i := 1; i < connections; i++ {
		begin := b.l.Carried(i)
		eventually(t, fmt.Sprintf("connection %d carries bulk", i), func() bool { return b.l.Carried(i) > begin+1<<20 })
	}
}

// talk is a dialogue of short words until its context ends.
func talk(ctx context.Context, near, far carrier.Stream) (words int, err error) {
	for ; ctx.Err() == nil; words++ {
		if err := moveBytes(near, far, 100); err != nil {
			return words, err
		}
	}
	return words, nil
}

// streamsMove: bytes stay in order while bulk streams move between connections
// and others come and go beside them.
func streamsMove(t *testing.T, l Lanes, connections, fromA, fromB int) {
	size := int64(l.number(64<<20, 16<<20))
	near, far := link(t, l.A, l.B)
	b := startBulk(t, l, fromA, fromB)
	b.spread(t, connections)
	o := own(t)
	talking, hush := context.WithCancel(within(t))
	defer hush()
	words := 0
	o.do("talk", func() (err error) { words, err = talk(talking, near, far); return err })
	o.do("short streams", func() error {
		for i := 0; talking.Err() == nil; i++ {
			d := l.sides()[i%2]
			if err := shortStream(within(t), d.from, d.to, int64(1+i*997%300_000)); err != nil {
				return err
			}
		}
		return nil
	})
	begin := b.moved()
	eventually(t, "bulk has moved", func() bool { return b.moved() > begin+size })
	hush()
	o.wait()
	b.stop()
	b.all.Wait()
	for i, f := range b.flows {
		if err := f.whole(); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if words == 0 {
		t.Error("not a word was exchanged beside bulk")
	}
	for _, s := range append(b.ends, near, far) {
		s.Close()
	}
	emptied(t, l.Pair)
}

// endsWhileMoving: streams that are long enough to move end in every way at any point.
func endsWhileMoving(t *testing.T, l Lanes) {
	b := startBulk(t, l, 2, 2) // so that there are connections to move to
	b.spread(t, 3)
	rounds := l.number(10, 2)
	rng := seeded(11)
	side := func() sidePlan {
		size := rng.Int64N(3 << 20)
		return sidePlan{Size: size, Copies: rng.IntN(2) == 0, Prompt: rng.IntN(2) == 0, Code: 1 + rng.Uint32N(6),
			EndRead: rng.Int64N(3 << 20),
			End:     []endKind{inOrder, early, aborted}[rng.IntN(3)]}
	}
	for range rounds {
		var plans []streamPlan
		for range 8 {
			plans = append(plans, streamPlan{ByB: rng.IntN(2) == 0, First: rng.IntN(20_000), Sides: [2]sidePlan{side(), side()}})
		}
		for _, err := range carryOut(t.Context(), l.Pair, plans) {
			t.Error(err)
		}
	}
	b.stop()
	b.all.Wait()
	for i, f := range b.flows {
		if err := f.whole(); err != nil {
			t.Errorf("bulk stream %d: %v", i, err)
		}
	}
	for _, s := range b.ends {
		s.Close()
	}
	emptied(t, l.Pair)
}

// shortStream sends and takes back size bytes on a stream of its own.
func shortStream(ctx context.Context, from, to carrier.Session, size int64) error {
	near, err := from.OpenStream(ctx, []byte("a first word"))
	if err != nil {
		return err
	}
	near.SetDeadline(time.Now().Add(bound))
	far, err := to.AcceptStream(ctx)
	if err != nil {
		near.Reset(1)
		return err
	}
	echoed := make(chan error, 1)
	go func() { echoed <- echo(far) }()
	err = ask(near, size)
	return errors.Join(err, <-echoed)
}

// laneLost: the loss of one connection ends the streams that are on it, with a
// code, and nothing else.
func laneLost(t *testing.T, l Lanes, connections, which int) {
	near, far := link(t, l.A, l.B)
	if err := moveBytes(near, far, 1000); err != nil {
		t.Fatal(err)
	}
	b := startBulk(t, l, 4, 4)
	b.spread(t, connections)
	l.Refuse()
	l.Lose(which)
	eventually(t, "both ends know", func() bool {
		return l.A.Info().Connections == connections-1 && l.B.Info().Connections == connections-1
	})
	talkErr := moveBytes(near, far, 1000)
	if which != 0 && talkErr != nil {
		t.Errorf("an interactive stream on the first connection: %v", talkErr)
	}
	if which == 0 && !fault.Has(talkErr, fault.CodeSessionLost) {
		t.Errorf("an interactive stream on the lost connection: %v, want session_lost", talkErr)
	}
	for _, d := range l.sides() {
		if err := shortStream(within(t), d.from, d.to, 500_000); err != nil {
			t.Errorf("a new stream: %v", err)
		}
	}
	b.stop()
	b.all.Wait()
	lost := 0
	for i, f := range b.flows {
		gone, err := f.fair()
		if err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
		if gone {
			lost++
		}
	}
	if which != 0 && lost == 0 {
		t.Error("no stream was on the connection that was lost")
	}
	select {
	case <-l.A.Done():
		t.Error("A has ended")
	case <-l.B.Done():
		t.Error("B has ended")
	default:
	}
	for _, s := range append(b.ends, near, far) {
		s.Close()
	}
	emptied(t, l.Pair)
	for i := range l.Dialled() {
		l.Lose(i)
	}
	ended(t, l.Pair)
}

// lanesLost: the last loss ends the session and all that is on it.
func lanesLost(t *testing.T, l Lanes) {
	near, far := link(t, l.A, l.B)
	b := startBulk(t, l, 2, 2)
	b.spread(t, 2)
	l.Refuse()
	for i := range l.Dialled() {
		l.Lose(i)
	}
	b.all.Wait()
	for i, f := range b.flows {
		if gone, err := f.fair(); err != nil || !gone {
			t.Errorf("stream %d: whole %v, %v", i, !gone, err)
		}
	}
	ended(t, l.Pair, near, far)
}

// laneRefused: without a further connection everything goes on over the first.
func laneRefused(t *testing.T, l Lanes) {
	l.Refuse()
	b := startBulk(t, l, 2, 2)
	eventually(t, "bulk has moved", func() bool { return b.moved() > 10<<20 })
	b.stop()
	b.all.Wait()
	for i, f := range b.flows {
		if err := f.whole(); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if n := l.A.Info().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// laneTooMany: a session takes no more than its bound, and none after its end.
func laneTooMany(t *testing.T, l Lanes) {
	b := startBulk(t, l, 2, 2)
	b.spread(t, 2)
	extra := l.Another()
	defer extra.Close()
	if err := l.B.Attach(extra); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("a third of two connections: %v, want limit_reached", err)
	}
	b.stop()
	b.all.Wait()
	l.B.Close()
	late := l.Another()
	defer late.Close()
	if err := l.B.Attach(late); err == nil {
		t.Error("an ended session took a connection")
	}
}
