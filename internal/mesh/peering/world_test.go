// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// talk has a node send packets to another at even distances, and counts those that arrive.
func talk(from, to *node, every, long time.Duration) (sent, lost int) {
	var all []uint64
	for d := time.Duration(0); d < long; d += every {
		k := counter.Add(1)
		all = append(all, k)
		from.engine.say(to.inside, k)
		time.Sleep(every)
	}
	time.Sleep(time.Second)
	for _, k := range all {
		if !to.engine.has(k) {
			lost++
		}
	}
	return len(all), lost
}

func (n *node) state(of *node) path.State { return n.report(of).State }

// both reports whether two nodes are in one state with each other.
func both(a, b *node, s path.State) func() bool {
	return func() bool { return a.state(b) == s && b.state(a) == s }
}

func nat(_ *node, s *site) { s.nat, s.strict = true, true }

func symmetric(_ *node, s *site) { s.nat, s.strict, s.symm = true, true, true }

func blocked(_ *node, s *site) { s.noUDP = true }

// TestTwoFindEachOther through all pairs of sites: direct or by the relay, as theory says, with
// traffic from the first second on.
func TestTwoFindEachOther(t *testing.T) {
	kinds := map[string]func(*node, *site){"public": nil, "nat": nat, "symmetric": symmetric, "blocked": blocked}
	for one, f := range kinds {
		for other, g := range kinds {
			t.Run(one+" "+other, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					a, b := w.add("a", f), w.add("b", g)
					meet(a, b)
					a.engine.say(b.inside, 1)
					w.until(time.Second, "the first packet", func() bool { return b.engine.has(1) })
					want := path.Direct
					if one == "blocked" || other == "blocked" || one == "symmetric" && (other == "symmetric" || other == "nat") || other == "symmetric" && one == "nat" {
						want = path.Relayed
						time.Sleep(20 * time.Second)
					}
					w.until(3*time.Second, string(want), both(a, b, want))
					if _, lost := talk(a, b, 50*time.Millisecond, 10*time.Second); lost > 0 {
						t.Errorf("%d packets were lost", lost)
					}
					if _, lost := talk(b, a, 50*time.Millisecond, 10*time.Second); lost > 0 {
						t.Errorf("%d packets were lost", lost)
					}
				})
			})
		}
	}
}

// TestFiveFindEachOther: each pair of five, of which two are behind NATs.
func TestFiveFindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*node
		for i, f := range []func(*node, *site){nil, nil, nat, nat, blocked} {
			all = append(all, w.add(fmt.Sprint("n", i), f))
		}
		meet(all...)
		w.until(10*time.Second, "all pairs", func() bool {
			for _, a := range all {
				for _, b := range all {
					want := path.Direct
					if a == all[4] || b == all[4] {
						want = path.Relayed
					}
					if a != b && a.state(b) != want {
						return false
					}
				}
			}
			return true
		})
		for _, a := range all {
			for _, b := range all {
				if a == b {
					continue
				}
				if _, lost := talk(a, b, 100*time.Millisecond, time.Second); lost > 0 {
					t.Errorf("%s to %s: %d lost", a.name, b.name, lost)
				}
			}
		}
		if n := all[0].metric("tombolo_mesh_peers", "direct"); n != 3 {
			t.Errorf("%v peers are direct", n)
		}
	})
}

// TestCutAndBack: a path that is cut is replaced by the relay within 5 s and comes back; Changed
// tells of neither, for the peer is up all the time, and a whole end is told.
func TestCutAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nat), w.add("b", nil)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					talk(a, b, 100*time.Millisecond, time.Second)
				}
			}
		}()
		time.Sleep(time.Minute) // sizes are known by then
		changed := func() int { w.mu.Lock(); defer w.mu.Unlock(); return a.changed }
		was := changed()
		if was == 0 || a.report(b).MTU != 1440 {
			t.Errorf("Changed was called %d times, and the MTU is %d", was, a.report(b).MTU)
		}
		cut := func(yes bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cut = func(_, _ netip.Addr) bool { return yes }
		}
		cut(true)
		took := w.until(10*time.Second, "relayed", both(a, b, path.Relayed))
		if took < 2*time.Second || took > 6*time.Second {
			t.Errorf("the relay carries after %v", took)
		}
		cut(false)
		w.until(30*time.Second, "direct again", both(a, b, path.Direct))
		time.Sleep(time.Minute)
		cut(true)
		w.mu.Lock()
		a.hubbed, b.hubbed = false, false
		w.mu.Unlock()
		was = changed()
		w.until(30*time.Second, "down", func() bool { return a.state(b) == path.Down })
		if changed() == was {
			t.Error("nobody was told")
		}
		if n := a.metric("tombolo_mesh_path_changes_total", "relayed"); n < 2 {
			t.Errorf("%v changes with a relay", n)
		}
		close(stop)
		<-done
	})
}

