// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// latency sums up the round trips of pings.
type latency struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

func newLatency(took []time.Duration) latency {
	if len(took) == 0 {
		return latency{}
	}
	slices.Sort(took)
	return latency{Count: len(took), P50: rank(took, 0.5), P99: rank(took, 0.99), Max: took[len(took)-1]}
}

// rank is the smallest value that is not exceeded by that part of the sorted values.
func rank[T any](sorted []T, part float64) T {
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// spreadOf is the median of values, and the least and the most of them.
type spreadOf struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`

	low, high float64 // the true median is between them with 95 %; Median itself if the values are too few to say
}

// summarize ignores what is no number: a ratio to a round that failed.
func summarize(values []float64) spreadOf {
	var sorted []float64
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sorted = append(sorted, v)
		}
	}
	if len(sorted) == 0 {
		return spreadOf{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	slices.Sort(sorted)
	mid := len(sorted) / 2
	median := sorted[mid]
	if len(sorted)%2 == 0 {
		median = (sorted[mid-1] + sorted[mid]) / 2
	}
	out := spreadOf{
		Median: median, Min: sorted[0], Max: sorted[len(sorted)-1], N: len(sorted), low: median, high: median,
	}
	if cut := outside(len(sorted)); cut > 0 {
		out.low, out.high = sorted[cut-1], sorted[len(sorted)-cut]
	}
	return out
}

// outside is the place, from either end of n sorted values, between which the median of what they were drawn from is
// with at least 95 %: each value is below it with 1/2, whatever the distribution. 0: n is too small.
func outside(n int) (place int) {
	below, p := 0.0, math.Pow(0.5, float64(n)) // P(fewer than place values are below the median), P(just place)
	for {
		if below += p; 2*below > 0.05 {
			return place
		}
		p *= float64(n-place) / float64(place+1)
		place++
	}
}

// ratios divides what was measured in the same round.
func ratios(of, to map[int]float64) []float64 {
	var out []float64
	for _, round := range sortedKeys(of) {
		if base, ok := to[round]; ok && base != 0 {
			out = append(out, of[round]/base)
		}
	}
	return out
}

func sortedKeys[V any](m map[int]V) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
