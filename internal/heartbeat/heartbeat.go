// SPDX-License-Identifier: Apache-2.0

// Package heartbeat runs the control stream of a session, the same on both
// ends: pings with round-trip time, detection of a dead link, the passing of all
// other frames to their owner, and the move to another stream when one breaks
// while the session lives. It does not know hubs or agents.
package heartbeat

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/liveness"
	"github.com/tombolo-io/tombolo/internal/run"
	pb "github.com/tombolo-io/tombolo/proto"
)

// Stream carries control frames. Reset ends it at both ends, and with it every
// Read and Write.
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
	o    Options
	out  chan *pb.Control
	kick chan struct{}

	mu        sync.Mutex
	busy      int       // streams and dials that are live
	liveSince time.Time // when busy left 0 after more than a moment
	idleSince time.Time // when busy came back to 0
	number    uint64
	sent      map[uint64]time.Time
	lastPing  time.Time
	rtt       time.Duration
	waiters   map[chan struct{}]struct{}
	standing  [standings]*pb.Control // said once, and again on each further stream
}

// New makes the control stream's owner; Run does the work.
func New(o Options) *Beat {
	return &Beat{
		o: o, out: make(chan *pb.Control, queueLength), kick: make(chan struct{}, 1),
		sent: map[uint64]time.Time{}, waiters: map[chan struct{}]struct{}{},
	}
}

// Run works until the link is dead or the session has ended (session_lost), the
// peer breaks the protocol, or ctx ends. It then ends the session: merely
// closing the stream would wait for a link that does not move.
func (b *Beat) Run(ctx context.Context) error {
	g := run.NewGroup(ctx)
	stop := run.OnDone(g.Context(), b.o.End)
	g.Go("control", b.converse)
	g.Go("watch", b.watch)
	err := g.Wait()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
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
	switch now := time.Now(); {
	case before == 0 && b.busy > 0 && !b.coolingLocked(now):
		b.liveSince = now
	case before > 0 && b.busy == 0:
		b.idleSince = now
	}
	changed := (before == 0) != (b.busy == 0)
	b.mu.Unlock()
	if changed {
		b.wake()
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

func (b *Beat) wake() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

func (b *Beat) ping(now time.Time) {
	b.mu.Lock()
	b.number++
	n := b.number
	b.lastPing = now
	if len(b.sent) < queueLength {
		b.sent[n] = now
	}
	b.mu.Unlock()
	b.Send(&pb.Control{Frame: &pb.Control_Ping{Ping: &pb.Ping{Number: n}}})
}

func (b *Beat) facts() liveness.Facts {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := liveness.Facts{LastReceived: b.o.LastReceived(), LastPing: b.lastPing}
	if b.busy > 0 || b.coolingLocked(time.Now()) {
		f.LiveSince = b.liveSince
	}
	return f
}

// coolingLocked says whether the session was live a moment ago. It then still
// counts as live: else a series of short dials on a dead link would give it a
// new beginning with each.
func (b *Beat) coolingLocked(now time.Time) bool {
	return !b.idleSince.IsZero() && now.Sub(b.idleSince) < limit.DeadLive
}

func (b *Beat) watch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-b.kick:
		}
		f := b.facts()
		now := time.Now()
		step := liveness.Next(f, now)
		if step.Dead {
			return fault.New(fault.CodeSessionLost, "the link is dead").
				Whyf("no byte came for %v", now.Sub(f.LastReceived).Round(10*time.Millisecond))
		}
		if step.Ping {
			b.ping(now)
		}
		timer.Reset(max(step.Wait, time.Millisecond))
	}
}

func (b *Beat) pong(n uint64, now time.Time) {
	b.mu.Lock()
	at, ok := b.sent[n]
	for old := range b.sent {
		if old <= n {
			delete(b.sent, old)
		}
	}
	if ok {
		b.rtt = now.Sub(at)
	}
	for w := range b.waiters {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	if ok && b.o.OnRTT != nil {
		b.o.OnRTT(now.Sub(at))
	}
}
