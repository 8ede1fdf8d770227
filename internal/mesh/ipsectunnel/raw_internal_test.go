// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

// bound is within which packets are back after a path has ended.
const bound = 5 * time.Second

// trialPacket is one of protocol 50 that is no ESP.
type trialPacket struct {
	from, to netip.Addr
	data     []byte
}

// rawTwin is the socket of a node.
type rawTwin struct{ *node }

func (r rawTwin) Send(to, local netip.Addr, data []byte) error {
	o := r.other()
	r.mu.Lock()
	cut := r.cut != nil && r.cut(local, to) || r.cut50 != nil && r.cut50(local, to, false)
	r.mu.Unlock()
	if cut || o.heard == nil || !slices.Contains(o.addrs, to) {
		return nil
	}
	select {
	case o.heard <- trialPacket{local, to, bytes.Clone(data)}:
		return nil
	default:
		return errors.New("nobody reads it")
	}
}

func (r rawTwin) Run(ctx context.Context, take func(from, local netip.Addr, data []byte)) error {
	for {
		select {
		case p := <-r.heard:
			take(p.from, p.to, p.data)
		case <-ctx.Done():
			return nil
		}
	}
}

// drops50 has the network drop what a function says.
func (w *world) drops50(fn func(from, to netip.Addr, esp bool) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut50 = fn
}

// raw is by which of both nodes packets leave without UDP.
func (w *world) raw() (all [2]bool) {
	for i, n := range w.nodes {
		n.kernel.mu.Lock()
		found := n.kernel.out(n.other().inner)
		n.kernel.mu.Unlock()
		if len(found) > 0 {
			all[i] = found[len(found)-1].ToPort == 0
		}
		if s := n.engine.Peers()[n.other().public]; s.Raw != all[i] || s.Why == "" {
			w.t.Errorf("node %d shows %v because %q, and it is %v", i, s.Raw, s.Why, all[i])
		}
	}
	return all
}

func (w *world) requireRaw(want bool) {
	w.t.Helper()
	if got := w.raw(); got != [2]bool{want, want} {
		w.t.Fatalf("packets go without UDP: %v, want %v", got, want)
	}
}

// trying is a world of two nodes that try whether packets pass without UDP.
func trying(t *testing.T, fn func(*testing.T, *world)) {
	inWorld(t, func(t *testing.T, w *world) {
		w.nodes[0].tries, w.nodes[1].tries = true, true
		fn(t, w)
	})
}

func TestWithoutUDPWherePacketsPass(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		w.up()
		w.requireRaw(false)
		if err := w.within(bound, 50*time.Millisecond); err != nil {
			t.Error(err)
		}
		w.requireRaw(true)
		if n := w.dialed(); n > 3 {
			t.Errorf("%d exchanges", n)
		}
		if err := w.within(3*time.Hour, 11*time.Second); err != nil {
			t.Error(err)
		}
		w.requireRaw(true)
		if n := w.dialed(); n > 8 {
			t.Errorf("%d exchanges in 3 hours", n)
		}
	})
}

// TestInUDPWherePacketsDoNotPass: blocked in one direction or in both, and where one node does not try, nothing goes
// without UDP, and nothing is lost.
func TestInUDPWherePacketsDoNotPass(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"both ways": func(w *world) { w.drops50(func(_, _ netip.Addr, _ bool) bool { return true }) },
		"one way": func(w *world) {
			w.drops50(func(from, _ netip.Addr, _ bool) bool { return slices.Contains(w.nodes[0].addrs, from) })
		},
		"the other way": func(w *world) {
			w.drops50(func(from, _ netip.Addr, _ bool) bool { return slices.Contains(w.nodes[1].addrs, from) })
		},
		"one does not try":       func(w *world) { w.nodes[0].tries = false },
		"the other one does not": func(w *world) { w.nodes[1].tries = false },
	} {
		t.Run(name, func(t *testing.T) {
			trying(t, func(t *testing.T, w *world) {
				prepare(w)
				w.up()
				for range 200 {
					if err := w.within(time.Second, time.Second/5); err != nil {
						t.Fatal(err)
					}
					w.requireRaw(false)
				}
				if n := w.dialed(); n != 1 {
					t.Errorf("%d exchanges", n)
				}
			})
		})
	}
}

