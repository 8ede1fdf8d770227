// SPDX-License-Identifier: Apache-2.0

// Package heartbeat runs the control stream of a session, the same on both
// ends: pings with round-trip time, detection of a dead link, the passing of all
// other frames to their owner, and the move to another stream when one breaks
// while the session lives. It does not know hubs or agents.
package heartbeat

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/liveness"
	"github.com/tombolo-io/tombolo/internal/base/run"
	pb "github.com/tombolo-io/tombolo/proto"
)

// Stream carries control frames. Reset ends it at both ends, and with it every
// Read and Write. If it has a method Background, that is called first: nobody waits
// for an answer on a control stream.
type Stream interface {
	io.ReadWriter
	Reset(code uint32) error
}

// Options of the control stream of one session.
type Options struct {
	Stream Stream // the first
	// Next gives the stream that takes over from one that broke. It fails when
	// the session has ended, which ends the beat; nil: so does every failure.
	Next         func(ctx context.Context) (Stream, error)
	Done         <-chan struct{}     // closed when the session has ended; nil: Next says so
	End          func()              // ends the session, and with it every Read and Write of its streams
	LastReceived func() time.Time    // newest byte of the session
	OnFrame      func(*pb.Control)   // frames other than pings; must not block
	OnRTT        func(time.Duration) // each measured round trip
}

// queueLength bounds the frames that wait for a link that does not move: then
// nothing is lost by dropping a ping, because it would arrive too late anyway.
const queueLength = 16

// Beat is the control stream of one session.
type Beat struct {
	o       Options
	out     chan *pb.Control
	turn    chan struct{} // holds one token while there is a stream and nobody writes to it
	writer  *writer       // of the current stream; only the owner of the turn may use it
	writers *run.Group
	watcher *run.Alarm
	looks   liveness.Looks              // of watch
	dead    atomic.Pointer[fault.Fault] // why the link is dead

	mu        sync.Mutex
	busy      int       // streams and dials that are live
	liveSince time.Time // when busy left 0 after more than a moment
	idleSince time.Time // when busy came back to 0
	number    uint64
	sent      []pinged // that have no answer yet, at most queueLength
	lastPing  time.Time
	rtt       time.Duration
	waiters   map[chan struct{}]struct{}
	standing  [standings]*pb.Control // said once, and again on each further stream
}

// pinged is a ping that was sent, or waits to be.
type pinged struct {
	number uint64
	at     time.Time
}

// New makes the control stream's owner; Run does the work.
func New(o Options) *Beat {
	b := &Beat{o: o, out: make(chan *pb.Control, queueLength), turn: make(chan struct{}, 1)}
	b.watcher = run.NewAlarm(b.watch)
	return b
}

// Run works until the link is dead or the session has ended (session_lost), the
// peer breaks the protocol, or ctx ends. It then ends the session: merely
// closing the stream would wait for a link that does not move.
func (b *Beat) Run(ctx context.Context) error {
	stop := run.OnDone(ctx, b.o.End)
	b.writers = run.NewGroup(context.WithoutCancel(ctx))
	b.watcher.Start()
	err := b.converse(ctx)
	b.watcher.Stop()
	b.o.End()
	b.writers.Wait()
	stop()
	return err
}

// Send queues a frame; false means that the link does not move and the queue is
// full. What stands for long (a drain, the load) is said again on another stream.
func (b *Beat) Send(f *pb.Control) bool {
	if place, ok := standing(f); ok {
		b.mu.Lock()
		b.standing[place] = f
		b.mu.Unlock()
	}
	select {
	case b.out <- f:
		b.flush()
		return true
	default:
		return false
	}
}

// Busy tells that a stream or dial begins (+1) or ends (-1), which sets the pace.
func (b *Beat) Busy(delta int) {
	b.mu.Lock()
	before := b.busy
	b.busy += delta
	wakes := false // the next look would come too late; from a live pace to an idle one it comes soon
	switch now := time.Now(); {
	case before == 0 && b.busy > 0 && !b.coolingLocked(now):
		b.liveSince, wakes = now, true
	case before > 0 && b.busy == 0:
		b.idleSince = now
	}
	b.mu.Unlock()
	if wakes {
		b.watcher.Ring()
	}
}

// RTT is the newest round trip, 0 before the first.
func (b *Beat) RTT() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rtt
}

// Probe pings and waits until the peer has been heard, the session has ended or
// ctx ends.
func (b *Beat) Probe(ctx context.Context) error {
	start := time.Now()
	heard := make(chan struct{}, 1)
	b.mu.Lock()
	if b.waiters == nil {
		b.waiters = map[chan struct{}]struct{}{}
	}
	b.waiters[heard] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.waiters, heard)
		b.mu.Unlock()
	}()
	b.ping(start)
	select {
	case <-heard:
		return nil
	case <-b.o.Done:
		return fault.New(fault.CodeSessionLost, "the session has ended")
	case <-ctx.Done():
		if b.o.LastReceived().After(start) {
			return nil
		}
		return ctx.Err()
	}
}

func (b *Beat) ping(now time.Time) {
	b.mu.Lock()
	b.number++
	n := b.number
	b.lastPing = now
	if len(b.sent) < queueLength {
		b.sent = append(b.sent, pinged{n, now})
	}
	b.mu.Unlock()
	b.Send(&pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: n}}})
}

func (b *Beat) facts() liveness.Facts {
	f := liveness.Facts{LastReceived: b.o.LastReceived()}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.LastPing = b.lastPing
	if b.busy > 0 || b.coolingLocked(time.Now()) {
		f.LiveSince = b.liveSince
	}
	return f
}

// coolingLocked reports whether the session was live a moment ago. It then still
// counts as live: else a series of short dials on a dead link would give it a
// new beginning with each.
func (b *Beat) coolingLocked(now time.Time) bool {
	return !b.idleSince.IsZero() && now.Sub(b.idleSince) < limit.DeadLive
}

// watch pings when that is due, ends the session when it is dead, and says when to
// look again.
func (b *Beat) watch() time.Duration {
	f := b.facts()
	now := time.Now()
	f.Missed = b.looks.Look(f.LastReceived, now)
	step := liveness.Next(f, now)
	if step.Dead {
		b.dead.Store(fault.New(fault.CodeSessionLost, "the link is dead").
			Whyf("no byte came for %v", now.Sub(f.LastReceived).Round(10*time.Millisecond)))
		b.o.End()
		return -1
	}
	if step.Ping {
		b.ping(now)
	}
	wait := max(step.Wait, time.Millisecond)
	b.looks.Next(now.Add(wait))
	return wait
}

func (b *Beat) pong(n uint64, now time.Time) {
	b.mu.Lock()
	var at time.Time
	b.sent = slices.DeleteFunc(b.sent, func(p pinged) bool {
		if p.number == n {
			at = p.at
		}
		return p.number <= n
	})
	if !at.IsZero() {
		b.rtt = now.Sub(at)
	}
	for w := range b.waiters {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	if !at.IsZero() && b.o.OnRTT != nil {
		b.o.OnRTT(now.Sub(at))
	}
}
