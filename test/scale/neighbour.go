// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// The targets of a cluster beside one that floods.
const (
	mostBeside = 1.5 // p99 of its pings, of that alone
	leastShare = 0.9 // of half of what both clusters bring
)

// takeNeighbour lets one cluster dial and bring bytes as fast as it can, while
// another one pings, and then brings bytes, too. What two clusters do in one hub
// is compared in each round with what they do apart, and with two hubs on this
// machine, which share nothing but its processors.
func takeNeighbour(ctx context.Context, r *runner) error {
	const quiet, noisy = 0, 1
	s, err := r.newSite(ctx, 2, 2) // each cluster has a process of its own
	if err != nil {
		return err
	}
	defer s.stop()
	apart, err := r.newSite(ctx, 2, 2)
	if err != nil {
		return err
	}
	defer apart.stop()
	for _, x := range []*site{s, apart} {
		if err := x.connect(ctx, 0, 2); err != nil {
			return err
		}
	}
	pings := loadArgs{Kind: loadPing, First: quiet, Clusters: 1, Streams: 1}
	bytes := loadArgs{Kind: loadBulk, First: quiet, Clusters: 1, Streams: 8}
	var beside, shared, machine []float64
	for round := range r.noisyRounds {
		alone, err := s.under(ctx, r.noisyFor, pings)
		if err != nil {
			return err
		}
		with, flooded, err := s.flooded(ctx, s, noisy, pings)
		if err != nil {
			return err
		}
		foreign, _, err := s.flooded(ctx, apart, noisy, pings)
		if err != nil {
			return err
		}
		share, both, err := s.flooded(ctx, s, noisy, bytes)
		if err != nil {
			return err
		}
		for name, l := range map[string]loadResult{"alone": alone, "beside a flood": with, "beside a flood through another hub": foreign} {
			if err := r.latency("neighbour", name, round, l); err != nil {
				return err
			}
		}
		if n := alone.Failures + with.Failures + share.Failures; n > 0 {
			return fmt.Errorf("%d streams failed: %s%s%s", n, alone.First, with.First, share.First)
		}
		beside = append(beside, float64(with.Latency.P99)/float64(alone.Latency.P99))
		machine = append(machine, float64(foreign.Latency.P99)/float64(alone.Latency.P99))
		shared = append(shared, share.rate()/((share.rate()+both.rate())/2))
		r.say("%-10s round %d: flood of %.0f MB/s; shared %.0f and %.0f MB/s", "neighbour", round+1, flooded.rate()/1e6, share.rate()/1e6, both.rate()/1e6)
		if err := r.results.add(record{Measurement: "neighbour", At: round, Case: "bytes", Values: map[string]float64{
			"quietMBs": share.rate() / 1e6, "noisyMBs": both.rate() / 1e6, "floodMBs": flooded.rate() / 1e6}}); err != nil {
			return err
		}
	}
	if err := r.line(line{name: "p99 of pings beside a flooding cluster, of that alone", value: median(beside), target: mostBeside,
		note: fmt.Sprintf("beside a flood through another hub: %.3g", median(machine))}); err != nil {
		return err
	}
	return r.line(line{name: "throughput beside it, of the fair share", value: median(shared), target: leastShare, atLeast: true})
}

// flooded puts a load on the hub while a cluster of a hub floods, with streams
// and with bytes; the second result is what its bytes came to.
func (s *site) flooded(ctx context.Context, where *site, noisy int, args loadArgs) (out, flood loadResult, err error) {
	dials, err := where.begin(ctx, loadArgs{Kind: loadFlood, First: noisy, Clusters: 1, Streams: 16})
	if err != nil {
		return out, flood, err
	}
	bytes, err := where.begin(ctx, loadArgs{Kind: loadBulk, First: noisy, Clusters: 1, Streams: 16})
	if err != nil {
		return out, flood, err
	}
	n, err := s.begin(ctx, args)
	if err != nil {
		return out, flood, err
	}
	if err := s.profile(ctx, "neighbour-"+args.Kind, s.r.noisyFor/2); err != nil {
		return out, flood, err
	}
	if err := pause(ctx, s.r.noisyFor); err != nil {
		return out, flood, err
	}
	if out, err = s.end(ctx, n); err != nil {
		return out, flood, err
	}
	if flood, err = where.end(ctx, bytes); err != nil {
		return out, flood, err
	}
	_, err = where.end(ctx, dials)
	return out, flood, err
}

// median of what was measured; NaN of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	if mid := len(sorted) / 2; len(sorted)%2 == 1 {
		return sorted[mid]
	} else {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
}
