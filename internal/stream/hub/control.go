// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// controls are the streams that an agent opens for control: one that is in use,
// and at most one that is newer, because the agent found the other one broken
// before the hub did. The newest counts.
//
//	agent opens ──► offer ──► pending ──► take ──► current
//	                  └─ resets what is older
//
// How many there are at a time is bounded by the carrier (limit.AgentStreams); a
// peer that opens more in a loop costs no more than the frames it sends.
type controls struct {
	ready chan struct{} // signalled when there is one pending

	mu               sync.Mutex
	current, pending carrier.Stream
}

func newControls() *controls { return &controls{ready: make(chan struct{}, 1)} }

func (c *controls) offer(stream carrier.Stream) {
	c.mu.Lock()
	older := []carrier.Stream{c.current, c.pending}
	c.pending = stream
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
	for _, old := range older {
		if old != nil {
			old.Reset(carrier.ResetRefused)
		}
	}
}

// take waits for the agent's first stream, or the one that takes over from a
// broken one, until the session is done.
func (c *controls) take(ctx context.Context, done <-chan struct{}) (carrier.Stream, error) {
	timer := time.NewTimer(limit.Hello)
	defer timer.Stop()
	for {
		select {
		case <-c.ready:
			if stream := c.use(); stream != nil {
				return stream, nil
			}
		case <-done:
			return nil, fault.New(fault.CodeSessionLost, "the session has ended")
		case <-timer.C:
			return nil, fault.New(fault.CodeSessionLost, "the agent opened no control stream").
				Whyf("none came within %v", limit.Hello)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *controls) use() carrier.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := c.pending
	if stream != nil {
		c.current, c.pending = stream, nil
	}
	return stream
}
