// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// consumer is a cluster with what it takes of the memory.
type consumer struct {
	cluster id.Cluster
	holds   int64 // what its sessions and streams take, with the bytes in them
	pressed bool  // it gets no more already
}

// action is what is to be done because memory is short.
type action struct {
	press []id.Cluster         // get no more
	cut   map[id.Cluster]int64 // give back so many bytes
	all   bool                 // nobody gets more
}

// decide says which clusters get no more and which give back when used of most is in use:
//
//	calm ──MemoryShort──► the largest get no more ──MemoryOver──► their streams are cut
//	  ▲                         │                                     │ to MemoryCut
//	  └───── MemoryCalm ◄───────┴─────────────────────────────────────┘
//
// What has to be given back is taken from the largest until it is no larger than the next
// one, then from both, and so on: a cluster below that level is not touched.
func decide(used, most int64, consumers []consumer) (r action) {
	over := used >= percent(most, limit.MemoryOver)
	short := over || used >= percent(most, limit.MemoryShort)
	if used <= percent(most, limit.MemoryCalm) {
		return r
	}
	sorted := slices.Clone(consumers)
	slices.SortFunc(sorted, func(a, b consumer) int {
		return cmp.Or(cmp.Compare(b.holds, a.holds), cmp.Compare(a.cluster.String(), b.cluster.String()))
	})
	need := used - percent(most, limit.MemoryCut)
	level := levelFor(sorted, need)
	for _, c := range sorted {
		if c.pressed || short && c.holds > level {
			r.press = append(r.press, c.cluster)
		}
	}
	if over {
		r.cut = map[id.Cluster]int64{}
		for _, c := range sorted {
			if c.holds > level {
				r.cut[c.cluster] = c.holds - level
			}
		}
	}
	r.all = used >= most
	return r
}

// levelFor is how much each may keep so that together they give back need bytes. Nobody is
// cut below memoryKept.
func levelFor(sorted []consumer, need int64) int64 {
	sum := int64(0) // of the first i+1
	for i, c := range sorted {
		sum += c.holds
		next := int64(0)
		if i+1 < len(sorted) {
			next = sorted[i+1].holds
		}
		// With all of the first i+1 at the height of the next, is that enough?
		if sum-int64(i+1)*next >= need {
			return max((sum-need)/int64(i+1), memoryKept)
		}
	}
	return memoryKept
}

// holding is what a live stream holds, and since when.
type holding struct {
	holds int64
	begun time.Time
}

// newestLargest chooses streams to cut so that need bytes are given back: the largest first,
// and the newest among those of about the same size, which is within a power of two. Each
// gives back what it holds and its cost. It returns their indices in that order.
func newestLargest(all []holding, need, cost int64) []int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := all[a], all[b]
		return cmp.Or(cmp.Compare(bits.Len64(uint64(y.holds)), bits.Len64(uint64(x.holds))), y.begun.Compare(x.begun),
			cmp.Compare(a, b))
	})
	for n, i := range order {
		gives := all[i].holds + cost
		if need <= 0 || gives <= 0 {
			return order[:n]
		}
		need -= gives
	}
	return order
}

func percent(of int64, n int64) int64 { return of / 100 * n }
