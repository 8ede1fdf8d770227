// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// idleFor is how long a session is left alone before its memory is looked at:
// longer than buffers are kept for the next burst.
const idleFor = 2 * time.Second

// memStreams measures what idle streams hold at each end: spans of the heap and
// stacks in use after a collection. Neither end of the benchmark has a goroutine
// for a stream. What the kernel holds is not in it; connections that are streams
// have more of that.
func memStreams() measurement {
	const n = 10_000
	return measurement{
		name: "memstreams", about: "memory of Go per idle stream, 10,000 of them",
		transports: []string{"tls", "mux1", "yamux1"}, variants: []string{"10000"}, main: hubBytes, against: kindTLS, rounds: 3,
		fresh: true, crew: pair,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			hub, agent, err := c.memory(ctx)
			if err != nil {
				return nil, err
			}
			if err := c.load.Call(ctx, opHold, 0, n, nil); err != nil {
				return nil, err
			}
			return c.grown(ctx, [2]memory{hub, agent}, n)
		},
	}
}

// memSessions measures what an idle session holds: a pair of processes with many
// sessions against a pair with one.
func memSessions() measurement {
	const n = 1_000
	return measurement{
		name: "memsessions", about: "memory of Go per idle session with its TLS connection, 1,000 of them",
		transports: []string{"mux1", "yamux1"}, variants: []string{"1000"}, main: hubBytes, against: "yamux1", crew: pair,
		fresh: true, rounds: 3,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			if err := pause(ctx, idleFor); err != nil {
				return nil, err
			}
			hub, agent, err := c.memory(ctx)
			if err != nil {
				return nil, err
			}
			t, err := parseTransport(s.transport)
			if err != nil {
				return nil, err
			}
			t.Sessions += n
			many, err := b.pairAt(ctx, s.transport, t, b.loopback())
			if err != nil {
				return nil, err
			}
			defer many.stop()
			return many.grown(ctx, [2]memory{hub, agent}, n)
		},
	}
}

// memory reads the load's and the far end's memory.
func (c *crew) memory(ctx context.Context) (hub, agent memory, err error) {
	if err = c.load.Call(ctx, opMemory, 0, nil, &hub); err == nil {
		err = c.serve.Call(ctx, opMemory, 0, nil, &agent)
	}
	return hub, agent, err
}

// grown is what each of n things added to what there was, once all is quiet.
func (c *crew) grown(ctx context.Context, before [2]memory, n int) (values, error) {
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	hub, agent, err := c.memory(ctx)
	if err != nil {
		return nil, err
	}
	each := func(now, then int64) float64 { return float64(now-then) / float64(n) }
	return values{
		hubBytes: each(hub.InUse, before[0].InUse), agentBytes: each(agent.InUse, before[1].InUse),
		hubLive: each(hub.Live, before[0].Live), agentLive: each(agent.Live, before[1].Live),
		hubGoroutines:   each(int64(hub.Goroutines), int64(before[0].Goroutines)),
		agentGoroutines: each(int64(agent.Goroutines), int64(before[1].Goroutines)),
	}, nil
}
