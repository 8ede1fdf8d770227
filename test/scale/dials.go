// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"strconv"
)

// mostDial is p99 of a dial at the rate, in times of p50 of a hub without load.
const mostDial = 3.0

// takeDials dials through many clusters: one after the other, at a rate spread
// evenly, and at the same rate with most dials in few clusters.
func takeDials(ctx context.Context, r *runner) error {
	s, err := r.newSite(ctx, r.dialled, 2)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.connect(ctx, 0, r.dialled); err != nil {
		return err
	}
	if err := pause(ctx, r.settle); err != nil {
		return err
	}
	quiet, err := s.under(ctx, r.dialFor, loadArgs{Kind: loadQuiet, Clusters: r.dialled})
	if err != nil {
		return err
	}
	if err := r.latency("dials", "quiet", 0, quiet); err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		skewed bool
	}{{"evenly", false}, {"80 % to 1 %", true}} {
		var last loadResult
		for _, rate := range []int{r.rate / 5, r.rate / 2, r.rate} {
			n, err := s.begin(ctx, loadArgs{Kind: loadDials, Clusters: r.dialled, Rate: rate, Skewed: c.skewed})
			if err != nil {
				return err
			}
			if err := pause(ctx, r.dialFor/2); err != nil {
				return err
			}
			if err := s.profile(ctx, "dials-"+strconv.Itoa(rate)+map[bool]string{true: "-skewed"}[c.skewed], r.dialFor/2); err != nil {
				return err
			}
			if err := pause(ctx, r.dialFor/2); err != nil {
				return err
			}
			if last, err = s.end(ctx, n); err != nil {
				return err
			}
			if err := r.latency("dials", c.name, rate, last); err != nil {
				return err
			}
		}
		l := line{name: "p99 of a dial, " + grouped(r.rate) + " a second, " + c.name + ", of the p50 of a quiet hub",
			value: float64(last.Latency.P99) / float64(quiet.Latency.P50), target: mostDial}
		if last.Failures > 0 || quiet.Latency.Count == 0 {
			l.value, l.note = math.NaN(), strconv.FormatInt(last.Failures, 10)+" failed: "+last.First
		}
		if err := r.line(l); err != nil {
			return err
		}
	}
	return nil
}

// latency records what dials or pings took.
func (r *runner) latency(measurement, name string, at int, l loadResult) error {
	us := func(ns int64) float64 { return float64(ns) / 1000 }
	r.say("%-10s %s %d: p50 %v, p99 %v, most %v of %d, %d failed %s", measurement, name, at, l.Latency.P50.Round(1000),
		l.Latency.P99.Round(1000), l.Latency.Max.Round(1000), l.Latency.Count, l.Failures, l.First)
	return r.results.Add(record{Measurement: measurement, At: at, Case: name, Values: map[string]float64{
		"p50us": us(int64(l.Latency.P50)), "p99us": us(int64(l.Latency.P99)), "maxus": us(int64(l.Latency.Max)),
		"count": float64(l.Latency.Count), "failures": float64(l.Failures),
	}})
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
