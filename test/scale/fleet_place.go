// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
)

// seed is all the chance that the simulation has.
const seed = 20260101

// mix is a hash of two numbers (the finaliser of splitmix64): good in every bit,
// and the same on every machine.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// way is one way to place clusters on hubs.
type way struct {
	name string
	// place gives the hub of each cluster: an index into hubs, which are names. had
	// is where the clusters were among the same names, -1 for nowhere; nil: all is new.
	place func(hubs []uint64, had []int32, clusters int) []int32
}

const wayRendezvous = "rendezvous hashing"

func ways() []way {
	return []way{
		{"in turns, by the join line (exists)", sticky(func(_ *rand.Rand, load []int, i int) int { return i % len(load) })},
		{"at random, by DNS (exists)", sticky(func(r *rand.Rand, load []int, _ int) int { return r.IntN(len(load)) })},
		{"the emptier of two at random", sticky(func(r *rand.Rand, load []int, _ int) int {
			a, b := r.IntN(len(load)), r.IntN(len(load))
			if load[b] < load[a] {
				return b
			}
			return a
		})},
		{wayRendezvous, func(hubs []uint64, _ []int32, clusters int) []int32 { return rendezvous(hubs, clusters, math.MaxInt) }},
		{"the same, at most 1.02 of the mean", func(hubs []uint64, _ []int32, clusters int) []int32 {
			return rendezvous(hubs, clusters, int(math.Ceil(1.02*float64(clusters)/float64(len(hubs)))))
		}},
	}
}

// sticky leaves clusters where they are, as agents that hold a session do, and
// picks for those that have no hub.
func sticky(pick func(r *rand.Rand, load []int, i int) int) func([]uint64, []int32, int) []int32 {
	return func(hubs []uint64, had []int32, clusters int) []int32 {
		r := rand.New(rand.NewPCG(seed, uint64(len(hubs))))
		out, load := make([]int32, clusters), make([]int, len(hubs))
		for i := range out {
			if out[i] = -1; had != nil {
				out[i] = had[i]
			}
			if out[i] >= 0 {
				load[out[i]]++
			}
		}
		for i := range out {
			if out[i] < 0 {
				out[i] = int32(pick(r, load, i))
				load[out[i]]++
			}
		}
		return out
	}
}

// rendezvous gives each cluster the hub that it likes best of those with room: the
// one with the highest hash of both, which does not depend on the other hubs.
func rendezvous(hubs []uint64, clusters, most int) []int32 {
	out, load := make([]int32, clusters), make([]int, len(hubs))
	salts := make([]uint64, len(hubs))
	for h, name := range hubs {
		salts[h] = mix(seed, name)
	}
	for i := range out {
		best, top := -1, uint64(0)
		for h, salt := range salts {
			if s := mix(salt, uint64(i)); load[h] < most && (best < 0 || s > top) {
				best, top = h, s
			}
		}
		out[i] = int32(best)
		load[best]++
	}
	return out
}

// weight of a cluster in dials: 80 % of them go to 1 % of the clusters.
func weight(cluster int) float64 {
	if mix(seed+1, uint64(cluster))%100 == 0 {
		return 80
	}
	return 20.0 / 99
}

// maxOfMean is the fullest hub of the mean.
func maxOfMean(at []int32, hubs int, weight func(int) float64) float64 {
	load, sum := make([]float64, hubs), 0.0
	for i, h := range at {
		w := weight(i)
		load[h] += w
		sum += w
	}
	most := 0.0
	for _, l := range load {
		most = max(most, l)
	}
	return most / sum * float64(hubs)
}

func alike(int) float64 { return 1 }

// placed is what a way to place comes to.
type placed struct {
	sessions, dials       float64 // max/mean
	joinMoved, leaveMoved float64 // shares of all clusters
	joinThen, leaveThen   float64 // max/mean of sessions afterwards
}

func comparePlacement(w way, clusters, n int) (p placed) {
	hubs := make([]uint64, n+1)
	for i := range hubs {
		hubs[i] = uint64(i + 1)
	}
	at := w.place(hubs[:n], nil, clusters)
	p.sessions, p.dials = maxOfMean(at, n, alike), maxOfMean(at, n, weight)
	joined := w.place(hubs, at, clusters)
	p.joinMoved, p.joinThen = moved(at, joined), maxOfMean(joined, n+1, alike)
	// The last hub leaves, so that the others keep their indices.
	orphans := make([]int32, clusters)
	for i, h := range at {
		if orphans[i] = h; int(h) == n-1 {
			orphans[i] = -1
		}
	}
	left := w.place(hubs[:n-1], orphans, clusters)
	p.leaveMoved, p.leaveThen = moved(at, left), maxOfMean(left, n-1, alike)
	return p
}

func moved(before, after []int32) float64 {
	n := 0
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return float64(n) / float64(len(before))
}

// listed is how many hubs an agent knows to try, one after another.
const listed = 4

// preferences gives each cluster its hubs in the order in which its agent tries
// them: by rendezvous, but the first of other zones before the second of one. Hub
// h stands in zone h%zones.
func preferences(clusters, hubs int) [][listed]int16 {
	out := make([][listed]int16, clusters)
	salts := make([]uint64, hubs)
	for h := range salts {
		salts[h] = mix(seed, uint64(h+1))
	}
	for i := range out {
		var best [zones]int16
		var top [zones]uint64
		second, secondTop := int16(-1), uint64(0)
		for z := range best {
			best[z] = -1
		}
		for h, salt := range salts {
			s, z, hub := mix(salt, uint64(i)), h%zones, int16(h)
			if best[z] < 0 || s > top[z] {
				s, top[z] = top[z], s
				hub, best[z] = best[z], hub
			}
			if hub >= 0 && (second < 0 || s > secondTop) {
				second, secondTop = hub, s
			}
		}
		n := 0
		for range zones {
			z := -1
			for c := range best {
				if best[c] >= 0 && (z < 0 || top[c] > top[z]) {
					z = c
				}
			}
			if z >= 0 {
				out[i][n], best[z] = best[z], -1
				n++
			}
		}
		for ; n < listed; n++ {
			out[i][n] = max(second, 0)
		}
	}
	return out
}
