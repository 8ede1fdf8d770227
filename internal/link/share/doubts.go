// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"slices"
	"time"
)

const (
	// Patience is how long a gateway is cut off until it is in doubt, while no other node is. Each one that is doubles it:
	// the more of them, the less it is the gateways.
	Patience = 20 * time.Second
	// Rest is how long a gateway that lost its role for that is the last choice. Each time it is twice as long, while no
	// gateway reaches another cluster: then it is those that are away, and to try one node after another helps rarely. It
	// may be the way, though: the role may have come to a node that never reached anything.
	Rest = 30 * time.Minute
	// MostRest bounds it.
	MostRest = 24 * time.Hour

	mostDoubled = 6 // so that the longest patience is 21 minutes
)

// Doubt is what is remembered of a node that was a gateway and cut off from all other clusters.
type Doubt struct {
	Cut time.Time // since when it is; zero: it is not, or no gateway any more, which nobody can tell it of
	At  time.Time // since when it is in doubt, or has no role for that; zero: it is not in doubt
	// Rest is how long it rests, or did the last time; zero: it did not since packets passed through a gateway.
	Rest time.Duration
}

// doubt remembers of candidates which are cut off, and says of one of them more that it is in doubt, if that is due.
func (out *Shared) doubt(f Facts, all []candidate) {
	out.Doubts = map[string]Doubt{}
	var cut []*candidate // which are not in doubt yet
	latest, doubtful := time.Time{}, 0
	reached := slices.ContainsFunc(all, func(c candidate) bool { return c.gateway && c.Ready && c.Passes })
	for i := range all {
		c := &all[i]
		d := f.Doubts[c.Name].next(c, reached, f.Now)
		if d == (Doubt{}) {
			continue
		}
		out.Doubts[c.Name] = d
		switch c.doubtful = !d.At.IsZero(); {
		case c.doubtful:
			if doubtful++; d.At.After(latest) {
				latest = d.At
			}
			if !c.gateway {
				out.sooner(d.At.Add(d.Rest))
			}
		case !d.Cut.IsZero():
			cut = append(cut, c)
		}
	}
	if len(cut) == 0 {
		return
	}
	c := slices.MinFunc(cut, func(a, b *candidate) int {
		return cmp.Or(out.Doubts[a.Name].Cut.Compare(out.Doubts[b.Name].Cut), cmp.Compare(a.Name, b.Name))
	})
	d := out.Doubts[c.Name]
	due := d.Cut
	if latest.After(due) { // one at a time: the one that came for the last one has to show what it can
		due = latest
	}
	if due = due.Add(Patience << min(doubtful, mostDoubled)); f.Now.Before(due) {
		out.sooner(due)
		return
	}
	c.doubtful, d.At = true, f.Now
	out.Doubts[c.Name] = d
	if len(cut) > 1 {
		out.sooner(f.Now.Add(Patience << min(doubtful+1, mostDoubled)))
	}
}

// next is what is remembered of a candidate now.
//
//	reached: packets pass through a gateway
func (d Doubt) next(c *candidate, reached bool, now time.Time) Doubt {
	if reached {
		d.Rest = min(d.Rest, Rest)
	}
	switch {
	case c.gateway && c.Ready && c.Cut:
		if d.Cut.IsZero() {
			d.Cut = now
		}
		return d
	case !c.gateway && !d.At.IsZero() && now.Before(d.At.Add(d.Rest)):
		return Doubt{At: d.At, Rest: d.Rest}
	case reached:
		return Doubt{}
	}
	return Doubt{Rest: d.Rest} // it has rested, has not shown what it can, or goes for another reason
}

// rest is what is remembered of one whose role another one gets.
func (d Doubt) rest(now time.Time) Doubt {
	return Doubt{At: now, Rest: min(max(Rest, 2*d.Rest), MostRest)}
}

// sooner has it decided once more at a time, if that is not due before.
func (out *Shared) sooner(end time.Time) {
	if out.Again.IsZero() || end.Before(out.Again) {
		out.Again = end
	}
}
