// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// mishap is something that goes wrong with a fleet.
type mishap struct {
	name     string
	sessions int // of each agent: 1 is what exists, 2 is what is planned
	lost     func(hub, hubs int) bool
	silent   bool          // the machines are gone: nobody says so
	back     time.Duration // when the hubs are back; 0: never
	rolling  time.Duration // one hub after another, this far apart
	within   time.Duration // 99 % are to be back; 0: it is not judged
	never    bool          // no cluster may be without a session
}

func mishaps() []mishap {
	first := func(h, _ int) bool { return h == 0 }
	zone := func(h, _ int) bool { return h%zones == 0 }
	all := func(int, int) bool { return true }
	return []mishap{
		{name: "a hub is killed, one session", sessions: 1, lost: first, within: 10 * time.Second},
		{name: "a hub is killed, two sessions", sessions: 2, lost: first, never: true},
		{name: "a zone is cut off, one session", sessions: 1, lost: zone, silent: true, within: time.Minute},
		{name: "a zone is cut off, two sessions", sessions: 2, lost: zone, silent: true, never: true},
		{name: "hubs restart in turn, one session", sessions: 1, lost: all, back: 10 * time.Second, rolling: time.Minute, within: 10 * time.Second},
		{name: "all hubs restart at once, one session", sessions: 1, lost: all, back: 10 * time.Second, within: time.Minute},
	}
}

// recovery is what a mishap comes to. Times run from the loss of the session.
type recovery struct {
	lost    int // sessions
	without int // clusters that had none, at the worst moment
	tries   int
	shed    int // handshakes that lost their place to newer ones

	half, most, all time.Duration // until 50 %, 99 % and 100 % were back
	then            float64       // max/mean of sessions afterwards
}

// estate is a simulation in steps of a millisecond.
//
// What is simulated of the product: the agent's waits between tries, the walk
// through its list of hubs, when it notices a silent loss, how long it waits for a
// hub that does not answer; of the hub the number of handshakes that it does at a
// time, where one more costs the oldest its place, and how many it does a second.
type estate struct {
	prefer   [][listed]int16
	sessions int // of a cluster
	perTick  float64
	rng      *rand.Rand

	now     int // ms
	hub     []station
	at      []int16 // of each session: its hub, -1 while it has none
	seat    []uint8 // of each session: where in its list it is
	try     []uint8
	lostAt  []int32
	next    []int32 // of each session: the one after it in its moment
	moments []int32 // the ring of what is due: the first session of each ms, -1 for none
	due     int     // sessions that wait for a moment
	waiting int     // sessions whose handshake is under way
	none    int     // clusters without a session
	took    []int32
	out     recovery
}

// station is a hub.
type station struct {
	down, silent bool
	credit       float64
	sessions     int
	queue        []int32 // handshakes under way, the oldest first
}

// ring is longer than any wait: a dial that is not answered, and the longest backoff.
const ring = 1 << 15

func newEstate(clusters, hubs, sessions int, handshakes float64) *estate {
	n := clusters * sessions
	f := &estate{
		prefer: preferences(clusters, hubs), sessions: sessions, perTick: handshakes / 1000, rng: rand.New(rand.NewPCG(seed, uint64(hubs))),
		hub: make([]station, hubs), at: make([]int16, n), seat: make([]uint8, n), try: make([]uint8, n),
		lostAt: make([]int32, n), next: make([]int32, n), moments: make([]int32, ring),
	}
	for i := range f.moments {
		f.moments[i] = -1
	}
	for s := range f.at {
		f.seat[s] = uint8(s % sessions)
		f.at[s] = f.prefer[s/sessions][f.seat[s]]
		f.hub[f.at[s]].sessions++
	}
	return f
}

// later puts a session into a moment.
func (f *estate) later(s int32, wait time.Duration) {
	m := (f.now + max(1, min(int(wait.Milliseconds()), ring-1))) % ring
	f.next[s], f.moments[m] = f.moments[m], s
	f.due++
}

// lose takes hubs away at one moment.
func (f *estate) lose(lost func(hub int) bool, silent bool) {
	for h := range f.hub {
		if lost(h) {
			f.hub[h].down, f.hub[h].silent = true, silent
		}
	}
	for s := range f.at {
		h := f.at[s]
		if h < 0 || !lost(int(h)) {
			continue
		}
		f.hub[h].sessions--
		f.at[s], f.try[s], f.lostAt[s] = -1, 0, int32(f.now)
		f.out.lost++
		if f.without(s / f.sessions) {
			f.none++
		}
		notice := time.Duration(0)
		if silent { // the last byte came within the last ping interval
			notice = limit.DeadIdle - time.Duration(f.rng.Float64()*float64(limit.PingIdle))
		}
		f.pause(int32(s), notice)
	}
	f.out.without = max(f.out.without, f.none)
	for h := range f.hub { // what was under way there has failed, too
		if lost(h) {
			for _, s := range f.hub[h].queue {
				f.waiting--
				f.pause(s, 0)
			}
			f.hub[h].queue = nil
		}
	}
}