// TestMoved: after a change of addresses all is asked anew, at once.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nat), w.add("b", nat)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		time.Sleep(time.Minute)
		w.mu.Lock() // a new address, and the old mappings are gone
		s := *a.site
		s.public = netip.MustParseAddr("198.18.77.7")
		s.out, s.in, s.allowed = map[[2]netip.AddrPort]uint16{}, map[uint16]bool{}, map[[2]netip.AddrPort]time.Time{}
		delete(w.at, a.site.public)
		a.site = &s
		w.at[s.public] = a.site
		w.mu.Unlock()
		a.p.Moved()
		took := w.until(10*time.Second, "direct again", func() bool {
			return a.state(b) == path.Direct && b.report(a).Path.Addr.Addr() == s.public
		})
		if took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestSizes: the largest packet that passes becomes the MTU, once, and stays it while it is
// looked for anew.
func TestSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.most = 1430
		a, b := w.add("a", nil), w.add("b", nil)
		meet(a, b)
		w.until(time.Minute, "an MTU", func() bool { return a.report(b).MTU == 1360 }) // 1,420 less 60
		time.Sleep(time.Second)
		w.mu.Lock()
		was := a.changed
		w.mu.Unlock()
		for range 30 {
			time.Sleep(time.Minute)
			if got := a.report(b).MTU; got != 1360 {
				t.Fatalf("the MTU is %d", got)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.changed != was {
			t.Errorf("Changed was called %d times more", a.changed-was)
		}
	})
}

// TestAbsent: a hub that does not know the peer carries nothing to it, and this is said.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", blocked), w.add("b", blocked)
		meet(a, b)
		w.until(5*time.Second, "relayed", both(a, b, path.Relayed))
		w.mu.Lock()
		b.hubbed = false
		w.mu.Unlock()
		w.until(30*time.Second, "down", func() bool { return a.state(b) == path.Down })
		w.mu.Lock()
		b.hubbed = true
		w.mu.Unlock()
		w.until(60*time.Second, "relayed again", both(a, b, path.Relayed))
	})
}

// TestLocalAddresses: an answer leaves from the address that was asked, and packets from the one
// that answers came to.
func TestLocalAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		if got := a.engine.local(b.key); got != a.addr.Addr() {
			t.Errorf("packets leave from %v", got)
		}
		second := netip.MustParseAddr("198.18.200.1")
		a.p.Probe(b.addr, second, sealed(t, pairOf(t, b.private, a.key, 1), ping(1)))
		w.mu.Lock()
		got := a.left
		w.mu.Unlock()
		if got != second {
			t.Errorf("the answer left from %v", got)
		}
		a.p.Moved()
		w.until(time.Second, "the address of answers after a change", func() bool { return a.engine.local(b.key) == a.addr.Addr() })
	})
}

// TestManyAtOnce: all methods at one time, for the race detector; after it all is well.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		data := sealed(t, pairOf(t, b.private, a.key, 1), ping(9))
		other := b.peer()
		other.Ranges = nil
		private, key := newPrivate(t)
		before := a.key
		var wg sync.WaitGroup
		for i, do := range []func(){
			func() { a.knows(b) },
			func() { a.p.Set([]peering.Peer{other}) },
			func() { a.p.Probe(b.addr, a.addr.Addr(), data) },
			func() { a.p.Relayed("h1", "b", data) },
			func() { a.p.Relayed("h1", "b", message(1, b.key, before, numbered(1, b.inside))) },
			func() { a.p.Relay("h1", b.key, [][]byte{data}) },
			func() { a.p.Absent("h1", "b") },
			func() { a.p.Wake(b.key) },
			func() { a.p.Moved() },
			func() { a.p.Want("id-b") },
			func() { a.p.Reports() },
			func() { a.p.Rotate(private, tunnel.Signer{}) },
			func() { a.metric("tombolo_mesh_peers", "") },
		} {
			wg.Go(func() {
				for range 30 {
					do()
					time.Sleep(time.Duration(1+i%3) * time.Millisecond)
				}
			})
		}
		wg.Wait() // not by time alone: the race detector knows no order of sleeps
		time.Sleep(10 * time.Second)
		a.key = key
		meet(a, b)
		w.until(time.Minute, "direct after all", both(a, b, path.Direct))
		if _, lost := talk(a, b, 100*time.Millisecond, 2*time.Second); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
	})
}
