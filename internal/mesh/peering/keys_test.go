// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// stream sends packets both ways until it is stopped, and gives those that were lost.
func stream(a, b *node, every time.Duration) (stop func() (sent, lost int)) {
	quit, done := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(quit); <-done })
	a.w.t.Cleanup(end)
	sent := map[uint64]*node{}
	began := time.Now()
	at := map[uint64]time.Duration{}
	go func() {
		defer close(done)
		for {
			for _, n := range []*node{a, b} {
				k := counter.Add(1)
				to := b
				if n == b {
					to = a
				}
				sent[k] = to
				at[k] = time.Since(began)
				n.engine.say(to.inside, k)
			}
			select {
			case <-quit:
				return
			case <-time.After(every):
			}
		}
	}()
	return func() (int, int) {
		end()
		time.Sleep(time.Second)
		lost := 0
		for k, to := range sent {
			if !to.engine.has(k) {
				lost++
				a.w.t.Logf("the packet to %s after %v was lost", to.name, at[k])
			}
		}
		return len(sent), lost
	}
}

// TestANewSecret: both change to it at moments that are some seconds apart, and back from it,
// under traffic, and nothing is lost.
func TestANewSecret(t *testing.T) {
	for _, apart := range []time.Duration{0, 2 * time.Second, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.add("a", nil), w.add("b", nil)
			meet(a, b)
			w.until(5*time.Second, "direct", both(a, b, path.Direct))
			stop := stream(a, b, 100*time.Millisecond)
			time.Sleep(100 * time.Second) // the session is not far from its end
			a.secrets, b.secrets = []byte{2, 1}, []byte{2, 1}
			a.knows(b)
			time.Sleep(apart)
			b.knows(a)
			w.until(100*time.Second, "a handshake with one that both have", func() bool { // of late it may be the old one
				r := a.report(b)
				return r.Secret == b.report(a).Secret && (r.Secret == secret(2).ID || apart > 10*time.Second) && r.Age < 5*time.Second
			})
			a.secrets, b.secrets = []byte{2}, []byte{2}
			meet(a, b)
			time.Sleep(400 * time.Second)
			if sent, lost := stop(); lost > 0 {
				t.Errorf("%v apart: %d of %d packets were lost", apart, lost, sent)
			}
			if a.report(b).Secret != secret(2).ID || b.report(a).Secret != secret(2).ID || !a.engine.psk(b.key).Equal(secret(2).PSK) {
				t.Errorf("the old secret is used: %+v", a.report(b))
			}
			if a.state(b) != path.Direct || a.report(b).Patient == b.report(a).Patient {
				t.Errorf("%+v", a.report(b))
			}
		})
	}
}

// TestOnlyOneKnowsTheNewSecret: the one that believes in it comes back to what both have.
func TestOnlyOneKnowsTheNewSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		stop := stream(a, b, 100*time.Millisecond)
		time.Sleep(20 * time.Second)
		b.secrets = []byte{2, 1}
		a.knows(b)
		time.Sleep(500 * time.Second)
		if sent, lost := stop(); lost > 0 {
			t.Errorf("%d of %d packets were lost", lost, sent)
		}
		if got := a.report(b); got.Age > 130*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// rotate has a node take a new key pair.
func (n *node) rotate() {
	n.w.t.Helper()
	private, key := newPrivate(n.w.t)
	if err := n.p.Rotate(private, tunnel.Signer{}); err != nil {
		n.w.t.Fatal(err)
	}
	n.private, n.key = private, key
}

