// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// someHubs draws names of hubs, each once.
func someHubs(t *rapid.T) []uint64 {
	return rapid.SliceOfNDistinct(rapid.Uint64(), 2, 12, rapid.ID[uint64]).Draw(t, "hubs")
}

// A hub that joins takes clusters and moves none between the others; one that
// leaves moves its own only. Which order the hubs are listed in does not matter.
func TestRendezvousMovesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hubs, clusters := someHubs(t), rapid.IntRange(0, 300).Draw(t, "clusters")
		all := rendezvous(hubs, clusters, math.MaxInt)
		last := len(hubs) - 1
		for i, h := range rendezvous(hubs[:last], clusters, math.MaxInt) {
			if all[i] != h && int(all[i]) != last {
				t.Fatalf("cluster %d is on hub %d, and on %d without hub %d", i, all[i], h, last)
			}
		}
		shuffled := rapid.Permutation(hubs).Draw(t, "order")
		for i, h := range rendezvous(shuffled, clusters, math.MaxInt) {
			if shuffled[h] != hubs[all[i]] {
				t.Fatalf("cluster %d is on %d or on %d, by the order of the list", i, shuffled[h], hubs[all[i]])
			}
		}
	})
}

// With a bound no hub has more, every cluster has a hub, and as long as the bound
// does not bind nothing is different.
func TestBoundedRendezvous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hubs, clusters := someHubs(t), rapid.IntRange(1, 300).Draw(t, "clusters")
		least := (clusters + len(hubs) - 1) / len(hubs)
		most := rapid.IntRange(least, clusters).Draw(t, "most")
		load := make([]int, len(hubs))
		for _, h := range rendezvous(hubs, clusters, most) {
			load[h]++
		}
		if slices.Max(load) > most {
			t.Fatalf("%v, at most %d", load, most)
		}
		if !slices.Equal(rendezvous(hubs, clusters, clusters), rendezvous(hubs, clusters, math.MaxInt)) {
			t.Fatal("a bound that does not bind moves clusters")
		}
	})
}

// Every way places every cluster, leaves those that have a hub unless it is
// rendezvous that says otherwise, and says the same each time.
func TestWaysPlaceAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hubs, clusters := someHubs(t), rapid.IntRange(1, 300).Draw(t, "clusters")
		for _, w := range ways() {
			at := w.place(hubs, nil, clusters)
			if len(at) != clusters || slices.Min(at) < 0 || int(slices.Max(at)) >= len(hubs) {
				t.Fatalf("%s: %v", w.name, at)
			}
			if again := w.place(hubs, at, clusters); !slices.Equal(again, at) {
				t.Fatalf("%s moves clusters for nothing", w.name)
			}
			if again := w.place(hubs, nil, clusters); !slices.Equal(again, at) {
				t.Fatalf("%s is another one each time", w.name)
			}
		}
	})
}

func TestPreferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hubs := zones * rapid.IntRange(2, 8).Draw(t, "hubs of a zone")
		names := make([]uint64, hubs)
		for h := range names {
			names[h] = uint64(h + 1)
		}
		best := rendezvous(names, 200, math.MaxInt)
		for i, p := range preferences(200, hubs) {
			if int32(p[0]) != best[i] {
				t.Fatalf("cluster %d prefers %d to %d", i, p[0], best[i])
			}
			if p[0]%zones == p[1]%zones || p[1]%zones == p[2]%zones || p[0]%zones == p[2]%zones {
				t.Fatalf("%v: two of the first three are in one zone", p)
			}
			if slices.Contains(p[:zones], p[zones]) {
				t.Fatalf("%v: a hub twice", p)
			}
		}
	})
}

// Whatever goes wrong, no session is lost for good, none is there twice, and two of
// one cluster are never on one hub.
func TestMishapsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom(mishaps()).Draw(t, "mishap")
		clusters, hubs := rapid.IntRange(1, 3000).Draw(t, "clusters"), zones*rapid.IntRange(2, 5).Draw(t, "hubs of a zone")
		rate := rapid.Float64Range(50, 5000).Draw(t, "handshakes")
		got := m.play(clusters, hubs, rate)
		if again := m.play(clusters, hubs, rate); !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v, and then %+v", got, again)
		}
		if got.tries < got.lost || got.half > got.most || got.most > got.all || got.all >= horizon || m.sessions == 2 && got.without > 0 {
			t.Fatalf("%+v", got)
		}
	})
	f := newEstate(1000, 6, 2, 1000)
	f.lose(func(h int) bool { return h == 2 }, false)
	f.still()
	held := make([]int, len(f.hub))
	for s, h := range f.at {
		if held[h]++; f.at[s^1] == h {
			t.Fatalf("both sessions of cluster %d are on hub %d", s/2, h)
		}
	}
	for h, hub := range f.hub {
		if held[h] != hub.sessions || hub.down && held[h] > 0 {
			t.Errorf("hub %d has %d sessions and counts %d", h, held[h], hub.sessions)
		}
	}
}

// Without a queue a session is back after its backoff and its handshake; who is cut
// off notices within the bounds of the heartbeat.
func TestTimesOfAMishap(t *testing.T) {
	killed := mishap{sessions: 1, lost: func(h, _ int) bool { return h == 0 }}.play(300, 6, 1e6)
	if most := limit.BackoffFirst/2 + limit.BackoffFirst + 5*time.Millisecond; killed.lost == 0 || killed.shed > 0 || killed.all > most || killed.tries != killed.lost {
		t.Errorf("%+v", killed)
	}
	cut := mishap{sessions: 1, lost: func(h, _ int) bool { return h == 0 }, silent: true}.play(300, 6, 1e6)
	if cut.half < limit.DeadIdle-limit.PingIdle || cut.all > limit.DeadIdle+limit.BackoffFirst*3/2+5*time.Millisecond {
		t.Errorf("%+v", cut)
	}
	// A hub that does ten a second needs a second for ten.
	slow := mishap{sessions: 1, lost: func(int, int) bool { return true }, back: 10 * time.Second}.play(120, 3, 1)
	if slow.all < 30*time.Second || slow.all >= horizon {
		t.Errorf("%+v", slow)
	}
}

func TestCosts(t *testing.T) {
	c := measured()
	if err := c.Set("session=30,memory=32"); err != nil || c.sessionKB != 30 || c.memoryGB != 32 || c.cores != measured().cores {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"", "session", "session=0", "session=-1", "session=x", "session=NaN", "session=Inf", "what=1"} {
		if err := new(costs).Set(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	double := measured()
	double.sessionKB, double.streamKB = 2*double.sessionKB, 2*double.streamKB
	if a, b := measured().capacity().memory, double.capacity().memory; math.Abs(a/b-2) > 1e-9 {
		t.Errorf("%v and %v", a, b)
	}
	if n := measured().capacity().hubs(1); n != zones {
		t.Errorf("%d hubs for one session", n)
	}
}
