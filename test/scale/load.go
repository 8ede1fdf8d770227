// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	"github.com/tombolo-io/tombolo/test/roles"
)

// The kinds of load that callers put on a hub.
const (
	loadHold  = "hold"  // so many streams in all, which do nothing
	loadVisit = "visit" // the same, and the agents let go of them when they end
	loadQuiet = "quiet" // dials one after the other, with a pause
	loadDials = "dials" // dials at a rate, whether or not the last ones are through
	loadPing  = "ping"  // a byte there and back on each of so many streams, with a pause
	loadBulk  = "bulk"  // so many streams bring bytes
	loadFlood = "flood" // so many callers dial without a pause
)

// loadArgs begin a load on some clusters.
type loadArgs struct {
	Kind     string `json:"kind"`
	First    int    `json:"first"`    // cluster
	Clusters int    `json:"clusters"` // so many from there on
	Skewed   bool   `json:"skewed"`   // 80 % goes to 1 % of them
	Streams  int    `json:"streams"`
	Rate     int    `json:"rate"` // a second
}

// loadResult is what became of it.
type loadResult struct {
	Latency  latency       `json:"latency"`
	Bytes    int64         `json:"bytes"`
	Wall     time.Duration `json:"wall"`
	Failures int64         `json:"failures"`
	First    string        `json:"first,omitempty"` // of them
}

// rate is bytes a second.
func (r loadResult) rate() float64 { return float64(r.Bytes) / r.Wall.Seconds() }

// load is one that runs.
type load struct {
	loadArgs
	hub    *hub.Hub
	began  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup

	took     histogram
	bytes    atomic.Int64
	failures atomic.Int64
	first    atomic.Pointer[string]
	mu       sync.Mutex
	open     []carrier.Stream // reset at the end
}

func (r *hubRole) begin(raw json.RawMessage) (int, error) {
	args, err := roles.Arguments[loadArgs](raw)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{loadArgs: args, hub: r.hub, cancel: cancel, began: time.Now()}
	if err := l.run(ctx); err != nil {
		l.end()
		return 0, err
	}
	if r.loads == nil {
		r.loads = map[int]*load{}
	}
	r.last++
	r.loads[r.last] = l
	return r.last, nil
}

// run starts what the kind says.
func (l *load) run(ctx context.Context) error {
	switch l.Kind {
	case loadHold, loadVisit:
		target := targetHold
		if l.Kind == loadVisit {
			target = targetEcho
		}
		return roles.InParallel(l.Streams, 16, func(i int) error {
			_, err := l.keep(ctx, l.First+i%l.Clusters, target)
			return err
		})
	case loadPing, loadBulk:
		target, work := targetEcho, l.ping
		if l.Kind == loadBulk {
			target, work = targetSource, l.drink
		}
		for i := range l.Streams {
			s, err := l.keep(ctx, l.First+i%l.Clusters, target)
			if err != nil {
				return err
			}
			l.wg.Go(func() { work(ctx, s) })
		}
		return nil
	case loadQuiet:
		l.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.once(ctx, l.First+i%l.Clusters, time.Now())
				pause(ctx, 5*time.Millisecond)
			}
		})
		return nil
	case loadFlood:
		for i := range l.Streams {
			l.wg.Go(func() {
				for ctx.Err() == nil {
					l.once(ctx, l.First+i%l.Clusters, time.Now())
				}
			})
		}
		return nil
	case loadDials:
		l.wg.Go(func() { l.atRate(ctx) })
		return nil
	}
	return fmt.Errorf("there is no load %q", l.Kind)
}

// atRate dials in time, each in a goroutine of its own. What a dial waits for the
// scheduler counts; that the timer woke us late does not.
func (l *load) atRate(ctx context.Context) {
	begin := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(l.Rate))
		pause(ctx, time.Until(due))
		cluster, asked := l.First+l.pick(n), time.Now()
		l.wg.Go(func() { l.once(ctx, cluster, asked) })
	}
}

// pick spreads dials evenly, or 80 % of them over 1 % of the clusters.
func (l *load) pick(n int) int {
	if !l.Skewed {
		return n % l.Clusters
	}
	if few := max(1, l.Clusters/100); rand.IntN(5) < 4 {
		return rand.IntN(few)
	}
	return rand.IntN(l.Clusters)
}

// dial opens a stream as a frontend does.
func (l *load) dial(ctx context.Context, cluster int, target string) (carrier.Stream, error) {
	name, err := id.ParseCluster(clusterName(cluster))
	if err != nil {
		return nil, err
	}
	return l.hub.Dial(ctx, name, wire.Dial{Network: "tcp", Address: target, Caller: "scale"})
}

// keep dials a stream that stays until the end.
func (l *load) keep(ctx context.Context, cluster int, target string) (carrier.Stream, error) {
	s, err := l.dial(ctx, cluster, target)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, s)
	return s, nil
}

// once dials, notes how long that took, and closes.
func (l *load) once(ctx context.Context, cluster int, asked time.Time) {
	s, err := l.dial(ctx, cluster, targetEcho)
	switch {
	case err == nil:
		l.took.add(time.Since(asked))
		s.Close()
	case ctx.Err() == nil:
		l.failed(err)
	}
}

func (l *load) failed(err error) {
	l.failures.Add(1)
	text := err.Error()
	l.first.CompareAndSwap(nil, &text)
}

func (l *load) ping(ctx context.Context, s carrier.Stream) {
	b := make([]byte, 64)
	for ctx.Err() == nil {
		begin := time.Now()
		_, err := s.Write(b)
		if err == nil {
			_, err = io.ReadFull(s, b)
		}
		if err != nil {
			if ctx.Err() == nil {
				l.failed(err)
			}
			return
		}
		l.took.add(time.Since(begin))
		pause(ctx, time.Millisecond)
	}
}

func (l *load) drink(ctx context.Context, s carrier.Stream) {
	b := make([]byte, limit.CopyBuffer)
	for {
		n, err := s.Read(b)
		l.bytes.Add(int64(n))
		if err != nil {
			if ctx.Err() == nil {
				l.failed(err)
			}
			return
		}
	}
}

// end ends the load and all of its streams.
func (l *load) end() loadResult {
	out := loadResult{Wall: time.Since(l.began), Bytes: l.bytes.Load()}
	l.cancel()
	l.mu.Lock()
	for _, s := range l.open {
		s.Reset(0)
	}
	l.open = nil
	l.mu.Unlock()
	l.wg.Wait()
	out.Latency, out.Failures = l.took.latency(), l.failures.Load()
	if first := l.first.Load(); first != nil {
		out.First = *first
	}
	return out
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	if !run.Wait(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