// TestANewKeyOfOurOwn: a node takes a new key pair under traffic with two peers. Each talks to it
// again within a second of hearing of the key; the one that has not heard of it yet reaches it
// neither, and takes nothing of it.
func TestANewKeyOfOurOwn(t *testing.T) {
	for _, traffic := range []string{"both ways", "from it", "to it"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b, c := w.add("a", nat), w.add("b", nil), w.add("c", blocked)
			meet(a, b, c)
			w.until(5*time.Second, "direct", both(a, b, path.Direct))
			talk(a, b, 100*time.Millisecond, time.Second)
			talk(a, c, 100*time.Millisecond, time.Second)
			if err := a.p.Rotate(a.private, tunnel.Signer{}); !fault.Has(err, fault.CodeInternal) {
				t.Errorf("the old key again: %v", err)
			}
			a.rotate()
			told := func(n *node, others ...*node) {
				t.Helper()
				for _, via := range [][2]*node{{a, n}, {n, a}} {
					if n := counter.Add(1); true {
						via[0].engine.say(via[1].inside, n)
						time.Sleep(time.Second)
						if via[1].engine.has(n) {
							t.Errorf("%s reaches %s before it heard of the key", via[0].name, via[1].name)
						}
					}
				}
				n.knows(others...)
				from, to := a, n
				if traffic == "to it" {
					from, to = n, a
				}
				w.until(time.Second, "traffic with "+n.name+" "+traffic, func() bool {
					k := counter.Add(1)
					from.engine.say(to.inside, k)
					if traffic == "both ways" {
						to.engine.say(from.inside, k+1<<40)
					}
					time.Sleep(90 * time.Millisecond)
					return to.engine.has(k) && (traffic != "both ways" || from.engine.has(k+1<<40))
				})
			}
			told(b, a, c)
			told(c, a, b)
			if _, lost := talk(a, b, 100*time.Millisecond, 5*time.Minute); lost > 0 {
				t.Errorf("%d packets were lost later", lost)
			}
			if got := b.report(a); got.Key != a.key || a.state(b) != path.Direct || a.state(c) != path.Relayed {
				t.Errorf("%+v, %v, %v", got, a.state(b), a.state(c))
			}
		})
	}
}

// TestBothTakeNewKeys at one time, and hear of each other's at one time.
func TestBothTakeNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nat), w.add("b", nat)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		stream(a, b, 20*time.Millisecond)
		time.Sleep(time.Minute)
		a.rotate()
		b.rotate()
		time.Sleep(time.Second)
		meet(a, b)
		w.until(6*time.Second, "a session", func() bool { // both may begin within a round trip: WireGuard tries again
			return !a.report(b).Handshake.IsZero() && !b.report(a).Handshake.IsZero()
		})
		if _, lost := talk(a, b, 100*time.Millisecond, time.Minute); lost > 0 || !both(a, b, path.Direct)() {
			t.Errorf("%d packets were lost: %+v", lost, a.report(b))
		}
	})
}

// TestARotationThatCannotBegin leaves all as it was.
func TestARotationThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := settled(t)
		a.engine.mu.Lock()
		a.engine.fail = errors.New("no other key")
		a.engine.mu.Unlock()
		private, _ := newPrivate(t)
		if err := a.p.Rotate(private, tunnel.Signer{}); err == nil {
			t.Error("it began")
		}
		if err := a.p.Rotate(b.private, tunnel.Signer{}); !fault.Has(err, fault.CodeSelf) {
			t.Errorf("the key of a peer: %v", err)
		}
		if err := a.p.Rotate(nil, tunnel.Signer{}); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("no key: %v", err)
		}
		time.Sleep(time.Minute)
		if _, lost := talk(a, b, 100*time.Millisecond, 2*time.Second); lost > 0 || a.state(b) != path.Direct {
			t.Errorf("%d packets were lost, %s", lost, a.state(b))
		}
		// What was derived for it is gone: a probe for that key belongs to no peer.
		next := member.Key(private.PublicKey().Bytes())
		was := a.dropped("no_peer")
		a.p.Probe(b.addr, a.addr.Addr(), sealed(t, pairOf(t, b.private, next, 1), ping(1)))
		if a.dropped("no_peer") != was+1 {
			t.Error("the key that was given up is answered")
		}
	})
}
