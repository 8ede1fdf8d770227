// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// mostGrowth is how much a figure may have grown over the soak, in percent of
// its level, before a slope that is there for sure counts.
const mostGrowth = 0.5

// takeSoak puts a mixed load on a hub for long: streams that are held, pings,
// dials at a rate, and bursts of bytes and of streams that come and go. Slopes
// are looked for in what is left after a collection.
func takeSoak(ctx context.Context, r *runner) error {
	clusters := r.dialled
	s, err := r.newSite(ctx, clusters, 2)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.connect(ctx, 0, clusters); err != nil {
		return err
	}
	steady := []loadArgs{
		{Kind: loadHold, Clusters: clusters, Streams: 5 * clusters},
		{Kind: loadPing, Clusters: clusters, Streams: 10},
		{Kind: loadDials, Clusters: clusters, Rate: max(1, r.rate/5)},
	}
	var loads []int
	for _, args := range steady {
		n, err := s.begin(ctx, args)
		if err != nil {
			return err
		}
		loads = append(loads, n)
	}
	seen, err := s.watch(ctx, []loadArgs{
		{Kind: loadBulk, Clusters: clusters, Streams: 4},
		{Kind: loadVisit, Clusters: clusters, Streams: clusters},
		{Kind: loadFlood, Clusters: clusters, Streams: 4},
	})
	if err != nil {
		return err
	}
	for i, n := range loads {
		out, err := s.end(ctx, n)
		if err != nil {
			return err
		}
		if err := r.latency("soak", steady[i].Kind, 0, out); err != nil {
			return err
		}
		if out.Failures > 0 {
			if err := r.line(line{name: "soak: " + steady[i].Kind + " that failed", value: float64(out.Failures), target: 0, note: out.First}); err != nil {
				return err
			}
		}
	}
	return r.slopes(seen)
}

// moment is what the soak has seen at a time.
type moment struct {
	at   time.Duration
	look look
}

// watch takes samples until the soak is over and there are enough for a line. Between two there is a burst, in
// turns of each kind, and each sample waits until the burst is gone.
func (s *site) watch(ctx context.Context, bursts []loadArgs) (seen []moment, err error) {
	begin, told := time.Now(), time.Now()
	for i := 0; time.Since(begin) < s.r.soak || i < 2*blocks; i++ {
		if _, err := s.under(ctx, s.r.sample/2, bursts[i%len(bursts)]); err != nil {
			return nil, err
		}
		if err := pause(ctx, s.r.sample/2); err != nil {
			return nil, err
		}
		m := moment{at: time.Since(begin)}
		if err := s.hub.Call(ctx, opLook, 0, nil, &m.look); err != nil {
			return nil, err
		}
		seen = append(seen, m)
		if err := s.r.results.Add(record{Measurement: "soak", At: int(m.at.Milliseconds()), Values: map[string]float64{
			"rssSettled": float64(m.look.Settled), "live": float64(m.look.Live), "goroutines": float64(m.look.Goroutines),
			"descriptors": float64(m.look.Descriptors), "sessions": float64(m.look.Sessions),
		}}); err != nil {
			return nil, err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			s.r.say("%-10s %v of %v: RSS %.1f MB, live %.1f MB, %d goroutines, %d descriptors", "soak", m.at.Round(time.Second), s.r.soak,
				float64(m.look.Settled)/1e6, float64(m.look.Live)/1e6, m.look.Goroutines, m.look.Descriptors)
		}
	}
	return seen, nil
}

// slopes judges each figure. What grows at the begin is warming up: a fifth of
// the soak is left out.
func (r *runner) slopes(seen []moment) error {
	seen = seen[len(seen)/5:]
	for _, f := range []struct {
		name  string
		of    func(look) float64
		scale float64
		unit  string
	}{
		{"RSS", func(l look) float64 { return float64(l.Settled) }, 1e6, "MB"},
		{"live heap", func(l look) float64 { return float64(l.Live) }, 1e6, "MB"},
		{"goroutines", func(l look) float64 { return float64(l.Goroutines) }, 1, ""},
		{"descriptors", func(l look) float64 { return float64(l.Descriptors) }, 1, ""},
	} {
		var x, y []float64
		for _, m := range seen {
			x, y = append(x, m.at.Hours()), append(y, f.of(m.look)/f.scale)
		}
		s := regress(x, y)
		l := line{name: "soak of " + r.soak.String() + ": " + f.name + ", growth for sure", target: mostGrowth, unit: " %", value: math.NaN()}
		if s.level > 0 {
			l.value = max(0, s.slope-s.within) * (x[len(x)-1] - x[0]) / s.level * 100
		}
		l.note = fmt.Sprintf("slope %s ± %s %s an hour at %s", short3(s.slope), short3(s.within), f.unit, short3(s.level))
		if err := r.line(l); err != nil {
			return err
		}
	}
	return nil
}

func short3(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
