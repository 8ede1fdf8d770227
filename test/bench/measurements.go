// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// measurements is all that there is, in the order of a run.
func measurements() []measurement {
	all := []measurement{
		bulk("bulk1", "one stream", 1),
		bulk("bulk16", "16 streams", 16),
		idlePing(),
		pingBeside(),
		opens(),
		memStreams(), memSessions(),
		stalls(),
		longPath(),
		narrowPath("narrow", "a queue for each connection", true),
		narrowPath("narrowfifo", "one queue for all connections", false),
		lossy(),
	}
	return append(slices.Concat(all, endToEnd(), atTheEdge(), throughKonnectivity()), routed())
}

// family is a kind of what is compared.
type family string

const (
	familyTransports family = ""
	familyChains     family = "chains"
	familyDoors      family = "doors"
	familyWays       family = "ways"
	familyEgress     family = "egress"
)

func familyOf(name string) family {
	switch {
	case slices.Contains(chains(), name):
		return familyChains
	case slices.Contains(doors(), name):
		return familyDoors
	case slices.Contains(ways(), name):
		return familyWays
	case slices.Contains(egresses(), name):
		return familyEgress
	}
	return familyTransports
}

// everywhere is the transports of a full run.
func everywhere() []string {
	return []string{"tcp", "tls", "mux1", "mux2", "mux4", "yamux1", "yamux2", "yamux4"}
}

func names() (out []string) {
	for _, m := range measurements() {
		out = append(out, m.name)
	}
	return out
}

func find(name string) (measurement, bool) {
	all := measurements()
	i := slices.IndexFunc(all, func(m measurement) bool { return m.name == name })
	if i < 0 {
		return measurement{}, false
	}
	return all[i], true
}

func checkTransport(name string) error {
	if familyOf(name) != familyTransports {
		return nil
	}
	_, err := parseTransport(name)
	return err
}

// errNothing says that a window was too short, or that a transport is stuck.
var errNothing = errors.New("nothing moved")

// settle is how long streams run before they are measured.
func (b *bench) settle() time.Duration { return min(b.window/2, 500*time.Millisecond) }

// The directions of bulk streams.
const (
	down = "down" // towards the load, as a download
	up   = "up"   // towards the far end
)

func streams(direction string, n int) bulkArgs {
	if direction == down {
		return bulkArgs{Down: n}
	}
	return bulkArgs{Up: n}
}

func bulk(name, about string, n int) measurement {
	return measurement{
		name: name, about: about + ", 32 KiB copies", transports: everywhere(), variants: []string{down, up},
		main: rate, against: kindTLS, crew: pair,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			r, err := b.flow(ctx, c, streams(s.variant, n), s.profile, func() error { return pause(ctx, b.window) })
			if err != nil {
				return nil, err
			}
			v := values{rate: r.rate(), cost: r.cost()}
			return v, c.countConnections(ctx, v)
		},
	}
}

// flow measures body while endless streams run.
func (b *bench) flow(ctx context.Context, c *crew, args bulkArgs, profile string, body func() error) (reading, error) {
	return b.flowAfter(ctx, c, args, profile, after{b.settle(), body})
}

// after is what is measured, and how long streams run before.
type after struct {
	wait time.Duration
	body func() error
}

func (b *bench) flowAfter(ctx context.Context, c *crew, args bulkArgs, profile string, m after) (reading, error) {
	if err := c.load.Call(ctx, opBulk, 0, args, nil); err != nil {
		return reading{}, err
	}
	if err := pause(ctx, m.wait); err != nil {
		return reading{}, err
	}
	r, err := c.measure(ctx, profile, m.body)
	if err != nil {
		return r, err
	}
	if r.load.Received+r.far.Received == 0 {
		return r, fmt.Errorf("%w in %v", errNothing, r.load.Wall)
	}
	return r, c.halt(ctx)
}

// countConnections notes how many connections a tunnel has.
func (c *crew) countConnections(ctx context.Context, v values) error {
	if c.counts == nil {
		return nil
	}
	var n int
	if err := c.counts.Call(ctx, opConnections, 0, nil, &n); err != nil {
		return err
	}
	if n > 0 {
		v[connections] = float64(n)
	}
	return nil
}

func idlePing() measurement {
	return measurement{
		name: "ping", about: "128 B there and back on an idle transport", transports: everywhere(), variants: []string{"idle"},
		main: p50, against: kindTLS, crew: pair,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			l, _, err := b.ping(ctx, c, s.profile)
			return l.values(), err
		},
	}
}

// ping measures pings for a window.
func (b *bench) ping(ctx context.Context, c *crew, profile string) (latency, reading, error) {
	var l latency
	r, err := c.measure(ctx, profile, func() error { return c.load.Call(ctx, opPing, b.window, b.window, &l) })
	return l, r, err
}

func (l latency) values() values {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return values{p50: us(l.P50), p99: us(l.P99), pings: float64(l.Count)}
}

func pingBeside() measurement {
	return measurement{
		name: "pingbulk", about: "128 B there and back beside 4 bulk streams", transports: everywhere(), variants: []string{down, up},
		main: p50, against: kindTLS, crew: pair, sample: samplePingBeside,
	}
}

func samplePingBeside(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
	var l latency
	window := max(b.window, 500*time.Millisecond) // a p99 wants pings
	r, err := b.flow(ctx, c, streams(s.variant, 4), s.profile, func() error {
		return c.load.Call(ctx, opPing, window, window, &l)
	})
	if err != nil {
		return nil, err
	}
	v := l.values()
	v[rate], v[cost] = r.rate(), r.cost()
	return v, c.countConnections(ctx, v)
}

func opens() measurement {
	return measurement{
		name: "opens", about: "open, one byte there, one back, close; 32 at once", transports: everywhere(), variants: []string{"32"},
		main: perSecond, against: kindTCP, crew: pair, sample: sampleOpens,
	}
}

func sampleOpens(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
	var o opened
	r, err := c.measure(ctx, s.profile, func() error {
		return c.load.Call(ctx, opOpens, b.window, opensArgs{For: b.window, Parallel: 32}, &o)
	})
	if err != nil {
		return nil, err
	}
	if o.Streams == 0 {
		return nil, fmt.Errorf("%w in %v", errNothing, b.window)
	}
	v := values{perSecond: float64(o.Streams) / o.Wall.Seconds(), cpuPerOpen: float64(r.cpu.Microseconds()) / float64(o.Streams)}
	if r.door > 0 {
		v[doorPerOpen] = float64(r.door.Microseconds()) / float64(o.Streams)
	}
	return v, nil
}
