// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// The long path: what one window allows in its round trip.
const (
	longRTT    = 50 * time.Millisecond
	mostWindow = 16 << 20 // to which a stream's window grows (docs/reference/mux.md)
)

// windowRate is MB/s of a full window in each round trip of the long path.
func windowRate() float64 { return mostWindow / longRTT.Seconds() / 1e6 }

// rampUp is how long streams run on a path before they are measured: windows
// grow with the path, and what is asked for is the steady state.
func (b *bench) rampUp() time.Duration {
	if b.quick {
		return 2 * time.Second
	}
	return 4 * time.Second
}

// measured is the window on a path, where things are slower than on loopback.
func (b *bench) measured() time.Duration { return max(b.window, time.Second) }

// overPaths is the transports of a full run over paths, which take their time.
func overPaths() []string { return []string{"tls", "mux1", "mux2", "mux4", "yamux1", "yamux4"} }

func longPath() measurement {
	return measurement{
		name: "long", about: "a path with 50 ms round trip, steady state",
		transports: overPaths(), variants: []string{"1", "16"}, main: rate, against: kindTLS, rounds: 3, busy: true,
		crew: over(pathSpec{Delay: longRTT / 2}),
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			n := 1
			if s.variant == "16" {
				n = 16
			}
			r, err := b.steady(ctx, c, bulkArgs{Down: n}, s.profile, func() error { return pause(ctx, b.measured()) })
			if err != nil {
				return nil, err
			}
			v := values{rate: r.rate(), cost: r.cost(), windowShare: r.rate() / windowRate()}
			return v, c.countConnections(ctx, v)
		},
	}
}

// bottleneck is 40 MB/s with a round trip of 20 ms and a router's queue of 50 ms.
func bottleneck(fair bool) pathSpec {
	const bytesPerSecond = 40e6
	return pathSpec{Delay: 10 * time.Millisecond, Rate: bytesPerSecond, Queue: bytesPerSecond / 20, Fair: fair}
}

func narrowPath(name, about string, fair bool) measurement {
	return measurement{
		name: name, about: "128 B there and back beside 4 bulk streams, through 40 MB/s with 20 ms round trip and " + about,
		transports: overPaths(), variants: []string{down, up}, main: p50, against: kindTLS, rounds: 3, busy: true,
		crew: over(bottleneck(fair)),
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			var l latency
			r, err := b.steady(ctx, c, streams(s.variant, 4), s.profile, func() error {
				return c.load.Call(ctx, opPing, b.measured(), b.measured(), &l)
			})
			if err != nil {
				return nil, err
			}
			v := l.values()
			v[rate] = r.rate()
			return v, c.countConnections(ctx, v)
		},
	}
}

// over puts a path between the ends of a transport.
func over(spec pathSpec) func(context.Context, *bench, string) (*crew, error) {
	return func(ctx context.Context, b *bench, name string) (*crew, error) {
		t, err := parseTransport(name)
		if err != nil {
			return nil, err
		}
		at := b.loopback()
		at.path = &spec
		return b.pairAt(ctx, name, t, at)
	}
}

// steady is flow after a ramp-up.
func (b *bench) steady(ctx context.Context, c *crew, args bulkArgs, profile string, body func() error) (reading, error) {
	return b.flowAfter(ctx, c, args, profile, after{b.rampUp(), body})
}
