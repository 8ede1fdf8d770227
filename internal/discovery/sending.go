// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
)

// outlet sends to one watcher. gRPC's SendMsg waits for a peer that does not read
// until the call's handler returns; so another goroutine waits there, and the
// handler looks now and then whether the watcher is lost.
type outlet struct {
	stream  grpc.ServerStream
	work    *run.Group
	watcher *Watcher
	done    chan error
}

func newOutlet(stream grpc.ServerStream, work *run.Group, w *Watcher) *outlet {
	return &outlet{stream: stream, work: work, watcher: w, done: make(chan error, 1)}
}

// send returns when the message is on its way. After an error the handler must return.
func (o *outlet) send(m any) error {
	o.work.Do(func(context.Context) { o.done <- o.stream.SendMsg(m) })
	tick := time.NewTimer(limit.DiscoverySweep)
	defer tick.Stop()
	for {
		select {
		case err := <-o.done:
			return err
		case <-tick.C:
			if err := o.watcher.lost(); err != nil {
				return err
			}
			tick.Reset(limit.DiscoverySweep)
		}
	}
}

// lost is the fault of a watcher that cannot catch up any more.
func (w *Watcher) lost() error {
	w.c.mu.RLock()
	missed, kept := w.c.seq-w.seen, len(w.c.log)
	w.c.mu.RUnlock()
	if missed <= uint64(kept) {
		return nil
	}
	return fault.New(fault.CodeWatchLost, "the watch is ended").
		Whyf("%d changes were missed, and %d are kept", missed, kept).Hint("watch again: the first answer is everything")
}

// settled waits until the store knows who is not there.
func (s *Service) settled(ctx context.Context) error {
	for {
		state := s.store.State()
		if state.Settled {
			return nil
		}
		wait := limit.DiscoverySweep
		if !state.Settles.IsZero() {
			wait = max(time.Until(state.Settles), time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.draining:
			timer.Stop()
			return drained()
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func drained() error {
	return fault.New(fault.CodeDraining, "the service is about to stop").Hint("call again: another one, or this one when it is back, will answer")
}

// watch begins a watch of a cluster for a caller; end must follow.
func (s *Service) watch(ctx context.Context, id Cluster) (w *Watcher, end func(), err error) {
	select {
	case <-s.draining:
		return nil, nil, drained()
	default:
	}
	limits := s.settings.Load().limits
	if n := s.watchers.Add(1); n > int64(limits.Watches) {
		s.watchers.Add(-1)
		return nil, nil, fault.New(fault.CodeLimit, "the watch is not taken").Whyf("the service has %d, which is its bound", n-1).
			Hint("raise limits.watches of the service, or use another service")
	}
	release, err := s.callers.hold(callerOf(ctx).Addr(), holdWatch, limits.WatchesPerAddress, limits.Watches)
	if err != nil {
		s.watchers.Add(-1)
		return nil, nil, err
	}
	w = s.board.Watch(id)
	return w, func() {
		s.watchers.Add(-1)
		w.Close()
		release()
	}, nil
}
