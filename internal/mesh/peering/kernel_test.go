// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard/wireguardtest"
	"github.com/tombolo-io/tombolo/internal/mesh/loopback"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// loop is the loopback link of a node: what the kernel sends there comes to whoever runs.
type loop struct {
	n    *node
	sent chan hop
}

type hop struct {
	at netip.Addr
	b  []byte
}

func (loop) Port() uint16 { return 7 }

func (l loop) Send(from netip.Addr, b []byte) error {
	l.n.kernel.Come(netip.AddrPortFrom(from, l.Port()), b)
	return nil
}

func (l loop) Run(ctx context.Context, take func(netip.Addr, []byte)) error {
	for {
		select {
		case p := <-l.sent:
			take(p.at, p.b)
		case <-ctx.Done():
			return nil
		}
	}
}

// inKernel gives a node the kernel's WireGuard, in memory.
func (n *node) inKernel(data *peering.Datapath) wireGuard {
	n.w.t.Helper()
	lo := loop{n, make(chan hop, 1000)}
	n.kernel.Emit = func(to netip.AddrPort, b []byte) {
		if to.Addr().IsLoopback() {
			lo.sent <- hop{to.Addr(), b}
			return
		}
		n.w.carry(n, to, b, false)
	}
	d, err := wireguard.Open(wireguard.Settings{Link: wireguardtest.Link, MTU: 1420, Port: n.addr.Port(), Mark: 0x20},
		wireguard.Parts{Control: n.kernel, Links: n.kernel, Log: quiet(), Wake: func(k member.Key) { n.p.Wake(k) }})
	if err != nil {
		n.w.t.Fatal(err)
	}
	if err := n.kernel.Up(wireguardtest.Link); err != nil {
		n.w.t.Fatal(err)
	}
	e := loopback.New(d, lo, data, "")
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, f := range []func(context.Context) error{d.Run, e.Run} {
		all.Go(func() {
			if err := f(ctx); err != nil {
				n.w.t.Error(err)
			}
		})
	}
	n.w.t.Cleanup(func() {
		cancel()
		all.Wait()
		if err := d.Close(false); err != nil {
			n.w.t.Error(err)
		}
	})
	return e
}

// kernelNode is a site's change for a node with the kernel's WireGuard.
func kernelNode(then func(*node, *site)) func(*node, *site) {
	return func(n *node, s *site) {
		n.kernel = wireguardtest.New()
		if then != nil {
			then(n, s)
		}
	}
}

// older is one of a release in which such nodes had no probes and no relay.
func older(then func(*node, *site)) func(*node, *site) {
	return kernelNode(func(n *node, s *site) {
		n.probes, n.hubbed = false, false
		if then != nil {
			then(n, s)
		}
	})
}

func keeping(_ *node, s *site) { s.nat, s.strict, s.keeps = true, true, true }

func (n *node) say(to *node, number uint64) {
	if n.kernel != nil {
		n.kernel.Say(to.inside, n.inside, number)
		return
	}
	n.engine.say(to.inside, number)
}

func (n *node) has(number uint64) bool {
	if n.kernel != nil {
		return n.kernel.Got(number)
	}
	return n.engine.has(number)
}

// chat has a node send packets to another, and counts those that are lost.
func chat(from, to *node, every, long time.Duration) (sent, lost int) {
	var all []uint64
	for d := time.Duration(0); d < long; d += every {
		k := counter.Add(1)
		all = append(all, k)
		from.say(to, k)
		time.Sleep(every)
	}
	time.Sleep(time.Second)
	for _, k := range all {
		if !to.has(k) {
			lost++
		}
	}
	return len(all), lost
}

// TestKernelNodesAndOthers: two with the kernel's WireGuard and one with its own, of which
// two are behind NATs, find each other by turns of candidates, and stay.
func TestKernelNodesAndOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.add("a", kernelNode(keeping)), w.add("b", kernelNode(nil)), w.add("c", nat)
		all := []*node{a, b, c}
		meet(all...)
		pairs := func(do func(x, y *node)) {
			for _, x := range all {
				for _, y := range all {
					if x != y {
						do(x, y)
					}
				}
			}
		}
		direct := func() (ok bool) {
			ok = true
			pairs(func(x, y *node) { ok = ok && x.state(y) == path.Direct })
			return ok
		}
		t.Log("direct after", w.until(time.Minute, "all pairs direct", direct))
		time.Sleep(10 * time.Second)
		pairs(func(x, y *node) {
			if _, lost := chat(x, y, 100*time.Millisecond, 5*time.Second); lost > 0 {
				t.Errorf("%s to %s: %d lost", x.name, y.name, lost)
			}
		})
		time.Sleep(20 * time.Minute) // keepalives alone
		if !direct() {
			t.Error("a pair was lost without traffic")
		}
		pairs(func(x, y *node) {
			if _, lost := chat(x, y, 500*time.Millisecond, 5*time.Second); lost > 0 {
				t.Errorf("%s to %s after a long silence: %d lost", x.name, y.name, lost)
			}
		})
	})
}

