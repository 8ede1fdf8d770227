// SPDX-License-Identifier: Apache-2.0

package telemetry

// Ration decides which reports to write in an interval, of events that many parties can
// cause as often as they like. No party can use up the share of another: each one has a
// bound, each group of them (a cluster) has one, and beyond the bound of all each group
// still has its share.
//
//	one of a group reported `Each` times, or its group `Group` times ──► no
//	all together less than `All`, or its group less than `Share` ──────► yes
type Ration struct {
	// Each bounds one of a group, Group a group, All the groups together. Share is
	// what a group has even if the others have used up All.
	Each, Group, All, Share int
	// Groups bounds the groups that are counted separately; further ones share a group.
	Groups int

	told   int
	groups map[string]*rationed
}

type rationed struct {
	told int
	ones map[string]int
}

// Take reports whether to write an event caused by one of a group. For an empty one only
// the bounds of its group apply. It also returns the group in which the event was counted:
// "" for a group beyond Groups.
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

// Turn starts a new interval.
func (r *Ration) Turn() {
	r.told, r.groups = 0, nil
}
