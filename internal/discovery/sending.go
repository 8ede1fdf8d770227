// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// settled waits until the store knows which members are gone.
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
	return fault.New(fault.CodeDraining, "the service is about to stop").
		Hint("call again: another one, or this one when it is back, will answer")
}

// follow takes a place for a call that follows a cluster; leave must follow.
func (s *Service) follow(ctx context.Context) (leave func(), err error) {
	select {
	case <-s.draining:
		return nil, drained()
	default:
	}
	limits := s.settings.Load().limits
	if n := s.watchers.Add(1); n > int64(limits.Watches) {
		s.watchers.Add(-1)
		return nil, fault.New(fault.CodeLimit, "the watch is not taken").Whyf("the service has %d, which is its bound", n-1).
			Hint("raise limits.watches of the service, or use another service")
	}
	release, err := s.callers.hold(callerOf(ctx).Addr(), holdWatch, 1, limits.WatchesPerAddress, limits.Watches)
	if err != nil {
		s.watchers.Add(-1)
		return nil, err
	}
	return func() {
		s.watchers.Add(-1)
		release()
	}, nil
}

// followed calls a handler of a stream, which has a place until it returns.
func (s *Service) followed(ctx context.Context, stream grpc.ServerStream, handle func(calledStream) error) error {
	leave, err := s.follow(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return handle(calledStream{stream, s.answers, ctx})
}
