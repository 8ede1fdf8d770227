// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// opDescriptors asks an edge for the count of its open files.
const opDescriptors = "descriptors"

// The measurements of the edge.
func atTheEdge() []measurement {
	return []measurement{edgeBulk(), edgeOpens(), edgeShakes(), memTunnels(), edgePolicy(), edgeChange()}
}

// edgeBulk carries bytes through front doors. CPU is that of the door alone.
func edgeBulk() measurement {
	return measurement{
		name: "edgebulk", about: "8 streams through a front door that routes by server name", transports: doors(),
		family: familyDoors, variants: []string{down, up}, main: rate, against: doorHAProxy, unless: noDoors,
		crew: behindDoor(kindHello), sample: sampleDoorBulk(8),
	}
}

// sampleDoorBulk carries bytes in n streams, and tells the CPU of the door from that of all.
func sampleDoorBulk(n int) func(context.Context, *bench, *crew, sample) (values, error) {
	return func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
		r, err := b.flow(ctx, c, streams(s.variant, n), s.profile, func() error { return pause(ctx, b.window) })
		if err != nil {
			return nil, err
		}
		gb := float64(r.load.Received+r.far.Received) / 1e9
		return values{rate: r.rate(), cost: r.cost(), doorCost: r.door.Seconds() / gb}, nil
	}
}

// edgeOpens makes connections through front doors.
func edgeOpens() measurement {
	m := doorOpens("edgeopens", "connect, ClientHello, one byte back, close; 32 at once, through a front door", 32)
	m.main, m.crew = perSecond, behindDoor(kindHello)
	return m
}

// edgeShakes shakes hands with a TLS server behind front doors.
func edgeShakes() measurement {
	m := doorOpens("edgeshakes", "a whole TLS handshake through a front door, 4 at once", 4)
	m.main, m.crew = p99, behindDoor(kindTLS)
	return m
}

func doorOpens(name, about string, parallel int) measurement {
	return measurement{
		name: name, about: about, transports: doors(), family: familyDoors, variants: []string{fmt.Sprint(parallel)},
		against: doorHAProxy, unless: noDoors,
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			var o opened
			r, err := c.measure(ctx, s.profile, func() error {
				return c.load.Call(ctx, opOpens, b.window, opensArgs{For: b.window, Parallel: parallel}, &o)
			})
			if err != nil {
				return nil, err
			}
			if o.Streams == 0 {
				return nil, fmt.Errorf("%w in %v", errNothing, b.window)
			}
			v := o.Took.values()
			v[perSecond] = float64(o.Streams) / o.Wall.Seconds()
			v[doorPerOpen] = float64(r.door.Microseconds()) / float64(o.Streams)
			return v, nil
		},
	}
}

// memTunnels measures what idle tunnels hold in the edge's process, after bytes went both ways.
func memTunnels() measurement {
	const n = 5000
	return measurement{
		name: "memtunnels", about: "memory of Go and descriptors per idle tunnel of an edge, 5,000 of them",
		transports: []string{doorEdge}, family: familyDoors, variants: []string{fmt.Sprint(n)}, main: doorBytes,
		against: doorEdge, rounds: 3, fresh: true, crew: behindDoor(kindHello),
		sample: func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
			look := func() (m memory, files int, err error) {
				if err = pause(ctx, idleFor); err == nil {
					err = c.door.Call(ctx, opMemory, 0, nil, &m)
				}
				if err == nil {
					err = c.door.Call(ctx, opDescriptors, 0, nil, &files)
				}
				return m, files, err
			}
			before, files, err := look()
			if err != nil {
				return nil, err
			}
			if err := c.load.Call(ctx, opHold, 0, n, nil); err != nil {
				return nil, err
			}
			after, more, err := look()
			each := func(now, then int64) float64 { return float64(now-then) / n }
			return values{
				doorBytes: each(after.InUse, before.InUse), doorLive: each(after.Live, before.Live),
				doorStacks: each(after.Stacks, before.Stacks), doorFiles: each(int64(more), int64(files)),
				doorGoroutines: each(int64(after.Goroutines), int64(before.Goroutines)),
			}, err
		},
	}
}

// onTables completes a measurement of what an edge has in memory, in a process of its own. args are those of op, by
// variant.
func onTables(m measurement, op string, args map[string]any, take func(tableFigures) values) measurement {
	m.transports, m.family, m.against = []string{doorEdge}, familyDoors, doorEdge
	m.variants, m.rounds, m.fresh = slices.Sorted(maps.Keys(args)), 3, true
	m.crew = func(_ context.Context, b *bench, name string) (*crew, error) {
		c := &crew{name: name}
		var err error
		c.door, err = c.spawn(b.lab.Here(), roleTables, "tables")
		return c, err
	}
	m.sample = func(ctx context.Context, b *bench, c *crew, s sample) (values, error) {
		var f tableFigures
		err := c.door.Call(ctx, op, time.Minute, args[s.variant], &f)
		return take(f), err
	}
	return m
}

// edgePolicy decides by the policies of many clusters.
func edgePolicy() measurement {
	m := measurement{
		name: "edgepolicy", about: "decisions of one core by 1,000,000 entries of 100,000 clusters", main: decisions,
	}
	return onTables(m, opDecide, map[string]any{"1000000": decideArgs{Clusters: 100_000, Entries: 10}},
		func(f tableFigures) values { return values{decisions: f.PerSecond, entryBytes: f.Bytes} })
}

// edgeChange changes one tenant of many: its file is parsed and takes the place of what was there.
func edgeChange() measurement {
	m := measurement{name: "edgechange", about: "one tenant of so many is changed", main: changeTime}
	return onTables(m, opChange, map[string]any{"1000": 1000, "100000": 100_000},
		func(f tableFigures) values { return values{changeTime: 1e6 / f.PerSecond} })
}
