// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// many are two nodes that reach each other by one address more than n at either end; each
// has been seen to answer, and packets flow.
func many(t *testing.T, n int) (w *world, one, two *node) {
	t.Helper()
	w = newWorld(t)
	public := natures()[0]
	one, two = w.site("one", public, 1), w.site("two", public, 2)
	meet(one, two)
	more := func(x *node, net byte) path.Facts {
		f := x.other.facts(x)
		for i := range n {
			at := netip.AddrFrom4([4]byte{198, 51, net, byte(10 + i)})
			w.at[at] = x
			f.Candidates = append(f.Candidates, path.Candidate{Addr: netip.AddrPortFrom(at, 51820), Kind: path.Own})
		}
		return f
	}
	ofTwo, ofOne := more(two, 2), more(one, 1)
	one.peer.Learn(w.now, ofTwo)
	two.peer.Learn(w.now, ofOne)
	for _, x := range []*node{one, two} {
		x.run()
		x.talk(100*time.Millisecond, 5*time.Minute)
	}
	w.pass(80 * time.Second)
	for _, x := range []*node{one, two} {
		answers := 0
		for _, c := range x.peer.Report(w.now).Candidates {
			if c.Path.Direct() && !c.Answered.IsZero() {
				answers++
			}
		}
		if !x.direct() || answers < n+1 {
			t.Fatalf("%s goes by %v, and %d paths answer", x.name, x.peer.Path(), answers)
		}
	}
	return w, one, two
}

// TestWaysThatDieTogether: however many paths die at one moment, what is left takes over as soon
// as after one alone, and none of the dead is taken in between.
func TestWaysThatDieTogether(t *testing.T) {
	for _, n := range []int{1, 4, 8} {
		for _, spared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d others, one of them lives: %v", n, spared), func(t *testing.T) {
				w, one, two := many(t, n)
				alive := netip.AddrPort{}
				if spared { // the last one that would be tried, were it one after the other
					w.pass(time.Second)
					alive = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 2, byte(10 + n - 1)}), 51820)
					if one.peer.Path().Addr == alive {
						t.Fatal("it is in use")
					}
				}
				w.cut = func(from, to netip.AddrPort) bool { return from != alive && to != alive }
				one.paths, two.paths = nil, nil
				want := path.Path{Relay: "hub"}
				if spared {
					want = path.Path{Addr: alive}
				}
				took := w.until(10*time.Second, "another path takes over", func() bool { return one.peer.Path() == want })
				if took > 5*time.Second {
					t.Errorf("%v took over after %v, want 5 s at most", want, took)
				}
				one.run()
				if len(one.paths) > 2 { // the dead one, and the one that lives
					t.Errorf("the paths were %v", one.paths)
				}
			})
		}
	}
}

// TestAWayThatMissesOnePing: a packet that is lost moves nothing, whatever else answers.
func TestAWayThatMissesOnePing(t *testing.T) {
	w, one, _ := many(t, 3)
	before := one.peer.Path()
	one.paths = nil
	end := w.now.Add(1500 * time.Millisecond)
	w.cut = func(netip.AddrPort, netip.AddrPort) bool { return w.now.Before(end) }
	w.pass(20 * time.Second)
	if one.peer.Path() != before || len(one.paths) != 1 {
		t.Errorf("after 1.5 s without packets the paths were %v, before %v", one.paths, before)
	}
}

// TestADeadPathIsKnownSooner: with a peer of which it has to be known soon a dead path with traffic is known a second
// earlier than with others, at whichever moment between two pings it dies.
func TestADeadPathIsKnownSooner(t *testing.T) {
	longest := map[bool]time.Duration{}
	for _, soon := range []bool{false, true} {
		for phase := range 20 {
			w := newWorld(t)
			one, two := w.site("one", natures()[0], 1), w.site("two", natures()[0], 2)
			meet(one, two)
			f := two.facts(one)
			f.Soon = soon
			one.peer.Learn(w.now, f)
			one.run()
			two.run()
			one.talk(100*time.Millisecond, 5*time.Minute)
			w.pass(time.Minute + time.Duration(phase)*100*time.Millisecond)
			w.cut = func(netip.AddrPort, netip.AddrPort) bool { return true }
			took := w.until(10*time.Second, "the path is known to be dead", func() bool { return !one.direct() })
			longest[soon] = max(longest[soon], took)
		}
	}
	if longest[true] > 3600*time.Millisecond || longest[false] <= 3600*time.Millisecond {
		t.Errorf("it takes %v, and %v where it has to be known soon", longest[false], longest[true])
	}
}

// TestAHubThatVanishes: packets of a relayed peer go by another hub, 5 s after the one in use has
// fallen silent.
func TestAHubThatVanishes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id := uint64(0)
	p := path.New(func() uint64 { id++; return id })
	p.Learn(now, path.Facts{Probes: true, Relays: []string{"a", "b"}})
	silent := ""
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(10 * time.Millisecond) {
			p.Traffic(now)
			sends, _ := p.Next(now)
			for _, s := range sends {
				if !s.Call() && s.To.Relay != silent {
					p.Pong(now, s.To, s.Ping)
				}
			}
		}
	}
	pass(5 * time.Minute)
	for _, hubs := range [][2]string{{"a", "b"}, {"b", "a"}} {
		if p.Path().Relay != hubs[0] {
			t.Fatalf("the path is %v, want %s", p.Path(), hubs[0])
		}
		silent = hubs[0]
		pass(5 * time.Second)
		if p.Path().Relay != hubs[1] {
			t.Errorf("5 s after %s has fallen silent the path is %v", hubs[0], p.Path())
		}
		pass(time.Minute)
		if s := p.Report(now).State; s != path.Relayed || p.Path().Relay != hubs[1] {
			t.Errorf("a minute later it is %v by %v", s, p.Path())
		}
	}
}

// TestADeadPathThatWasIdle: what died while no packet went is found out as soon as packets go, whenever in the interval
// of its pings they begin.
func TestADeadPathThatWasIdle(t *testing.T) {
	for _, idle := range []time.Duration{0, 3 * time.Second, 10 * time.Second, 17 * time.Second} {
		t.Run(idle.String(), func(t *testing.T) {
			w := newWorld(t)
			one, two := w.site("one", natures()[0], 1), w.site("two", natures()[0], 2)
			meet(one, two)
			one.run()
			two.run()
			w.until(10*time.Second, "a direct path", func() bool { return one.direct() })
			w.pass(3*time.Minute + idle)
			w.cut = func(netip.AddrPort, netip.AddrPort) bool { return true }
			one.talk(time.Second, time.Minute)
			took := w.until(10*time.Second, "the path is known to be dead", func() bool { return !one.direct() })
			if took > 5*time.Second {
				t.Errorf("it took %v, want 5 s at most", took)
			}
		})
	}
}
