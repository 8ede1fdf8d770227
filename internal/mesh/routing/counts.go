// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// tally adds up what lines have dropped, which begin at 0 whenever their chain is written.
type tally struct {
	last  map[string]uint64 // by chain and line
	total map[string]uint64 // by reason
}

// begin takes what was dropped before for nothing of this process's.
func (t *tally) begin(k Kernel) {
	t.total = map[string]uint64{}
	if counts, err := k.Counts(); err == nil {
		t.last = sums(counts)
	}
}

func (t *tally) add(counts []kernel.Count) {
	now := sums(counts)
	done := map[string]bool{}
	for _, c := range counts {
		key := keyOf(c)
		reason := topology.Reason(c.Chain, c.Line)
		if reason == "" || done[key] {
			continue
		}
		done[key] = true
		n := now[key]
		if n >= t.last[key] {
			n -= t.last[key]
		}
		t.total[reason] += n
	}
	t.last = now
}

func sums(counts []kernel.Count) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for _, c := range counts {
		out[keyOf(c)] += c.Packets
	}
	return out
}

func keyOf(c kernel.Count) string { return c.Chain + " " + c.Line.String() }

// count reads the counters. One that cannot be read now is read later.
func (o *owner) count() {
	counts, err := o.kernel.Counts()
	if err != nil {
		return
	}
	o.tally.add(counts)
	o.r.write(func(s *Status) {
		for reason, n := range o.tally.total {
			s.Dropped[reason] = n
		}
	})
}
