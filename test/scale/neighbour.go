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

// The bounds of the cluster that floods: none but the machine, those that nobody has
// set, and what a platform team may give a cluster of a shared hub.
const (
	unbounded = "{dialsPerSecond: none}"
	byDefault = ""
	bounded   = "{dialsPerSecond: 100, dialBurst: 100, bytesInPerSecond: 10MiB, bytesOutPerSecond: 10MiB}"
)

// takeNeighbour lets one cluster dial and bring bytes as fast as it can, or as its
// bounds let it, while another one pings, and then brings bytes, too. What two
// clusters do in one hub is compared in each round with what they do apart, and
// with two hubs on this machine, which share nothing but its processors.
func takeNeighbour(ctx context.Context, r *runner) error {
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
	var n neighbour
	for round := range r.noisyRounds {
		if err := n.round(ctx, s, apart, round); err != nil {
			return err
		}
	}
	if err := r.line(line{name: "p99 of pings beside a flood with bounds (100 dials, 10 MiB a second), of that alone", value: median(n.bounded), target: mostBeside,
		// By default dials have a bound and bytes have none.
		note: fmt.Sprintf("with the default bounds %.3g, without %.3g; through another hub, with which it shares the processors alone, %.3g, and without bounds %.3g",
			median(n.byDefault), median(n.unbounded), median(n.apartBounded), median(n.apart))}); err != nil {
		return err
	}
	if err := r.line(line{name: "throughput beside it, with the default bounds, of the fair share", value: median(n.sharedByDefault), target: leastShare, atLeast: true}); err != nil {
		return err
	}
	return r.line(line{name: "throughput beside it, without bounds, of the fair share", value: median(n.shared), target: leastShare, atLeast: true})
}

// neighbour is what the rounds gave: p99 of pings in that of pings alone, and a
// share of the bytes.
type neighbour struct{ bounded, byDefault, unbounded, apart, apartBounded, shared, sharedByDefault []float64 }

func (n *neighbour) round(ctx context.Context, s, apart *site, round int) error {
	const quiet, noisy = 0, 1
	r := s.r
	pings := loadArgs{Kind: loadPing, First: quiet, Clusters: 1, Streams: 1}
	bytes := loadArgs{Kind: loadBulk, First: quiet, Clusters: 1, Streams: 8}
	alone, err := s.under(ctx, r.noisyFor, pings)
	if err != nil {
		return err
	}
	base := float64(alone.Latency.P99)
	if err := r.latency("neighbour", "alone", round, alone); err != nil {
		return err
	}
	failed := alone.Failures
	for _, c := range []struct {
		name, bounds string
		profile      string
		where        *site
		out          *[]float64
	}{
		{"beside a flood with bounds", bounded, "bounded", s, &n.bounded},
		{"beside a flood with the default bounds", byDefault, "default", s, &n.byDefault},
		{"beside a flood", unbounded, "unbounded", s, &n.unbounded},
		{"beside a flood through another hub", unbounded, "apart", apart, &n.apart},
		{"beside a flood with bounds through another hub", bounded, "apart-bounded", apart, &n.apartBounded},
	} {
		if err := c.where.hub.Call(ctx, opLimits, 0, limitsArgs{noisy, c.bounds}, nil); err != nil {
			return err
		}
		with, flood, err := s.flooded(ctx, c.where, noisy, pings, c.profile)
		if err != nil {
			return err
		}
		if err := r.latency("neighbour", c.name, round, with); err != nil {
			return err
		}
		r.say("%-10s round %d: that flood brings %.0f MB/s", "neighbour", round+1, flood.rate()/1e6)
		*c.out = append(*c.out, float64(with.Latency.P99)/base)
		failed += with.Failures
	}
	for _, c := range []struct {
		name, bounds string
		out          *[]float64
	}{
		{"bytes", unbounded, &n.shared},
		{"bytes, with the default bounds", byDefault, &n.sharedByDefault},
	} {
		if err := s.hub.Call(ctx, opLimits, 0, limitsArgs{noisy, c.bounds}, nil); err != nil {
			return err
		}
		share, both, err := s.flooded(ctx, s, noisy, bytes, "bytes")
		if err != nil {
			return err
		}
		if failed += share.Failures; failed > 0 {
			return fmt.Errorf("%d streams failed: %s%s", failed, alone.First, share.First)
		}
		*c.out = append(*c.out, share.rate()/((share.rate()+both.rate())/2))
		r.say("%-10s round %d: %s shared %.0f and %.0f MB/s", "neighbour", round+1, c.name, share.rate()/1e6, both.rate()/1e6)
		if err := r.results.Add(record{Measurement: "neighbour", At: round, Case: c.name, Values: map[string]float64{
			"quietMBs": share.rate() / 1e6, "noisyMBs": both.rate() / 1e6}}); err != nil {
			return err
		}
	}
	return nil
}

// flooded puts a load on the hub while a cluster of a hub floods, with streams
// and with bytes; the second result is what its bytes came to.
func (s *site) flooded(ctx context.Context, where *site, noisy int, args loadArgs, profile string) (out, flood loadResult, err error) {
	bytes, err := where.begin(ctx, loadArgs{Kind: loadBulk, First: noisy, Clusters: 1, Streams: 16})
	if err != nil {
		return out, flood, err
	}
	dials, err := where.begin(ctx, loadArgs{Kind: loadFlood, First: noisy, Clusters: 1, Streams: 16})
	if err != nil {
		return out, flood, err
	}
	n, err := s.begin(ctx, args)
	if err != nil {
		return out, flood, err
	}
	if err := s.profile(ctx, "neighbour-"+profile, s.r.noisyFor/2); err != nil {
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
