// SPDX-License-Identifier: Apache-2.0

package telemetry

// Ration decides what may still be told in an interval, of a thing that many can
// cause as often as they like. Nobody uses up what another needs: each one has a
// bound, each group of them (a cluster) has one, and beyond the bound of all each
// group still has its share.
//
//	one of a group told `Each` times, or its group `Group` times ──► no
//	all together less than `All`, or its group less than `Share` ──► yes
type Ration struct {
	// Each bounds one of a group, Group a group, All the groups together. Share is
	// what a group has even where the others have used up All.
	Each, Group, All, Share int
	// Groups bounds those that are told apart; any more are one group together.
	Groups int

	told   int
	groups map[string]*rationed
}

type rationed struct {
	told int
	ones map[string]int
}

// Take says whether to tell what one of a group has caused. An empty one is nobody
// in particular: only the bounds of its group hold. It also says which group it was
// counted in, which is "" for one group too many.
func (r *Ration) Take(group, one string) (tell bool, counted string) {
	g := r.groups[group]
	if g == nil && len(r.groups) >= r.Groups {
		group = ""
		g = r.groups[group]
	}
	if g == nil {
		g = &rationed{ones: map[string]int{}}
		if r.groups == nil {
			r.groups = map[string]*rationed{}
		}
		r.groups[group] = g
	}
	if g.told >= r.Group || one != "" && g.ones[one] >= r.Each || r.told >= r.All && g.told >= r.Share {
		return false, group
	}
	r.told++
	g.told++
	if one != "" {
		g.ones[one]++ // at most Group of them
	}
	return true, group
}

// Turn begins a new interval.
func (r *Ration) Turn() {
	r.told, r.groups = 0, nil
}
