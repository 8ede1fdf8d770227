// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"container/list"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/tap"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// arrivals are the calls whose request has not come whole. Nobody has been asked whether
// to take them, for gRPC asks once it has the request, and each may have sent
// discoveryWindow bytes of that, with as many calls on a connection as it carries.
// One that stops is ended.
type arrivals struct {
	mu    sync.Mutex
	order list.List // of coming, the oldest first
}

type coming struct {
	since time.Time
	end   context.CancelFunc
}

type comeKey struct{}

// tap implements tap.ServerInHandle. It refuses nothing: of a call that is refused here
// gRPC keeps the timer.
func (a *arrivals) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, end := context.WithCancel(ctx)
	a.mu.Lock()
	place := a.order.PushBack(coming{time.Now(), end})
	a.mu.Unlock()
	stop := run.OnDone(ctx, func() { a.leave(place) })
	return context.WithValue(ctx, comeKey{}, func() {
		stop()
		a.leave(place)
	}), nil
}

func (a *arrivals) leave(place *list.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.order.Remove(place) // nothing, the second time
}

// came notes that the request of a call is there.
func came(ctx context.Context) {
	if come, ok := ctx.Value(comeKey{}).(func()); ok {
		come()
	}
}

// sweep ends the calls that take longer than discoveryBegin, and while there are
// more than discoveryBegun, those that do not come at once.
func (a *arrivals) sweep(now time.Time) {
	for _, end := range a.late(now) {
		end() // which takes it out
	}
}

func (a *arrivals) late(now time.Time) (out []context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	many := a.order.Len() - discoveryBegun
	for e := a.order.Front(); e != nil; e = e.Next() {
		c, _ := e.Value.(coming)
		if age := now.Sub(c.since); age < limit.DiscoverySweep || age < discoveryBegin && len(out) >= many {
			break
		}
		out = append(out, c.end)
	}
	return out
}