// TestAKernelNodeRotatesEndpoints: candidates that do not answer are passed over, and a peer
// that has moved is found again.
func TestAKernelNodeRotatesEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", kernelNode(nat)), w.add("b", kernelNode(nil))
		meet(a, b)
		p := b.peer()
		p.Facts = path.Facts{Candidates: []path.Candidate{
			{Addr: netip.MustParseAddrPort("192.0.2.201:1"), Kind: path.Static}, {Addr: netip.MustParseAddrPort("192.0.2.202:2"), Kind: path.Own},
			{Addr: b.addr, Kind: path.Mapped},
		}}
		set := func() {
			t.Helper()
			if err := a.p.Set([]peering.Peer{p}); err != nil {
				t.Fatal(err)
			}
		}
		set()
		took := w.until(time.Minute, "direct", func() bool { return a.state(b) == path.Direct })
		if got := a.report(b).Path.Addr; got != b.addr {
			t.Errorf("after %v the path is %v", took, got)
		}
		if _, lost := chat(a, b, 100*time.Millisecond, 5*time.Second); lost > 0 {
			t.Errorf("%d lost", lost)
		}
		w.mu.Lock() // it has another address now, and says so
		delete(w.at, b.site.public)
		b.site.public = netip.MustParseAddr("198.18.99.9")
		b.addr = netip.AddrPortFrom(b.site.public, 51820)
		w.at[b.site.public] = b.site
		w.cut = func(from, _ netip.Addr) bool { return from == b.site.public } // nobody hears of it by itself
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.cut = func(_, _ netip.Addr) bool { return false }
		w.mu.Unlock()
		p.Facts.Candidates[2].Addr = b.addr
		set()
		w.until(5*time.Minute, "direct again", func() bool {
			r := a.report(b)
			return r.State == path.Direct && r.Path.Addr == b.addr
		})
	})
}

// TestAKernelNodeTurnsPresharedKeys: a secret is rotated at both ends, at two times, and no
// packet is lost.
func TestAKernelNodeTurnsPresharedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", kernelNode(nat)), w.add("b", nil)
		secrets := func(n *node, list ...byte) {
			n.secrets = list
		}
		meet(a, b)
		w.until(time.Minute, "direct", both(a, b, path.Direct))
		stop, done := make(chan struct{}), make(chan int)
		go func() {
			all := 0
			for {
				select {
				case <-stop:
					done <- all
					return
				default:
					_, lost := chat(a, b, 200*time.Millisecond, 2*time.Second)
					all += lost
				}
			}
		}()
		time.Sleep(time.Minute)
		secrets(a, 2, 1)
		b.knows(a) // the peer's secrets are those that both have, as b knows it
		time.Sleep(time.Minute)
		secrets(b, 2, 1)
		a.knows(b)
		time.Sleep(10 * time.Minute)
		secrets(a, 2)
		b.knows(a)
		secrets(b, 2)
		a.knows(b)
		time.Sleep(10 * time.Minute)
		close(stop)
		if lost := <-done; lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
		if s := a.report(b); s.State != path.Direct || s.Age > 3*time.Minute {
			t.Errorf("after it: %+v", s)
		}
	})
}

// TestAKernelNodeIsLazy: without traffic there is none; the first packet wakes a peer.
func TestAKernelNodeIsLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", kernelNode(nat)), w.add("b", kernelNode(nil))
		a.lazy, b.lazy = true, true
		meet(a, b)
		time.Sleep(time.Minute)
		if n := w.count(); n > 0 || a.state(b) != path.Idle {
			t.Fatalf("%d packets; %v", n, a.state(b))
		}
		a.say(b, 1)
		w.until(5*time.Second, "the first packet", func() bool { return b.has(1) })
		w.until(5*time.Second, "direct", func() bool { return a.state(b) == path.Direct })
		w.until(time.Hour, "idle", func() bool { return a.state(b) == path.Idle && b.state(a) == path.Idle })
		time.Sleep(5 * time.Minute)
		was := w.count()
		time.Sleep(time.Hour)
		if n := w.count() - was; n > 0 {
			t.Errorf("%d packets in an hour", n)
		}
	})
}

// TestAKernelNodeIsTakenOver: the process is killed, traffic flows on, and the next one knows
// the path without trying another one.
func TestAKernelNodeIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", kernelNode(nat)), w.add("b", kernelNode(nil))
		dead := netip.MustParseAddrPort("192.0.2.201:1")
		set := func(p *peering.Peering) {
			t.Helper()
			f := b.peer()
			f.Facts.Candidates = append([]path.Candidate{{Addr: dead, Kind: path.Static}}, f.Facts.Candidates...)
			f.Facts.Probes, f.Facts.Relays = false, nil
			if err := p.Set([]peering.Peer{f}); err != nil {
				t.Fatal(err)
			}
		}
		set(a.p)
		b.knows(a)
		w.until(time.Minute, "direct", func() bool { return a.state(b) == path.Direct })
		a.stop() // as far as the kernel sees it, a kill: nothing is said to it
		if _, lost := chat(a, b, time.Second, 5*time.Minute); lost > 0 {
			t.Errorf("%d lost while nobody was there", lost)
		}
		a.kernel.Told()
		data := peering.NewDatapath(nil)
		kernel := a.inKernel(data)
		next, err := peering.New(peering.Parts{Private: a.private, Socket: a, Engine: kernel, Traffic: kernel, Datapath: data, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		a.p = next
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- next.Run(ctx) }()
		defer sync.OnceFunc(func() { cancel(); <-done })()
		set(next)
		if _, lost := chat(a, b, 50*time.Millisecond, 30*time.Second); lost > 0 {
			t.Errorf("%d lost after the restart", lost)
		}
		if r := a.report(b); r.State != path.Direct || r.Path.Addr != b.addr {
			t.Errorf("it is %v by %v", r.State, r.Path)
		}
		if told, all := a.kernel.Told(); all > 0 {
			t.Errorf("the kernel was told %v", told)
		}
	})
}