// TestPacketsPassNoMore: a firewall appears in one direction or in both. Packets are back within the bound, in UDP; and
// without it once the firewall is gone.
func TestPacketsPassNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		way    func(w *world, from netip.Addr, esp bool) bool
		within time.Duration
	}{
		"both ways": {func(*world, netip.Addr, bool) bool { return true }, bound},
		"one way": {func(w *world, from netip.Addr, _ bool) bool { return slices.Contains(w.nodes[0].addrs, from) },
			bound},
		"the other way": {func(w *world, from netip.Addr, _ bool) bool { return slices.Contains(w.nodes[1].addrs, from) },
			bound},
		"ESP alone": {func(_ *world, _ netip.Addr, esp bool) bool { return esp }, 3 * bound},
		"ESP alone, one way": {func(w *world, from netip.Addr, esp bool) bool {
			return esp && slices.Contains(w.nodes[1].addrs, from)
		}, 3 * bound},
	} {
		t.Run(name, func(t *testing.T) {
			trying(t, func(t *testing.T, w *world) {
				w.up()
				if err := w.within(time.Minute, 100*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				w.requireRaw(true)
				w.drops50(func(from, _ netip.Addr, esp bool) bool { return c.way(w, from, esp) })
				began := time.Now()
				for w.flows() != nil && time.Since(began) < time.Minute {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("packets were back after %v", took)
				}
				w.requireRaw(false)
				if err := w.within(10*time.Second, 100*time.Millisecond); err != nil {
					t.Errorf("and then: %v", err)
				}
				w.requireRaw(false)
				w.drops50(nil)
				if err := w.within(2*trialRest, 100*time.Millisecond); err != nil {
					t.Error(err)
				}
				w.requireRaw(true)
			})
		})
	}
}

// TestAFirewallForAMoment: however long it is there, packets are back soon, and then none is lost.
func TestAFirewallForAMoment(t *testing.T) {
	for moment := 2 * time.Second; moment < 5*time.Second; moment += time.Second / 10 {
		trying(t, func(t *testing.T, w *world) {
			w.up()
			if err := w.within(time.Minute, 100*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			w.drops50(func(_, _ netip.Addr, _ bool) bool { return true })
			time.Sleep(moment)
			w.drops50(nil)
			if err := w.within(2*trialRest, 100*time.Millisecond); err != nil && moment < bound-time.Second {
				t.Errorf("%v: %v", moment, err)
			}
			w.requireRaw(true)
			if n := w.dialed(); n > 7 {
				t.Errorf("%v: %d exchanges", moment, n)
			}
		})
	}
}

// TestIdleTunnelWithoutUDP: packets that begin after a silence, in which the firewall has appeared, are not lost.
func TestIdleTunnelWithoutUDP(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		w.up()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.requireRaw(true)
		w.drops50(func(_, _ netip.Addr, _ bool) bool { return true })
		w.soon(trialIdle + bound)
		w.requireRaw(false)
	})
}

func TestAnotherPathWithoutUDP(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		a, b := w.up()
		w.soon(bound)
		w.requireRaw(true)
		w.drops50(func(from, _ netip.Addr, _ bool) bool { return from == a.addrs[1] })
		a.path(a.addrs[1], b.addrs[1])
		b.path(b.addrs[1], a.addrs[1])
		if err := w.within(time.Minute, 10*time.Millisecond); err != nil {
			t.Error(err)
		}
		w.requireRaw(false)
		a.path(a.addrs[0], b.addrs[0])
		b.path(b.addrs[0], a.addrs[0])
		if err := w.within(time.Minute, 10*time.Millisecond); err != nil {
			t.Error(err)
		}
		w.requireRaw(true)
	})
}

