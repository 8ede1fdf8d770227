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
	// Rest is how long a gateway that lost its role for that is the last choice.
	Rest = 30 * time.Minute

	mostDoubled = 6 // so that the longest patience is 21 minutes
)

// Doubt is what is remembered of a node that was a gateway and cut off from all other clusters.
type Doubt struct {
	Cut time.Time // since when it is; zero: it is not, or no gateway any more, which nobody can tell it of
	At  time.Time // since when it is in doubt, or has no role for that; zero: it is not in doubt
}

// doubt remembers of candidates which are cut off, and says of one of them more that it is in doubt, if that is due.
func (out *Shared) doubt(f Facts, all []candidate) {
	out.Doubts = map[string]Doubt{}
	var cut []*candidate // which are not in doubt yet
	latest, doubtful := time.Time{}, 0
	for i := range all {
		c := &all[i]
		d, known := f.Doubts[c.Name]
		switch {
		case c.gateway && (!c.Cut || !c.Ready): // it has proven a path, or goes for another reason
			continue
		case c.gateway:
			if d.Cut.IsZero() {
				d.Cut = f.Now
			}
		case !known || d.At.IsZero() || !f.Now.Before(d.At.Add(Rest)):
			continue
		default:
			d.Cut = time.Time{}
			out.sooner(d.At.Add(Rest))
		}
		out.Doubts[c.Name] = d
		if c.doubtful = !d.At.IsZero(); !c.doubtful {
			cut = append(cut, c)
			continue
		}
		if doubtful++; d.At.After(latest) {
			latest = d.At
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

// sooner has it decided once more at a time, if that is not due before.
func (out *Shared) sooner(end time.Time) {
	if out.Again.IsZero() || end.Before(out.Again) {
		out.Again = end
	}
}
