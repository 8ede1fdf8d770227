// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/heartbeat"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
)

// controls are the streams that an agent opens for control: one that is in use,
// and at most one that is newer, because the agent found the other one broken
// before the hub did. The newest counts.
//
//	agent opens ──► offer ──► pending ──► take ──► current
//	                  └─ resets what is older
type controls struct {
	link  carrier.Session
	ready chan struct{} // signalled when there is one pending

	mu               sync.Mutex
	current, pending carrier.Stream
}

func newControls(link carrier.Session, first carrier.Stream) *controls {
	return &controls{link: link, ready: make(chan struct{}, 1), current: first}
}

// accept takes the agent's streams until the session ends. How many there are at
// a time is bounded by the carrier (limit.AgentStreams); a peer that opens more in
// a loop costs no more than the frames it sends.
func (c *controls) accept(ctx context.Context) {
	for {
		stream, err := c.link.AcceptStream(ctx)
		if err != nil {
			return
		}
		c.offer(stream)
	}
}

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

// take waits for the stream that takes over from a broken one.
func (c *controls) take(ctx context.Context) (heartbeat.Stream, error) {
	timer := time.NewTimer(limit.Hello)
	defer timer.Stop()
	for {
		select {
		case <-c.ready:
			if stream := c.use(); stream != nil {
				return stream, nil
			}
		case <-c.link.Done():
			return nil, fault.New(fault.CodeSessionLost, "the session has ended")
		case <-timer.C:
			return nil, fault.New(fault.CodeSessionLost, "the agent opened no other control stream").Whyf("none came within %v", limit.Hello)
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

// acceptControl waits for the first stream, which the agent opens for control.
func acceptControl(ctx context.Context, link carrier.Session) (carrier.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Hello)
	defer cancel()
	stop := run.OnDone(ctx, func() { link.Close() })
	control, err := link.AcceptStream(ctx)
	stop()
	if err != nil {
		return nil, fault.New(fault.CodeSessionLost, "the agent opened no control stream").Because(err)
	}
	return control, nil
}
