// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
)

// pairOf seals as one node does for another.
func pairOf(t *testing.T, private *ecdh.PrivateKey, to member.Key, secretOf byte) *disco.Pair {
	t.Helper()
	p, err := disco.NewPair(private, to, secret(secretOf).PSK.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sealed(t *testing.T, p *disco.Pair, m disco.Message) []byte {
	t.Helper()
	b, err := p.Seal(nil, rand.Reader, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ping(n uint64) disco.Message { return disco.Message{Ping: &disco.Ping{ID: n}} }

// settled makes two nodes with a direct path between them, and no traffic.
func settled(t *testing.T) (w *world, a, b *node) {
	t.Helper()
	w = newWorld(t)
	a, b = w.add("a", nil), w.add("b", nil)
	meet(a, b)
	w.until(5*time.Second, "direct", both(a, b, path.Direct))
	time.Sleep(time.Minute)
	return w, a, b
}

// dropped is how many probes a node dropped for a reason.
func (n *node) dropped(reason string) int {
	return int(n.metric("tombolo_mesh_probes_dropped_total", reason))
}

// TestJunk: what is no valid probe of a peer is counted by its reason, and not answered.
func TestJunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		stranger, _ := newPrivate(t)
		good := sealed(t, pairOf(t, b.private, a.key, 1), ping(1))
		forged := append([]byte(nil), good...)
		forged[len(forged)-1] ^= 1
		other := sealed(t, pairOf(t, b.private, a.key, 9), ping(1)) // of a secret that they do not share
		unknown := sealed(t, pairOf(t, b.private, a.key, 1), disco.Message{Pong: &disco.Pong{ID: 77}})
		from := netip.MustParseAddrPort("203.0.113.66:1000")
		was := w.count()
		for _, c := range []struct {
			reason string
			data   []byte
		}{
			{"malformed", good[:20]},
			{"no_peer", sealed(t, pairOf(t, stranger, a.key, 1), ping(1))},
			{"no_peer", sealed(t, pairOf(t, a.private, b.key, 1), ping(1))}, // our own, sent back
			{"forged", forged},
			{"forged", other},
			{"unasked", unknown},
		} {
			before := a.dropped(c.reason)
			a.p.Probe(from, a.addr.Addr(), c.data)
			if got := a.dropped(c.reason) - before; got != 1 {
				t.Errorf("%s: %d were counted", c.reason, got)
			}
		}
		// By the relay: a name that is no peer's, one that is another's, and what is no packet of ours.
		c := w.add("c", nil)
		a.knows(b, c)
		for _, r := range []struct {
			reason, name string
			data         []byte
		}{
			{"no_peer", "nobody", good}, {"no_peer", "c", good}, {"malformed", "b", []byte("GET / HTTP/1.1")},
		} {
			before := a.dropped(r.reason)
			a.p.Relayed("h1", r.name, r.data)
			if got := a.dropped(r.reason) - before; got != 1 {
				t.Errorf("%s of %s by the relay: %d were counted", r.reason, r.name, got)
			}
		}
		before := a.dropped("inside")
		a.p.Probe(netip.AddrPortFrom(b.inside, 51820), a.addr.Addr(), good)
		if a.dropped("inside") != before+1 {
			t.Error("a probe came through the mesh")
		}
		a.p.Absent("h1", "nobody")
		if n := w.count() - was; n > 8 { // those of c, which was just added
			t.Errorf("%d packets were sent", n)
		}
		if a.state(b) != path.Direct || len(a.report(b).Candidates) > 2 {
			t.Errorf("%+v", a.report(b))
		}
	})
}

// TestFloodOfAMember: pings and calls beyond 50 a second are dropped, those by the path in use
// still count, and no answer is larger than what it answers.
func TestFloodOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		pair := pairOf(t, b.private, a.key, 1)
		was, answered := a.dropped("rate"), w.count()
		for i := range uint64(1000) {
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 1000)
			a.p.Probe(from, a.addr.Addr(), sealed(t, pair, ping(i+1)))
		}
		if n := a.dropped("rate") - was; n != 1000-peering.PeeringProbes {
			t.Errorf("%d were dropped", n)
		}
		a.p.Probe(b.addr, a.addr.Addr(), sealed(t, pair, ping(5000)))
		if n := a.dropped("rate") - was; n != 1000-peering.PeeringProbes {
			t.Error("the path in use was shut out")
		}
		synctest.Wait()
		// 51 answers, and a ping to each of the 8 that are remembered.
		if n := w.count() - answered; n < 51 || n > 51+limit.PathHeard+4 {
			t.Errorf("%d packets were sent", n)
		}
		if n := len(a.report(b).Candidates); n > 2+limit.PathHeard {
			t.Errorf("%d candidates", n)
		}
		time.Sleep(time.Minute)
		if !both(a, b, path.Direct)() || a.report(b).Path.Addr != b.addr {
			t.Errorf("%+v", a.report(b))
		}
	})
}

