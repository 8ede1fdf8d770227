// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLatencyCountsRanks(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Microsecond) // unsorted
	}
	got := newLatency(took)
	want := latency{Count: 200, P50: 100 * time.Microsecond, P99: 198 * time.Microsecond, Max: 200 * time.Microsecond}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := newLatency(nil); got != (latency{}) {
		t.Errorf("no pings give %+v", got)
	}
	if got := newLatency([]time.Duration{7}); got.P50 != 7 || got.P99 != 7 || got.Max != 7 {
		t.Errorf("one ping gives %+v", got)
	}
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want spreadOf
	}{
		{[]float64{3}, spreadOf{3, 3, 3, 1, 3, 3}},
		{[]float64{3, 1, 2}, spreadOf{2, 1, 3, 3, 2, 2}},
		{[]float64{4, 1, 2, 3}, spreadOf{2.5, 1, 4, 4, 2.5, 2.5}},
		{[]float64{9, 1, 8, 2, 7, 3, 6, 4, 5}, spreadOf{5, 1, 9, 9, 2, 8}},
		{[]float64{math.NaN(), 5, math.Inf(1)}, spreadOf{5, 5, 5, 1, 5, 5}},
	} {
		if got := summarize(c.in); got != c.want {
			t.Errorf("summarize(%v) = %+v, want %+v", c.in, got, c.want)
		}
	}
	if got := summarize(nil); got.N != 0 || !math.IsNaN(got.Median) {
		t.Errorf("nothing sums up to %+v", got)
	}
}

// TestSummaryIsOfTheValues: least, median and most lie in order whatever comes,
// and the values are left as they were.
func TestSummaryIsOfTheValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 20).Draw(t, "values")
		before := slices.Clone(in)
		s := summarize(in)
		if !slices.Equal(in, before) {
			t.Fatal("the values were changed")
		}
		if s.Min != slices.Min(in) || s.Max != slices.Max(in) || s.Median < s.Min || s.Median > s.Max || s.N != len(in) {
			t.Fatalf("%v sums up to %+v", in, s)
		}
		below := 0
		for _, v := range in {
			if v <= s.Median {
				below++
			}
		}
		if 2*below < len(in) {
			t.Fatalf("%d of %v are at most the median %v", below, in, s.Median)
		}
	})
}

// TestRatiosAreWithinARound: a round that lacks one side, or divides by nothing,
// has no ratio.
func TestRatiosAreWithinARound(t *testing.T) {
	got := ratios(map[int]float64{0: 10, 1: 30, 2: 5, 4: 8}, map[int]float64{0: 5, 1: 10, 3: 1, 4: 0})
	if want := []float64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 3: "3", 1234.5: "1234", 99.95: "100.0", 12.34: "12.3", 1.234: "1.23", 0.01234: "0.0123", 0.00001234: "0.0000",
		0.5: "0.500", math.NaN(): "-", -2.5: "-2.50",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	for s, want := range map[spreadOf]string{
		{}:                                   "-",
		{Median: 2, Min: 2, Max: 2, N: 3}:    "2",
		{Median: 2, Min: 1, Max: 3, N: 3}:    "2 (1..3)",
		{Median: 0.5, Min: 0, Max: 1, N: 1}:  "0.500",
		{Median: 10, Min: 9, Max: 1e6, N: 2}: "10 (9..1000000)",
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v is written %q, want %q", s, got, want)
		}
	}
}
