// SPDX-License-Identifier: Apache-2.0

package path_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// TestEveryPairOfNATs: direct or relayed as theory says, by the relay at once,
// and the same without a relay but for the ones that then have nothing.
func TestEveryPairOfNATs(t *testing.T) {
	for _, a := range natures() {
		for _, b := range natures() {
			for _, relay := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, relay %v", a.name, b.name, relay), func(t *testing.T) {
					w := newWorld(t)
					one, two := w.site("one", a, 1), w.site("two", b, 2)
					one.hub, two.hub = relay, relay
					meet(one, two)
					if relay && one.peer.Path() != (path.Path{Relay: "hub"}) {
						t.Fatalf("the first packet goes by %v", one.peer.Path())
					}
					if reaches(a, b) {
						took := w.until(5*time.Second, "a direct path at both ends", func() bool { return one.direct() && two.direct() })
						if relay && took > 2*time.Second {
							t.Errorf("a direct path took %v although the relay passes calls", took)
						}
					}
					w.pass(10 * time.Minute)
					for _, n := range []*node{one, two} {
						r := n.peer.Report(w.now)
						want := path.Down
						switch {
						case reaches(a, b):
							want = path.Direct
						case relay:
							want = path.Relayed
						}
						if r.State != want {
							t.Errorf("%s is %s (%s), want %s: %+v", n.name, r.State, r.Why, want, r.Candidates)
						}
					}
				})
			}
		}
	}
}

// behind makes two nodes behind port restricted NATs, with a direct path.
func behind(t *testing.T) (w *world, one, two *node) {
	w = newWorld(t)
	restricted := natures()[3]
	one, two = w.site("one", restricted, 1), w.site("two", restricted, 2)
	meet(one, two)
	w.until(5*time.Second, "a direct path", func() bool { return one.direct() && two.direct() })
	return w, one, two
}

func TestADeadPathIsReplacedAndComesBack(t *testing.T) {
	w, one, two := behind(t)
	one.talk(100*time.Millisecond, 5*time.Minute)
	two.talk(100*time.Millisecond, 5*time.Minute)
	w.pass(20 * time.Second)
	w.cut = func(netip.AddrPort, netip.AddrPort) bool { return true }
	took := w.until(10*time.Second, "the relay takes over", func() bool { return !one.direct() && !two.direct() })
	if took < time.Second || took > 6*time.Second {
		t.Errorf("the relay took over after %v, want 1 to 6 s", took)
	}
	w.pass(40 * time.Second)
	w.cut = func(netip.AddrPort, netip.AddrPort) bool { return false }
	if took := w.until(10*time.Second, "a direct path again", func() bool { return one.direct() && two.direct() }); took > 6*time.Second {
		t.Errorf("the direct path is back after %v", took)
	}
}

// TestRelayedPeersSeekSeldom: two for whom no direct path comes about try it at each 25 s, and at
// the other one's call, and do not call each other awake. One that can be is found by that.
func TestRelayedPeersSeekSeldom(t *testing.T) {
	w, one, two := behind(t)
	w.cut = func(netip.AddrPort, netip.AddrPort) bool { return true }
	one.talk(time.Second, 2*time.Hour)
	w.pass(10 * time.Minute)
	sent := func(n *node) (all map[path.Path]int) {
		all = map[path.Path]int{}
		for _, c := range n.peer.Report(w.now).Candidates {
			if c.Path.Direct() {
				all[c.Path] = c.Sent
			}
		}
		return all
	}
	before := map[*node]map[path.Path]int{one: sent(one), two: sent(two)}
	w.pass(time.Hour)
	for n, was := range before {
		for via, all := range sent(n) {
			if pings := all - was[via]; pings < 3600/25-1 || pings > 2*3600/25+2 {
				t.Errorf("%s has pinged %v %d times in an hour, want one each 25 s, and one more for each call", n.name, via, pings)
			}
		}
		if len(was) == 0 {
			t.Errorf("%s has nothing to ping", n.name)
		}
	}
	w.cut = func(netip.AddrPort, netip.AddrPort) bool { return false }
	w.until(26*time.Second, "a direct path again", func() bool { return one.direct() && two.direct() })
}