// TestReplays: a ping that somebody sends again from elsewhere makes a candidate that never
// carries; a pong that is sent again counts for nothing.
func TestReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		replay := sealed(t, pairOf(t, b.private, a.key, 1), ping(1))
		thief := netip.MustParseAddrPort("203.0.113.66:1000")
		for range 300 {
			a.p.Probe(thief, a.addr.Addr(), replay)
			time.Sleep(100 * time.Millisecond)
			if got := a.report(b).Path.Addr; got != b.addr {
				t.Fatalf("packets go to %v", got)
			}
		}
		// With the true path gone it is not used either.
		w.mu.Lock()
		w.cut = func(_, _ netip.Addr) bool { return true }
		w.mu.Unlock()
		for range 300 {
			a.p.Probe(thief, a.addr.Addr(), replay)
			time.Sleep(100 * time.Millisecond)
			if got := a.report(b).Path.Addr; got == thief {
				t.Fatal("packets go to whoever replays")
			}
		}
	})
}

// TestCalls: of a member's flood of calls one counts in a second, and no address of this machine
// or of the mesh is pinged for it.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		pair := pairOf(t, b.private, a.key, 1)
		victims := []netip.AddrPort{
			netip.MustParseAddrPort("127.0.0.1:53"), netip.MustParseAddrPort("[fe80::1]:53"), netip.AddrPortFrom(b.inside, 51820),
		}
		for i := range 20 {
			victims = append(victims, netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 1000))
		}
		was := w.count()
		for range 200 {
			a.p.Probe(b.addr, a.addr.Addr(), sealed(t, pair, disco.Message{Call: &disco.Call{Endpoints: victims}}))
			time.Sleep(10 * time.Millisecond)
		}
		if n := w.count() - was; n > 60 {
			t.Errorf("%d packets were sent", n)
		}
		for _, c := range a.report(b).Candidates {
			if at := c.Path.Addr.Addr(); c.Path.Direct() && (at.IsLoopback() || at.IsLinkLocalUnicast() || at == b.inside) {
				t.Errorf("%v is a candidate", c.Path)
			}
		}
		if n := len(a.report(b).Candidates); n > 2+limit.PathHeard {
			t.Errorf("%d candidates", n)
		}
		// None is displaced by another one: what is not there was not taken.
		time.Sleep(2 * time.Second)
		other := netip.MustParseAddrPort("203.0.113.99:1000")
		a.p.Probe(b.addr, a.addr.Addr(), sealed(t, pair, disco.Message{Call: &disco.Call{Endpoints: append(victims[:3:3], other)}}))
		found := false
		for _, c := range a.report(b).Candidates {
			found = found || c.Path.Addr == other
			if slices.Contains(victims[:3], c.Path.Addr) {
				t.Errorf("%v is a candidate", c.Path)
			}
		}
		if !found {
			t.Error("the call has not counted")
		}
	})
}

