// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestNewKeysThatFail: packets go by the present keys meanwhile, it is shown why there are no new ones and until when
// these last, and it is said once, when it has lasted for long.
func TestNewKeysThatFail(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		agreed, cut := time.Now(), true
		w.mu.Lock()
		w.cut = func(netip.Addr, netip.Addr) bool { return cut }
		w.mu.Unlock()
		late := Default.Age + Default.Age/4
		for _, c := range []struct {
			at    time.Duration
			shown bool
			said  int
		}{
			{Default.Age - 7*time.Minute, false, 0}, // some are earlier than others
			{late + time.Minute, true, 0},
			{late + failsLong - time.Minute, true, 0},
			{late + failsLong + 2*time.Minute, true, 1},
			{12 * time.Hour, true, 1},
		} {
			time.Sleep(time.Until(agreed.Add(c.at)))
			synctest.Wait()
			for i, n := range w.nodes {
				s := n.engine.Peers()[n.other().public]
				if s.Fault != nil != c.shown || !s.Until.IsZero() != c.shown || !n.leaves() {
					t.Errorf("after %v node %d shows %+v", c.at, i, s)
				}
				if d := s.Until.Sub(agreed.Add(Default.HardAge)); c.shown && d.Abs() > time.Second {
					t.Errorf("after %v node %d shows an end that is wrong by %v", c.at, i, d)
				}
				n.engine.mu.Lock()
				if said := strings.Count(n.log.String(), "no new keys are agreed"); said != c.said {
					t.Errorf("after %v node %d has said it %d times: %s", c.at, i, said, &n.log)
				}
				n.engine.mu.Unlock()
			}
		}
		w.mu.Lock()
		cut = false
		w.mu.Unlock()
		w.soon(longestPause + 2*exchangeTime)
		for i, n := range []*node{a, b} {
			if s := n.engine.Peers()[n.other().public]; s.Fault != nil || !s.Until.IsZero() {
				t.Errorf("node %d has new keys, and shows %+v", i, s)
			}
		}
	})
}

// TestNewKeysThatFailAfterAStart: what an earlier run has left lasts as long as it says.
func TestNewKeysThatFailAfterAStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		end := time.Now().Add(Default.HardAge)
		a.end(true)
		time.Sleep(time.Hour)
		w.mu.Lock()
		w.cut = func(netip.Addr, netip.Addr) bool { return true }
		w.mu.Unlock()
		a.start()
		a.path(a.addrs[0], b.addrs[0])
		time.Sleep(time.Minute)
		s := a.engine.Peers()[b.public]
		if d := s.Until.Sub(end); s.Fault == nil || d.Abs() > time.Second || !a.leaves() {
			t.Errorf("%+v, want an end at %v", s, end)
		}
	})
}

// TestPoliciesThatAreGone: somebody has flushed those of a node, or has removed or changed some, and left its states.
func TestPoliciesThatAreGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := tunnel.Peer{Key: member.Key{9}, Pin: member.Pin{9}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}}
		for _, n := range w.nodes {
			n.liars = append(n.liars, other)
		}
		w.up()
		for i, n := range w.nodes {
			for name, harm := range map[string]func([]ipsec.Peer) []ipsec.Peer{
				"all gone": func([]ipsec.Peer) []ipsec.Peer { return nil },
				"some gone": func(all []ipsec.Peer) []ipsec.Peer {
					return slices.DeleteFunc(all, func(p ipsec.Peer) bool { return p.Remote.IsValid() })
				},
				"changed": func(all []ipsec.Peer) []ipsec.Peer {
					for i := range all {
						all[i].Remote = netip.Addr{}
					}
					return all
				},
			} {
				n.kernel.mu.Lock()
				n.kernel.peers = harm(n.kernel.peers)
				n.kernel.mu.Unlock()
				if n.sends() == nil {
					t.Errorf("node %d needs no policies", i)
				}
				dialed := w.dialed()
				time.Sleep(comparePolicies + 2*limit.WireGuardLook)
				synctest.Wait()
				if err := w.flows(); err != nil {
					t.Errorf("node %d, %s: %v", i, name, err)
				}
				if w.dialed() != dialed {
					t.Errorf("node %d, %s: keys are agreed though the states are there", i, name)
				}
			}
		}
		applied := w.nodes[0].kernel.applied
		time.Sleep(10 * time.Minute)
		if more := w.nodes[0].kernel.applied - applied; more > 0 {
			t.Errorf("policies are set %d times, and nobody has touched them", more)
		}
	})
}

// TestANodeBeginsAgainWithAnotherAddress: the newest of the states that it finds is one by which it has received, at an
// address that is not its own any more. Its key is not sent by.
func TestANodeBeginsAgainWithAnotherAddress(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		a.end(true)
		a.kernel.mu.Lock()
		for i := range a.kernel.states {
			if s := &a.kernel.states[i]; !s.Sends {
				s.seen.Made = time.Now().Add(time.Second)
			}
		}
		a.kernel.mu.Unlock()
		a.addrs = a.addrs[1:]
		a.start()
		a.kernel.mu.Lock()
		defer a.kernel.mu.Unlock()
		if found := a.kernel.out(b.inner); len(found) != 1 || !found[0].Sends {
			t.Errorf("it sends by %+v", found)
		}
	})
}