// One direction is dead: neither may go on sending into it.
func TestAPathThatIsDeadOneWay(t *testing.T) {
	w, one, two := behind(t)
	one.talk(100*time.Millisecond, time.Minute)
	two.talk(100*time.Millisecond, time.Minute)
	w.pass(5 * time.Second)
	public := one.behind.public
	w.cut = func(from, _ netip.AddrPort) bool { return from.Addr() == public }
	w.until(6*time.Second, "the relay takes over at both ends", func() bool { return !one.direct() && !two.direct() })
}

func TestAQuietPathStaysOpen(t *testing.T) {
	w, one, two := behind(t)
	w.pass(time.Minute) // the size of packets is found meanwhile
	before, paths := w.sent, len(one.paths)
	w.pass(time.Hour)
	if !one.direct() || !two.direct() || len(one.paths) != paths {
		t.Fatalf("after an hour without traffic: %v, paths taken %v", one.peer.Path(), one.paths)
	}
	// A ping each way every 20 s, with answers; and now and then the size is tried.
	if perMinute := (w.sent - before) / 60; perMinute > 20 {
		t.Errorf("%d packets a minute keep a quiet path", perMinute)
	}
}

func TestALostMappingIsReplaced(t *testing.T) {
	w, one, two := behind(t)
	one.talk(time.Second, time.Minute)
	clear(one.behind.mapped)
	clear(one.behind.outside)
	w.until(10*time.Second, "a direct path by the new mapping", func() bool {
		return one.direct() && two.direct() && two.peer.Path().Addr.Port() == one.behind.port
	})
}

func TestABetterPathIsTakenOnceAndLate(t *testing.T) {
	w := newWorld(t)
	public := natures()[0]
	one, two := w.site("one", public, 1), w.site("two", public, 2)
	slow, fast := two.addr, netip.MustParseAddrPort("198.51.2.9:51820")
	w.at[fast.Addr()] = two
	w.delay = func(from, to netip.AddrPort) time.Duration {
		if from == fast || to == fast {
			return 5 * time.Millisecond
		}
		return 20 * time.Millisecond
	}
	meet(one, two)
	w.until(time.Second, "a path", one.direct)
	if got := one.peer.Path().Addr; got != slow {
		t.Fatalf("the path is %v, want %v", got, slow)
	}
	one.talk(100*time.Millisecond, 5*time.Minute)
	f := one.facts(two)
	f.Candidates = append(f.Candidates, path.Candidate{Addr: fast, Kind: path.Own})
	one.peer.Learn(w.now, f)
	one.run()
	// Both answer at the candidate's address: a packet to it comes from it in this world.
	took := w.until(time.Minute, "the better path", func() bool { return one.peer.Path().Addr == fast })
	if took < path.PathBetter {
		t.Errorf("it was taken after %v, before it was better for %v", took, path.PathBetter)
	}
	paths := len(one.paths)
	for range 200 { // both are much the same now, with jitter
		w.delay = func(netip.AddrPort, netip.AddrPort) time.Duration {
			return time.Duration(4_000+w.rand.IntN(2_000)) * time.Microsecond
		}
		w.pass(time.Second)
	}
	if len(one.paths) != paths {
		t.Errorf("paths that are much the same were changed: %v", one.paths[paths:])
	}
}

func TestNearWinsWhereTripsAreAlike(t *testing.T) {
	w := newWorld(t)
	public := natures()[0]
	one, two := w.site("one", public, 1), w.site("two", public, 2)
	lan := netip.MustParseAddrPort("192.168.7.2:51820")
	w.at[lan.Addr()] = two
	meet(one, two)
	w.until(time.Second, "a path", one.direct)
	f := one.facts(two)
	f.Candidates = append(f.Candidates, path.Candidate{Addr: lan, Kind: path.Own, Near: true})
	one.peer.Learn(w.now, f)
	one.run()
	w.until(2*time.Minute, "the near path", func() bool { return one.peer.Path().Addr == lan })
}

