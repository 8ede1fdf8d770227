// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"sync/atomic"
	"time"
)

// histogram counts durations in classes that are 1 % wide. It has the same size
// however many there are, so that a soak does not measure its own notes.
type histogram struct {
	counts [classes]atomic.Int64
	most   atomic.Int64
}

const (
	classes = 2000 // from a microsecond up to seven minutes
	width   = 1.01
)

func (h *histogram) add(d time.Duration) {
	us := max(1, float64(d)/float64(time.Microsecond))
	h.counts[min(classes-1, int(math.Log(us)/math.Log(width)))].Add(1)
	for {
		old := h.most.Load()
		if int64(d) <= old || h.most.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// latency sums up durations.
type latency struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

func (h *histogram) latency() latency {
	var l latency
	for i := range h.counts {
		l.Count += h.counts[i].Load()
	}
	l.P50, l.P99, l.Max = h.rank(0.5, l.Count), h.rank(0.99, l.Count), time.Duration(h.most.Load())
	return l
}

// rank is the upper end of the class in which that part of all is reached.
func (h *histogram) rank(part float64, of int64) time.Duration {
	want, sum := int64(math.Ceil(part*float64(of))), int64(0)
	for i := range h.counts {
		if sum += h.counts[i].Load(); sum >= want && sum > 0 {
			return time.Duration(math.Pow(width, float64(i+1)) * float64(time.Microsecond))
		}
	}
	return 0
}