func (f *estate) restore(lost func(hub int) bool) {
	for h := range f.hub {
		if lost(h) {
			f.hub[h].down, f.hub[h].silent = false, false
		}
	}
}

func (f *estate) without(cluster int) bool {
	for j := range f.sessions {
		if f.at[cluster*f.sessions+j] >= 0 {
			return false
		}
	}
	return true
}

// pause is what an agent does before its next try, which goes to the next of its list.
func (f *estate) pause(s int32, notice time.Duration) {
	f.later(s, notice+run.Backoff(int(f.try[s]), limit.BackoffMost, f.rng.Float64()))
	f.try[s] = min(f.try[s]+1, 100)
	f.seat[s] = (f.seat[s] + 1) % listed
}

// come is a try.
func (f *estate) come(s int32) {
	f.out.tries++
	cluster := int(s) / f.sessions
	h := f.prefer[cluster][f.seat[s]]
	for j := range f.sessions { // not where another session of it is
		if other := cluster*f.sessions + j; other != int(s) && f.at[other] == h {
			f.seat[s] = (f.seat[s] + 1) % listed
			h = f.prefer[cluster][f.seat[s]]
		}
	}
	hub := &f.hub[h]
	switch {
	case hub.silent:
		f.pause(s, limit.Handshake)
	case hub.down:
		f.pause(s, 0)
	default:
		hub.queue = append(hub.queue, s)
		f.waiting++
		if len(hub.queue) > limit.Strangers {
			oldest := hub.queue[0]
			hub.queue = hub.queue[1:]
			f.waiting--
			f.out.shed++
			f.pause(oldest, 0)
		}
	}
}

// tick is a millisecond.
func (f *estate) tick() {
	f.now++
	m := f.now % ring
	first := f.moments[m]
	f.moments[m] = -1
	for first >= 0 {
		s := first
		first = f.next[s] // before it is put elsewhere
		f.due--
		f.come(s)
	}
	for h := range f.hub {
		hub := &f.hub[h]
		if len(hub.queue) == 0 {
			hub.credit = 0
			continue
		}
		hub.credit += f.perTick
		for hub.credit >= 1 && len(hub.queue) > 0 {
			hub.credit--
			s := hub.queue[0]
			hub.queue = hub.queue[1:]
			f.waiting--
			f.done(s, int16(h))
		}
	}
}

func (f *estate) done(s int32, h int16) {
	if f.without(int(s) / f.sessions) {
		f.none--
	}
	f.at[s] = h
	f.hub[h].sessions++
	f.took = append(f.took, int32(f.now)-f.lostAt[s])
}

// horizon ends a simulation in which not all come back.
const horizon = 10 * time.Minute

// calm runs until nobody is on the way, or until a moment has come.
func (f *estate) calm(until int) {
	for f.now < until && f.due+f.waiting > 0 {
		f.tick()
	}
	f.now = max(f.now, until) // nothing is left to happen until then
}

// still runs on until nobody is on the way.
func (f *estate) still() {
	for end := f.now + int(horizon.Milliseconds()); f.now < end && f.due+f.waiting > 0; {
		f.tick()
	}
}

// play lets a mishap happen to a fleet.
func (m mishap) play(clusters, hubs int, handshakes float64) recovery {
	f := newEstate(clusters, hubs, m.sessions, handshakes)
	step := func(lost func(int) bool) {
		f.lose(lost, m.silent)
		if m.back > 0 {
			f.calm(f.now + int(m.back.Milliseconds()))
			f.restore(lost)
		}
	}
	if m.rolling > 0 {
		for h := range hubs {
			begin := f.now
			step(func(i int) bool { return i == h })
			f.calm(begin + int(m.rolling.Milliseconds()))
		}
	} else {
		step(func(i int) bool { return m.lost(i, hubs) })
	}
	f.still()
	return f.end()
}

func (f *estate) end() recovery {
	slices.Sort(f.took)
	at := func(share float64) time.Duration {
		i := int(math.Ceil(share*float64(f.out.lost))) - 1
		switch {
		case f.out.lost == 0:
			return 0
		case i >= len(f.took):
			return horizon // they are not back
		}
		return time.Duration(f.took[max(i, 0)]) * time.Millisecond
	}
	f.out.half, f.out.most, f.out.all = at(0.5), at(0.99), at(1)
	up, sum, most := 0, 0, 0
	for _, h := range f.hub {
		if !h.down {
			up++
			sum += h.sessions
			most = max(most, h.sessions)
		}
	}
	f.out.then = float64(most) * float64(up) / float64(sum)
	return f.out
}