// TestPeersThatAreNone are refused one by one; the others go on.
func TestPeersThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := settled(t)
		change := func(id string, f func(*peering.Peer)) peering.Peer {
			p := b.peer()
			_, k := newPrivate(t)
			p.ID, p.Name, p.Key, p.Ranges = id, id, k, nil
			f(&p)
			return p
		}
		err := a.p.Set([]peering.Peer{
			b.peer(),
			change("own", func(p *peering.Peer) { p.Key = a.key }),
			change("low", func(p *peering.Peer) { p.Key = member.Key{1} }), // u = 1 is of low order
			change("none", func(p *peering.Peer) { p.Key = member.Key{} }),
			change("twice", func(p *peering.Peer) { p.Key = b.key }),
			change("secretless", func(p *peering.Peer) { p.Secrets = under() }),
		})
		if err == nil {
			t.Error("none was refused")
		}
		refused := map[string]fault.Code{}
		for _, r := range a.p.Reports() {
			if r.Problem != nil {
				refused[r.ID] = fault.From(r.Problem).Code
				if r.Up() || r.Why == "" {
					t.Errorf("%+v", r)
				}
			}
		}
		for id, code := range map[string]fault.Code{
			"own": fault.CodeSelf, "low": fault.CodeEntryInvalid, "none": fault.CodeEntryInvalid, "twice": fault.CodeSelf, "secretless": fault.CodeSecret,
		} {
			if refused[id] != code {
				t.Errorf("%s: %q", id, refused[id])
			}
		}
		if len(refused) != 5 || a.state(b) != path.Direct {
			t.Errorf("%v, %v", refused, a.state(b))
		}
		if _, lost := talk(a, b, 100*time.Millisecond, time.Second); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
		a.knows(b)
		if n := len(a.p.Reports()); n != 1 {
			t.Errorf("%d reports", n)
		}
	})
}

// TestCandidatesWithinTheMesh are not pinged: a path must not travel on itself.
func TestCandidatesWithinTheMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.add("a", nil), w.add("b", nil), w.add("c", nil)
		f, g := b.peer(), c.peer()
		g.Ranges = append(g.Ranges, netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/64"))
		for _, at := range []string{"10.244.3.4:51820", "[fd00:1::7]:51820", "[::ffff:10.244.3.5]:51820", "100.112.0.3:51820"} {
			f.Facts.Candidates = append(f.Facts.Candidates, path.Candidate{Addr: netip.MustParseAddrPort(at)})
		}
		if err := a.p.Set([]peering.Peer{f, g}); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.report(b).Candidates {
			if c.Path.Direct() && c.Path.Addr != b.addr {
				t.Errorf("%v is a candidate", c.Path)
			}
		}
	})
}

// TestAnUnknownTypeIsIgnored: a peer of a newer version says something that this one does not
// know. The keys are those of docs/reference/mesh-wire.md section 3.
func TestAnUnknownTypeIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := settled(t)
		to, err := ecdh.X25519().NewPublicKey(a.key[:])
		if err != nil {
			t.Fatal(err)
		}
		shared, err := b.private.ECDH(to)
		if err != nil {
			t.Fatal(err)
		}
		psk := secret(1).PSK.Bytes()
		key, err := hkdf.Key(sha256.New, append(shared, psk[:]...), []byte("tombolo mesh probe 1"), string(b.key[:])+string(a.key[:]), 32)
		if err != nil {
			t.Fatal(err)
		}
		aead, err := chacha20poly1305.NewX(key)
		if err != nil {
			t.Fatal(err)
		}
		good := sealed(t, pairOf(t, b.private, a.key, 1), ping(1))
		head, nonce := good[:12], good[12:36]
		data := aead.Seal(append([]byte(nil), good[:36]...), nonce, []byte{99, 1, 2, 3}, head)
		was := w.count()
		a.p.Probe(b.addr, a.addr.Addr(), data)
		if a.dropped("unknown") != 1 || a.dropped("forged") != 0 || w.count() != was {
			t.Errorf("unknown %d, forged %d, %d answers", a.dropped("unknown"), a.dropped("forged"), w.count()-was)
		}
	})
}
