// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// TestAKernelNodeByTheRelay: where no UDP passes, packets of the kernel's WireGuard go by a hub; they go direct when it
// passes, and back. So with a peer of either engine.
func TestAKernelNodeByTheRelay(t *testing.T) {
	for name, other := range map[string]func(*node, *site){"kernel": kernelNode(nil), "userspace": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				cut := func(yes bool) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.cut = func(_, _ netip.Addr) bool { return yes }
				}
				cut(true)
				a, b := w.add("a", kernelNode(nat)), w.add("b", other)
				meet(a, b)
				w.until(2*time.Second, "relayed", both(a, b, path.Relayed))
				a.say(b, 1)
				w.until(6*time.Second, "the first packet", func() bool { return b.has(1) })
				whole := func(when string, state path.State) {
					t.Helper()
					if a.state(b) != state || b.state(a) != state {
						t.Errorf("%s: %v and %v", when, a.state(b), b.state(a))
					}
					for _, of := range [][2]*node{{a, b}, {b, a}} {
						if _, lost := chat(of[0], of[1], 100*time.Millisecond, 10*time.Second); lost > 0 {
							t.Errorf("%s: %s to %s: %d lost", when, of[0].name, of[1].name, lost)
						}
					}
				}
				whole("cut", path.Relayed)
				for range 3 {
					cut(false)
					w.until(time.Minute, "direct", both(a, b, path.Direct))
					time.Sleep(2 * time.Second) // what was on its way has come
					was := w.count()
					whole("whole again", path.Direct)
					if n := w.count() - was; n < 200 {
						t.Errorf("of 200 packets %d went direct", n)
					}
					cut(true)
					w.until(time.Minute, "relayed", both(a, b, path.Relayed))
					whole("cut again", path.Relayed)
				}
			})
		})
	}
}

// TestAKernelNodeAndOlderOnes: those of before have neither probes nor the relay, and are followed by handshakes.
func TestAKernelNodeAndOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.add("a", kernelNode(nil)), w.add("b", older(keeping)), w.add("c", nat)
		meet(a, b, c)
		b.p.Relayed("h1", "a", message(1, a.key, b.key, numbered(1, a.inside))) // which they know nothing of
		for _, of := range [][2]*node{{a, b}, {c, b}, {a, c}} {
			w.until(time.Minute, of[0].name+of[1].name+" direct", func() bool { return of[0].state(of[1]) == path.Direct })
			if _, lost := chat(of[0], of[1], 100*time.Millisecond, 5*time.Second); lost > 0 {
				t.Errorf("%s to %s: %d lost", of[0].name, of[1].name, lost)
			}
		}
		if at := a.report(b).Path.Addr.Addr(); at != b.site.public {
			t.Errorf("the path is %v", at)
		}
	})
}
