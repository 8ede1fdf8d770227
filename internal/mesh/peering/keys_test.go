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

// TestANewKeyOfOurOwn: a node takes a new key pair under traffic with two peers, which hear of
// it some seconds later; the old one ends by itself, and few packets are lost.
func TestANewKeyOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.add("a", nat), w.add("b", nil), w.add("c", blocked)
		meet(a, b, c)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		stops := []func() (int, int){stream(a, b, 20*time.Millisecond), stream(a, c, 20*time.Millisecond)}
		time.Sleep(time.Minute)
		private, key := newPrivate(t)
		if err := a.p.Rotate(a.private, time.Minute); !fault.Has(err, fault.CodeInternal) {
			t.Errorf("the old key again: %v", err)
		}
		if err := a.p.Rotate(private, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := a.p.Rotate(private, 10*time.Minute); !fault.Has(err, fault.CodeStateBusy) {
			t.Errorf("two at a time: %v", err)
		}
		a.keys = []member.Key{key, a.key}
		time.Sleep(2 * time.Second)
		b.knows(a, c)
		time.Sleep(5 * time.Second)
		if r, ok := a.p.Rotating(); !ok || r.New != key || r.Old != a.key || len(r.Left) != 1 || r.Left[0] != "c" {
			t.Errorf("%+v, %v", r, ok)
		}
		c.knows(a, b)
		w.until(2*time.Minute, "the end of the old key", func() bool { _, ok := a.p.Rotating(); return !ok })
		a.keys = a.keys[:1]
		b.knows(a, c)
		c.knows(a, b)
		time.Sleep(300 * time.Second)
		for i, stop := range stops {
			if sent, lost := stop(); lost > 30 { // two looks of 100 ms and the way between, in both directions
				t.Errorf("%d: %d of %d packets were lost", i, lost, sent)
			}
		}
		if len(a.rotated) != 1 || a.rotated[0] != key || a.p.Key() != key || b.report(a).Key != key || a.engine.called("End") != 1 {
			t.Errorf("%v, %v, %v", a.rotated, a.p.Key(), b.report(a).Key)
		}
		if a.state(b) != path.Direct || a.state(c) != path.Relayed {
			t.Errorf("%v, %v", a.state(b), a.state(c))
		}
	})
}

// TestBothTakeNewKeys at one time.
func TestBothTakeNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nat), w.add("b", nat)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		stop := stream(a, b, 20*time.Millisecond)
		time.Sleep(time.Minute)
		for _, n := range []*node{a, b} {
			private, key := newPrivate(t)
			if err := n.p.Rotate(private, 10*time.Minute); err != nil {
				t.Fatal(err)
			}
			n.keys = []member.Key{key, n.key}
		}
		time.Sleep(time.Second)
		meet(a, b)
		w.until(2*time.Minute, "the end of the old keys", func() bool {
			_, one := a.p.Rotating()
			_, other := b.p.Rotating()
			return !one && !other
		})
		a.keys, b.keys = a.keys[:1], b.keys[:1]
		meet(a, b)
		time.Sleep(200 * time.Second)
		if sent, lost := stop(); lost > 30 {
			t.Errorf("%d of %d packets were lost", lost, sent)
		}
		if !both(a, b, path.Direct)() {
			t.Errorf("%+v", a.report(b))
		}
	})
}

// TestARotationWaitsNoLongerThanALease for a peer that has a path and never hears of the new key.
func TestARotationWaitsNoLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		meet(a, b)
		w.until(5*time.Second, "direct", both(a, b, path.Direct))
		private, key := newPrivate(t)
		if err := a.p.Rotate(private, 3*time.Minute); err != nil {
			t.Fatal(err)
		}
		took := w.until(4*time.Minute, "the end", func() bool { _, ok := a.p.Rotating(); return !ok })
		if took < 3*time.Minute-time.Second {
			t.Errorf("it ended after %v", took)
		}
		if err := a.p.End(); !fault.Has(err, fault.CodeNotFound) {
			t.Errorf("End: %v", err)
		}
		a.keys = []member.Key{key}
		b.knows(a)
		w.until(time.Minute, "direct", both(a, b, path.Direct))
		if _, lost := talk(a, b, 100*time.Millisecond, 5*time.Second); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
	})
}

// TestEndAtOnce: who wants the old key gone does not wait.
func TestEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.add("a", nil), w.add("b", nil)
		meet(a, b)
		private, key := newPrivate(t)
		if err := a.p.Rotate(private, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := a.p.End(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(a.rotated) != 1 || a.p.Key() != key {
			t.Errorf("%v, %v", a.rotated, a.p.Key())
		}
	})
}

// TestARotationThatCannotBegin leaves all as it was.
func TestARotationThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := settled(t)
		a.engine.mu.Lock()
		a.engine.fail = errors.New("no second device")
		a.engine.mu.Unlock()
		private, _ := newPrivate(t)
		if err := a.p.Rotate(private, time.Minute); err == nil {
			t.Error("it began")
		}
		if err := a.p.Rotate(b.private, time.Minute); !fault.Has(err, fault.CodeSelf) {
			t.Errorf("the key of a peer: %v", err)
		}
		if err := a.p.Rotate(nil, time.Minute); !fault.Has(err, fault.CodeConfig) {
			t.Errorf("no key: %v", err)
		}
		if _, ok := a.p.Rotating(); ok || a.p.Key() != a.key {
			t.Error("a change is under way")
		}
		time.Sleep(time.Minute)
		if _, lost := talk(a, b, 100*time.Millisecond, 2*time.Second); lost > 0 || a.state(b) != path.Direct {
			t.Errorf("%d packets were lost, %s", lost, a.state(b))
		}
		// What was derived for it is gone: a probe for that key is a stranger's.
		next := member.Key(private.PublicKey().Bytes())
		was := a.dropped("stranger")
		a.p.Probe(b.addr, a.addr.Addr(), sealed(t, pairOf(t, b.private, next, 1), ping(1)))
		if a.dropped("stranger") != was+1 {
			t.Error("the key that was given up is answered")
		}
	})
}