// Paths that are not in use are asked seldom while the one in use answers.
func TestSpareWaysAreAskedSeldom(t *testing.T) {
	w := newWorld(t)
	public := natures()[0]
	one, two := w.site("one", public, 1), w.site("two", public, 2)
	spare := netip.MustParseAddrPort("198.51.2.9:51820")
	w.at[spare.Addr()] = two
	meet(one, two)
	f := one.facts(two)
	f.Candidates = append(f.Candidates, path.Candidate{Addr: spare, Kind: path.Static})
	one.peer.Learn(w.now, f)
	one.run()
	one.talk(100*time.Millisecond, 2*time.Hour)
	w.until(5*time.Second, "a direct path", one.direct)
	w.pass(time.Minute)
	sent := func() (use, spares []int) {
		for _, c := range one.peer.Report(w.now).Candidates {
			switch {
			case c.Path == one.peer.Path():
				use = append(use, c.Sent)
			case c.Path.Direct() && c.Answers > 0:
				spares = append(spares, c.Sent)
			}
		}
		return use, spares
	}
	use, spares := sent()
	w.pass(time.Hour)
	useLater, sparesLater := sent()
	if len(use) != 1 || len(spares) == 0 || len(spares) != len(sparesLater) {
		t.Fatalf("in use %v, spare %v and %v", use, spares, sparesLater)
	}
	if n := useLater[0] - use[0]; n < 3600/2-10 || n > 3600/2+60 {
		t.Errorf("the path in use was pinged %d times in an hour, want one each 2 s", n)
	}
	for i := range spares {
		if n := sparesLater[i] - spares[i]; n < 3600/30-2 || n > 3600/30+2 {
			t.Errorf("a spare path was pinged %d times in an hour, want one each 30 s", n)
		}
	}
}

func TestTheSizeOfAPathIsFound(t *testing.T) {
	for largest, want := range map[int]int{0: 1500, 1500: 1500, 1492: 1492, 1400: 1380, 1280: 1280, 1200: 0} {
		t.Run(fmt.Sprint(largest), func(t *testing.T) {
			w := newWorld(t)
			w.largest = largest
			one, two := w.site("one", natures()[0], 1), w.site("two", natures()[3], 2)
			meet(one, two)
			one.talk(time.Second, 3*time.Minute)
			w.pass(2 * time.Minute)
			if got := one.peer.Report(w.now).Size; got != want {
				t.Errorf("packets of %d pass, want %d", got, want)
			}
			if !one.direct() {
				t.Errorf("large pings without an answer ended the path: %v", one.paths)
			}
			w.largest = 1300
			one.talk(time.Second, time.Hour)
			w.pass(12 * time.Minute)
			if got := one.peer.Report(w.now).Size; got != 1280 {
				t.Errorf("the path has become narrower: packets of %d pass, want 1280", got)
			}
		})
	}
}

// A process that stood still, and a machine that slept, have missed answers by themselves.
func TestAStandstillEndsNoPath(t *testing.T) {
	w, one, _ := behind(t)
	one.talk(100*time.Millisecond, 5*time.Minute)
	w.pass(5 * time.Second)
	paths := len(one.paths)
	one.asleep = true
	w.pass(4 * time.Second)
	one.asleep = false
	one.run()
	w.pass(10 * time.Second)
	if len(one.paths) != paths {
		t.Errorf("a standstill of 4 s changed the path: %v", one.paths[paths-1:])
	}
}

