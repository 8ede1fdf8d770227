// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// crew is the processes of one transport. All but the paths count.
type crew struct {
	name    string
	all     []*roles.Process // in the order of their start
	counted []*roles.Process
	load    *roles.Process // opens streams and drives what is measured
	serve   *roles.Process // the far end of the streams
	counts  *roles.Process // knows how many connections a tunnel has; nil: there is none
	door    *roles.Process // the edge, or its tables; nil: there is none
	outside []*lab.Process // front doors, or other programs, that are no roles of ours
	doors   []func() int   // the processes of either
	seen    []outsider     // the ports of those outside that have some
	foreign float64        // cores that others kept busy in the last window
}

func (c *crew) stop() {
	for _, p := range c.all {
		p.End()
	}
	for _, p := range c.all {
		p.Wait()
	}
	for _, p := range c.outside { // last: the load would complain
		p.Kill()
		<-p.Done()
	}
}

// each asks all counted processes for the same at once.
func (c *crew) each(ctx context.Context, op string, args func(*roles.Process) any, results []usage) error {
	errs := make([]error, len(c.counted))
	var wg sync.WaitGroup
	for i, p := range c.counted {
		wg.Go(func() {
			var result any
			if results != nil {
				result = &results[i]
			}
			errs[i] = p.Call(ctx, op, 0, args(p), result)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reading is what all counted processes of a crew did in one window.
type reading struct {
	wall time.Duration // of the load's process
	cpu  time.Duration // of all
	door time.Duration // of the front door, or of server and agent, alone
	load usage
	far  usage
}

// rate is MB/s of the payload that arrived at the load and at the far end.
func (r reading) rate() float64 {
	return float64(r.load.Received)/1e6/r.load.Wall.Seconds() + float64(r.far.Received)/1e6/r.far.Wall.Seconds()
}

// cost is CPU seconds of all processes per GB that arrived.
func (r reading) cost() float64 {
	gb := float64(r.load.Received+r.far.Received) / 1e9
	if gb == 0 {
		return 0
	}
	return r.cpu.Seconds() / gb
}

// measure runs body within a measured window of all counted processes.
func (c *crew) measure(ctx context.Context, profile string, body func() error) (reading, error) {
	begin := func(p *roles.Process) any {
		if profile == "" {
			return windowArgs{}
		}
		return windowArgs{Profile: profile + "-" + p.Name}
	}
	began, busy := time.Now(), roles.BusyTime()
	if err := c.each(ctx, opBegin, begin, nil); err != nil {
		return reading{}, err
	}
	profiled := c.profileOutside(ctx, profile)
	doorBegan, doorErr := c.doorTime()
	bodyErr := errors.Join(body(), profiled())
	doorEnded, err := c.doorTime()
	bodyErr = errors.Join(bodyErr, doorErr, err)
	results := make([]usage, len(c.counted))
	if err := errors.Join(bodyErr, c.each(ctx, opEnd, func(*roles.Process) any { return nil }, results)); err != nil {
		return reading{}, err
	}
	r := reading{door: doorEnded - doorBegan}
	if len(c.outside) > 0 {
		r.cpu = r.door
	}
	for i, p := range c.counted {
		r.cpu += results[i].CPU
		if p == c.load {
			r.wall, r.load = results[i].Wall, results[i]
		}
		if p == c.serve {
			r.far = results[i]
		}
	}
	c.foreign = max(0, (roles.BusyTime()-busy-r.cpu).Seconds()/time.Since(began).Seconds())
	return r, nil
}

// pause waits as a part of a measurement.
func pause(ctx context.Context, d time.Duration) error {
	if !run.Wait(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
