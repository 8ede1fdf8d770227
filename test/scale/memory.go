// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
)

// The targets of memory, in KB of 1,000 bytes, and of the curves.
const (
	mostPerSession = 60.0
	mostPerStream  = 6.0
	mostBend       = 1.25 // what the last ones cost, of what all cost on average
)

// point is one step of a curve.
type point struct {
	n    int
	look look
}

// curve is how memory grows from nothing.
type curve struct {
	zero   look
	points []point
}

// each is RSS as it stands for each of n, all told.
func (c curve) each() float64 {
	last := c.points[len(c.points)-1]
	return float64(last.look.Resident-c.zero.Resident) / float64(last.n)
}

// bend compares what each of the last step cost with what each costs on the
// average; 1 is a straight line. It looks at memory that was settled, because
// what waits for the collector comes in steps.
func (c curve) bend() float64 {
	if len(c.points) < 2 {
		return math.NaN()
	}
	last, before := c.points[len(c.points)-1], c.points[len(c.points)-2]
	all := float64(last.look.Settled-c.zero.Settled) / float64(last.n)
	return float64(last.look.Settled-before.look.Settled) / float64(last.n-before.n) / all
}

func (r *runner) point(measurement string, zero, l look, n int) error {
	each := func(now, then int64) float64 { return float64(now-then) / float64(n) }
	r.say("%-10s %6d: %.1f KB each, %.1f KB when settled, %.1f KB of it live and %.1f KB stacks, %.2f goroutines each, %d descriptors", measurement, n,
		each(l.Resident, zero.Resident)/1000, each(l.Settled, zero.Settled)/1000, each(l.Live, zero.Live)/1000, each(l.Stacks, zero.Stacks)/1000,
		each(int64(l.Goroutines), int64(zero.Goroutines)), l.Descriptors)
	return r.results.Add(record{Measurement: measurement, At: n, Values: map[string]float64{
		"rss": float64(l.Resident), "rssSettled": float64(l.Settled), "live": float64(l.Live),
		"rssEach": each(l.Resident, zero.Resident), "rssSettledEach": each(l.Settled, zero.Settled), "liveEach": each(l.Live, zero.Live), "stacksEach": each(l.Stacks, zero.Stacks),
		"goroutinesEach": each(int64(l.Goroutines), int64(zero.Goroutines)), "descriptors": float64(l.Descriptors),
	}})
}

// takeSessions grows idle sessions, each of a cluster of its own that the hub
// learns of on the way.
func takeSessions(ctx context.Context, r *runner) error {
	s, err := r.newSite(ctx, 1, 2)
	if err != nil {
		return err
	}
	defer s.stop()
	var c curve
	if c.zero, err = s.look(ctx); err != nil {
		return err
	}
	have := 0
	for _, n := range r.sessions {
		if err := s.hub.Call(ctx, opClusters, 0, n, nil); err != nil {
			return err
		}
		if err := s.connect(ctx, have, n-have); err != nil {
			return err
		}
		have = n
		l, err := s.look(ctx)
		if err != nil {
			return err
		}
		if err := r.point("sessions", c.zero, l, n); err != nil {
			return err
		}
		if l.Sessions != n {
			r.say("%-10s %6d: the hub has %d sessions", "sessions", n, l.Sessions)
			return r.line(line{name: "RSS of an idle session", value: math.NaN(), target: mostPerSession, unit: " KB", note: "sessions were lost"})
		}
		c.points = append(c.points, point{n, l})
	}
	if err := s.profile(ctx, "sessions", r.settle); err != nil {
		return err
	}
	if err := r.line(line{name: "RSS of an idle session, " + grouped(have), value: c.each() / 1000, target: mostPerSession, unit: " KB"}); err != nil {
		return err
	}
	return r.line(line{name: "its curve, the last step of the average", value: c.bend(), target: mostBend})
}

// takeStreams grows idle streams over a few sessions.
func takeStreams(ctx context.Context, r *runner) error {
	s, err := r.newSite(ctx, r.carriers, 2)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.connect(ctx, 0, r.carriers); err != nil {
		return err
	}
	var c curve
	if c.zero, err = s.look(ctx); err != nil {
		return err
	}
	have := 0
	for _, n := range r.streams {
		if _, err := s.begin(ctx, loadArgs{Kind: loadHold, Clusters: r.carriers, Streams: n - have}); err != nil {
			return err
		}
		have = n
		l, err := s.look(ctx)
		if err != nil {
			return err
		}
		if err := r.point("streams", c.zero, l, n); err != nil {
			return err
		}
		c.points = append(c.points, point{n, l})
	}
	if err := s.profile(ctx, "streams", r.settle); err != nil {
		return err
	}
	if err := r.line(line{name: "RSS of an idle stream, " + grouped(have), value: c.each() / 1000, target: mostPerStream, unit: " KB"}); err != nil {
		return err
	}
	return r.line(line{name: "its curve, the last step of the average", value: c.bend(), target: mostBend})
}