func TestANodeWithoutUDPBeginsAgain(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		w.up()
		for i, n := range w.nodes {
			for _, keep := range []bool{true, false} {
				w.soon(trialRestMost + bound)
				w.requireRaw(true)
				n.end(keep)
				if err := w.within(time.Minute, time.Second); keep && err != nil {
					t.Errorf("node %d is away, and its kernel is not heard: %v", i, err)
				}
				n.start()
				n.path(n.addrs[0], n.other().addrs[0])
				w.soon(yield + time.Second)
				if err := w.within(time.Minute, time.Second); err != nil {
					t.Errorf("node %d: %v", i, err)
				}
			}
		}
	})
}

func TestAnotherKeyOfANodeWithoutUDP(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		a, _ := w.up()
		w.soon(bound)
		w.requireRaw(true)
		if err := a.engine.Handshake(a.other().public); err != nil {
			t.Fatal(err)
		}
		if err := w.within(time.Second, time.Second/10); err != nil {
			t.Error(err)
		}
		w.requireRaw(false)
		w.soon(2 * trialRest)
		w.requireRaw(true)
	})
}

// TestWhatOthersSayByProtocol50: what is not sealed by the peer answers nothing and is not answered, nor does an answer
// count twice, or one to a question that was asked on another path.
func TestWhatOthersSayByProtocol50(t *testing.T) {
	trying(t, func(t *testing.T, w *world) {
		a, b := w.up()
		w.drops50(func(_, _ netip.Addr, _ bool) bool { return true })
		time.Sleep(trialEvery / 4)
		synctest.Wait()
		pair := func(n *node) *disco.Pair { return n.engine.peers[n.other().public].pair }
		seal := func(p *disco.Pair, trial disco.Trial) []byte {
			b, err := p.Seal(nil, rand.Reader, disco.Message{Trial: &trial}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		other, err := disco.NewTrialPair(private, a.public)
		if err != nil {
			t.Fatal(err)
		}
		secret := b.key.Bytes()
		probes, err := ecdh.X25519().NewPrivateKey(secret[:])
		if err != nil {
			t.Fatal(err)
		}
		probe, err := disco.NewPair(probes, a.public, [32]byte{}) // of another socket, between the same nodes
		if err != nil {
			t.Fatal(err)
		}
		open := func() uint64 {
			w.drops50(nil)
			a.engine.mu.Lock()
			defer a.engine.mu.Unlock()
			a.engine.peers[b.public].trial = trial{}.ask(time.Now(), 77)
			return 77
		}
		answer, before := disco.Trial{ID: open(), Answer: true}, a.engine.Use().Trials
		for _, c := range []struct {
			what string
			from netip.Addr
			data []byte
			want int
		}{
			{"nothing", b.addrs[0], nil, 0},
			{"junk", b.addrs[0], bytes.Repeat([]byte{0xf5}, 100), 0},
			{"of somebody", b.addrs[0], seal(other, answer), 0},
			{"of another socket", b.addrs[0], seal(probe, answer), 0},
			{"its own", b.addrs[0], seal(pair(a), answer), 0},
			{"no question", b.addrs[0], seal(pair(b), disco.Trial{ID: 78, Answer: true}), 0},
			{"from elsewhere", b.addrs[1], seal(pair(b), answer), 0},
			{"the answer", b.addrs[0], seal(pair(b), answer), 1},
			{"the answer again", b.addrs[0], seal(pair(b), answer), 1},
		} {
			a.engine.hear(c.from, a.addrs[0], c.data)
			a.engine.mu.Lock()
			if n := a.engine.peers[b.public].trial.answers; n != c.want || len(b.heard) > 0 {
				t.Errorf("%s: %d answers counted, %d sent", c.what, n, len(b.heard))
			}
			a.engine.mu.Unlock()
		}
		if n := a.engine.Use().Trials - before; n != 9 {
			t.Errorf("%d packets are counted", n)
		}
	})
}
