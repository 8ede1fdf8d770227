// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// converse keeps a control stream until the session ends:
//
//	stream ──breaks──► wait for what is left of a second ──► Next ──► stream
//	   │                                                       └─ fails: the session has ended
//	   └─ends in order, or with a frame that cannot be: the end
//
// What a broken stream had taken may not have arrived. So what stands for long is
// said again; a ping or its answer is not missed.
func (b *Beat) converse(ctx context.Context) error {
	stream := b.o.Stream
	for {
		began := time.Now()
		err := b.over(ctx, stream)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if dead := b.dead.Load(); dead != nil {
			return dead
		}
		if b.o.Next == nil || !broke(err) {
			return lost(err)
		}
		b.pause(ctx, limit.ControlAgain-time.Since(began))
		next, nerr := b.o.Next(ctx)
		if nerr != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if dead := b.dead.Load(); dead != nil {
				return dead
			}
			// How the stream broke says more than that there is no other one.
			return lost(errors.Join(err, nerr))
		}
		stream = next
		b.forget()
		b.ping(time.Now())
	}
}

// over reads and writes until either fails, and gives the first failure.
func (b *Beat) over(ctx context.Context, stream Stream) error {
	if s, ok := stream.(interface{ Background() }); ok {
		s.Background()
	}
	stop := run.OnDone(ctx, func() { stream.Reset(0) })
	w := &writer{stream: stream}
	b.writer = w
	b.turn <- struct{}{}
	b.flush()
	w.fail(b.read(stream))
	stream.Reset(0) // ends a write that waits
	<-b.turn
	stop()
	return w.first()
}

// writer writes to one stream. Only the owner of the turn does.
type writer struct {
	stream Stream
	began  bool // what stands has been said

	mu      sync.Mutex
	failure error // the first, of reading or writing
}

func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = err
	}
}

func (w *writer) first() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// flush takes the turn, if it is free, and writes what is queued in a goroutine
// that lasts as long as that: there is none while a session is silent.
func (b *Beat) flush() {
	select {
	case <-b.turn:
		b.writers.Do(b.write)
	default:
	}
}

// write says what stands, then what is queued, and gives the turn back. It ends
// when the queue is empty, or the stream takes no more.
func (b *Beat) write(context.Context) {
	w := b.writer
	for w.first() == nil {
		var err error
		if !w.began {
			err = b.say(w)
		}
		for err == nil && len(b.out) > 0 {
			f := <-b.out // nobody else takes from it
			if place, ok := standing(f); ok {
				f = b.stands(place) // the newest, which the queue may not have taken
			}
			err = wire.Write(w.stream, f)
		}
		if err != nil {
			w.fail(err)
			w.stream.Reset(0) // ends the reader
			break
		}
		b.turn <- struct{}{}
		if len(b.out) == 0 {
			return
		}
		select { // something came after the last look, and met a turn that was taken
		case <-b.turn:
			if b.writer != w { // the stream has been replaced meanwhile
				w = b.writer
			}
		default:
			return // another has it
		}
	}
	b.turn <- struct{}{}
}

// say writes what stands for long, once on each stream.
func (b *Beat) say(w *writer) error {
	w.began = true
	for place := range standings {
		if f := b.stands(place); f != nil {
			if err := wire.Write(w.stream, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Beat) read(stream Stream) error {
	for {
		var f pb.Control
		if err := wire.Read(stream, limit.ControlFrame, &f); err != nil {
			return err
		}
		switch x := f.GetFrame().(type) {
		case *pb.Control_Ping:
			b.Send(&pb.Control{Frame: &pb.Control_Pong{Pong: &pb.Pong{Number: x.Ping.GetNumber()}}})
		case *pb.Control_Pong:
			b.pong(x.Pong.GetNumber(), time.Now())
		case nil: // a frame of a newer version
		default:
			b.o.OnFrame(&f)
		}
	}
}

// standings is how many kinds of frames stand for long.
const standings = 3

// standing reports whether a frame stands for long, and in which place: of each
// kind the newest counts.
func standing(f *pb.Control) (place int, ok bool) {
	switch f.GetFrame().(type) {
	case *pb.Control_Load:
		return 0, true
	case *pb.Control_Drain:
		return 1, true
	case *pb.Control_Goodbye:
		return 2, true
	}
	return 0, false
}

func (b *Beat) stands(place int) *pb.Control {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing[place]
}

// forget gives up the round trips of pings that may be lost, or wait in the queue.
func (b *Beat) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = b.sent[:0]
}

// broke reports whether a stream was cut, which another one may repair. One that
// its peer ended in order, and one with a frame that cannot be, are an end.
func broke(err error) bool {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Code == fault.CodeSessionLost
	}
	return !errors.Is(err, io.EOF)
}

// lost codes the end of the stream; faults of a hostile peer keep their code.
func lost(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return err
	}
	if err == io.EOF {
		return fault.New(fault.CodeSessionLost, "the peer closed the session")
	}
	return fault.New(fault.CodeSessionLost, "the session broke").Because(err)
}

// pause waits, but not beyond the end of the session.
func (b *Beat) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.o.Done:
	case <-ctx.Done():
	}
}