func TestAMachineThatMovedProvesItsPathsAnew(t *testing.T) {
	w, one, two := behind(t)
	one.talk(100*time.Millisecond, 5*time.Minute)
	two.talk(100*time.Millisecond, 5*time.Minute)
	w.pass(5 * time.Second)
	// Another network: another router, another address.
	other := w.router(natures()[3], "198.51.77.1")
	delete(one.behind.inside, one.addr)
	one.behind = other
	other.inside[one.addr] = one
	one.peer.Moved(w.now)
	one.run()
	took := w.until(10*time.Second, "a path from the new address", func() bool {
		return one.direct() && two.direct() && two.peer.Path().Addr.Addr() == other.public
	})
	if took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAHubWithoutThePeerIsPassedOver(t *testing.T) {
	p := path.New(func() uint64 { return 7 })
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p.Learn(now, path.Facts{Probes: true, Relays: []string{"a", "b"}})
	p.Next(now)
	p.Absent(now, "a")
	if p.Path().Relay != "b" {
		t.Fatalf("the path is %v", p.Path())
	}
	p.Absent(now, "b")
	if !p.Path().IsZero() {
		t.Fatalf("the path is %v, with nobody at any hub", p.Path())
	}
	if r := p.Report(now); r.State != path.Down {
		t.Errorf("the state is %v", r.State)
	}
	now = now.Add(path.PathAbsent)
	p.Next(now)
	if p.Path().Relay != "a" {
		t.Errorf("after %v the path is %v", path.PathAbsent, p.Path())
	}
}

func TestStrangeAnswersDoNothing(t *testing.T) {
	w := newWorld(t)
	one, two := w.site("one", natures()[0], 1), w.site("two", natures()[0], 2)
	one.hub = false
	one.other, two.other = two, one
	one.peer.Learn(w.now, one.facts(two))
	sends, _ := one.peer.Next(w.now)
	if len(sends) == 0 {
		t.Fatal("nothing is sent")
	}
	other := path.Path{Addr: netip.MustParseAddrPort("192.0.2.66:1")}
	one.peer.Heard(w.now, other, true)
	for _, s := range sends {
		if one.peer.Pong(w.now, other, s.Ping) {
			t.Error("an answer counted that came by another path")
		}
		if one.peer.Pong(w.now, s.To, s.Ping+1) {
			t.Error("an answer counted to a ping that was not sent")
		}
	}
	if one.direct() {
		t.Fatal("a path was taken that nobody proved")
	}
	w.now = w.now.Add(time.Minute)
	one.peer.Next(w.now)
	if one.peer.Pong(w.now, sends[0].To, sends[0].Ping) {
		t.Error("an answer counted that was a minute late")
	}
}

func TestWhoeverReplaysPingsDisplacesNothing(t *testing.T) {
	w, one, _ := behind(t)
	via := one.peer.Path()
	for i := range 5_000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 9)
		one.peer.Heard(w.now, path.Path{Addr: from}, true)
		one.peer.Called(w.now.Add(time.Duration(i)*time.Second), []netip.AddrPort{from})
	}
	r := one.peer.Report(w.now)
	if len(r.Candidates) > limit.PathHeard+4 || one.peer.Path() != via {
		t.Errorf("%d candidates, path %v, want %v", len(r.Candidates), one.peer.Path(), via)
	}
	sends, _ := one.peer.Next(w.now)
	if len(sends) > limit.PathHeard+4 {
		t.Errorf("%d pings to strangers at once", len(sends))
	}
}

// A peer that speaks no probes is WireGuard alone: its handshakes are the proof.
func TestAPeerWithoutProbes(t *testing.T) {
	p := path.New(func() uint64 { return 7 })
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s string) path.Path { return path.Path{Addr: netip.MustParseAddrPort(s)} }
	one, two, other := at("192.0.2.1:1"), at("192.0.2.2:1"), at("192.0.2.3:1")
	p.Learn(now, path.Facts{Candidates: []path.Candidate{{Addr: one.Addr}, {Addr: two.Addr}}})
	step := func(want path.Path, state path.State) {
		t.Helper()
		if sends, _ := p.Next(now); len(sends) > 0 {
			t.Fatalf("pings are sent: %v", sends)
		}
		if r := p.Report(now); p.Path() != want || r.State != state {
			t.Fatalf("the path is %v, %v (%s), want %v, %v", p.Path(), r.State, r.Why, want, state)
		}
	}
	step(one, path.Down)
	now = now.Add(path.PathTurn)
	step(two, path.Down)
	now = now.Add(path.PathTurn)
	step(one, path.Down)
	p.Shook(now, now, other) // WireGuard roamed
	step(other, path.Direct)
	now = now.Add(limit.PathHandshake / 2)
	p.Shook(now, now, other)
	now = now.Add(limit.PathHandshake - time.Second)
	step(other, path.Direct)
	now = now.Add(path.PathTurn + time.Second)
	if _, due := p.Next(now); due.IsZero() {
		t.Fatal("nothing is due although the path is dead")
	}
	now = now.Add(path.PathTurn)
	p.Next(now)
	if p.Path() == other {
		t.Errorf("the path is still %v", p.Path())
	}
}

// TestAnAddressIsTakenBack: a peer without probes is looked for elsewhere at once when its configured address is
// withdrawn, and stays where WireGuard has heard it.
func TestAnAddressIsTakenBack(t *testing.T) {
	at := func(s string) path.Path { return path.Path{Addr: netip.MustParseAddrPort(s)} }
	one, two, heard := at("192.0.2.1:1"), at("192.0.2.2:1"), at("192.0.2.3:1")
	for _, c := range []struct {
		what string
		kind path.Kind
		from path.Path
		next []path.Candidate
		want path.Path
	}{
		{"withdrawn", path.Static, one, []path.Candidate{{Addr: two.Addr, Kind: path.Static}}, two},
		{"there still", path.Static, one, []path.Candidate{{Addr: one.Addr, Kind: path.Static}, {Addr: two.Addr, Kind: path.Static}}, one},
		{"roamed", path.Static, heard, []path.Candidate{{Addr: two.Addr, Kind: path.Static}}, heard},
		{"nothing else", path.Static, one, nil, one},
		{"of another source", path.Observed, one, []path.Candidate{{Addr: two.Addr, Kind: path.Observed}}, one},
	} {
		p := path.New(func() uint64 { return 7 })
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		p.Learn(now, path.Facts{Candidates: []path.Candidate{{Addr: one.Addr, Kind: c.kind}}})
		p.Next(now)
		p.Shook(now, now, c.from)
		p.Learn(now, path.Facts{Candidates: c.next})
		if p.Next(now.Add(time.Second)); p.Path() != c.want {
			t.Errorf("%s: %v, want %v", c.what, p.Path(), c.want)
		}
	}
}

// TestDeadWithoutTraffic: a path that nobody uses is asked every 20 s, and after one ping without
// an answer as often as one in use: it is dead within 3 s of it.
func TestDeadWithoutTraffic(t *testing.T) {
	w, one, two := behind(t)
	w.until(5*time.Second, "a direct path", func() bool { return one.direct() && two.direct() })
	w.pass(10 * time.Minute)
	w.cut = func(_, _ netip.AddrPort) bool { return true }
	if took := w.until(time.Minute, "the relay", func() bool { return !one.direct() }); took > path.PathKeep+3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestStateWithItsSize: the size is told once all larger ones have failed or none is left.
func TestStateWithItsSize(t *testing.T) {
	w, one, two := behind(t)
	w.largest = 1400
	w.until(5*time.Second, "a direct path", func() bool { return one.direct() && two.direct() })
	seen := map[int]bool{}
	for range 60 {
		s, size := one.peer.State(w.now)
		if s != path.Direct {
			t.Fatal(s)
		}
		seen[size] = true
		w.pass(time.Second)
	}
	if len(seen) != 2 || !seen[0] || !seen[1380] {
		t.Errorf("sizes that were told: %v", seen)
	}
}
