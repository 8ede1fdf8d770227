// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"encoding/binary"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// crossing settles handshakes that both ends begin.
//
// WireGuard has room for one handshake with a peer: that of the other end takes the place
// of one's own. Where both begin within a round trip, each answers the other's, both
// answers are for handshakes that are no more, and both begin again 5 s later. So the end
// with the greater public key does not let the other's handshake in while its own waits for
// an answer, and sends its own once more: the first one may have come before the other's
// NAT was open. The other end takes whichever comes first, and drops a second as a replay.
//
//	greater ──1──►◄──1── lesser        both have begun
//	greater ◄──────────2 lesser        it has answered the greater one's
//	greater 1 (again) ─► lesser        that was answered: a replay
//
// A handshake that is not to be sent after an answer is told by forbids, and one that is not to
// come in after an answer by done.
type crossing struct {
	private atomic.Pointer[ecdh.PrivateKey]
	began   atomic.Int64 // when the newest of our own that may go first was sent, in Unix nanoseconds
	came    atomic.Int64 // and when the newest of another one was let in

	mu     sync.Mutex
	second time.Time
	n      int // of packets that were opened within the second
}

// begun notes a handshake of ours that goes first.
func (c *crossing) begun(at time.Time) { c.began.Store(at.UnixNano()) }

// idle reports whether no handshake of ours can be waiting: the usual case, which costs nothing.
func (c *crossing) idle(now time.Time) bool {
	return !lately(&c.began, now, limit.TunnelAgain)
}

// beside reports whether WireGuard may be about to answer a handshake, of whatever peer.
func (c *crossing) beside(now time.Time) bool {
	return lately(&c.came, now, limit.TunnelBeside)
}

// lately reports whether a time was within a span. One that is to come by more than that is of
// before the clock was put back; by less, of another goroutine that has just looked at it.
func lately(at *atomic.Int64, now time.Time, span time.Duration) bool {
	return now.Sub(time.Unix(0, at.Load())).Abs() <= span
}

// may reports whether one more packet may be opened. Beyond that WireGuard gets them as they
// are: it has a defence of its own against floods.
func (c *crossing) may(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.second) >= time.Second || now.Before(c.second) {
		c.second, c.n = now, 0
	}
	c.n++
	return c.n <= limit.TunnelCrossing
}

// crosses reports whether a packet is the handshake of a peer that has to give way to ours: to
// one that waits, which is sent again then, or to one that was answered a moment ago. Anybody who
// knows the keys can make a packet that names a peer: WireGuard would drop it, and so do we.
func (b *Bind) crosses(p []byte) bool {
	if !isInitiation(p) {
		return false
	}
	now := time.Now()
	if b.givesWay(p, now) {
		b.socket.counts.Crossed.Add(1)
		return true
	}
	b.crossing.came.Store(now.UnixNano())
	return false
}

func (b *Bind) givesWay(p []byte, now time.Time) bool {
	if b.crossing.idle(now) || !b.crossing.may(now) {
		return false
	}
	k, ok := b.crossing.sender(p)
	own := b.public.Load()
	if !ok || own == nil {
		return false
	}
	e := b.peers.get(k)
	if e == nil {
		return false
	}
	switch h := e.newest.Load(); {
	case h == nil || h.bind != b:
		return false
	case h.held.Load():
		h.rival.Store(binary.LittleEndian.Uint32(p[4:]))
		return false
	case h.done(now):
		return true
	case bytes.Compare(own[:], k[:]) > 0 && h.waits(now) && !e.way.Load().IsZero():
		b.carry([][]byte{h.packet}, e)
		return true
	}
	return false
}

// forbids reports whether no handshake of ours may be sent after an answer, which may be nil.
//
// The peer does not use the session of our answer, and does use another one: they are of
// different secrets, and it tries again before long. Were a handshake of ours done first,
// WireGuard would keep what comes of it and the session of the answer, and forget the one by which
// packets are under way. And a moment after an answer there is none but one that WireGuard began
// while it made the answer: of the two the peer could use one alone.
func (a *answer) forbids(b *Bind, now time.Time) bool {
	if a == nil || a.bind != b {
		return false
	}
	past := now.Sub(a.at)
	return past <= limit.TunnelCrossed || a.old.Load() && past <= limit.TunnelGives
}

// newHandshake notes one that is sent after another, which may be none.
func newHandshake(b *Bind, packet []byte, was *handshake) *handshake {
	h := &handshake{bind: b, packet: bytes.Clone(packet), at: time.Now()}
	h.first = h.at
	if was != nil && was.bind == b && isInitiation(packet) && isInitiation(was.packet) && was.answered.Load() == 0 && h.at.Sub(was.at) < limit.TunnelFirst {
		h.first = was.first
	}
	return h
}

// waits reports whether it is the beginning of a handshake that was not answered yet, and may
// go first. After a while that ends, for a third of the time: the other end may drop ours for
// good, as it does when this machine's clock was put back, and answers those of its own alone.
func (h *handshake) waits(now time.Time) bool {
	return isInitiation(h.packet) && h.answered.Load() == 0 && now.Sub(h.at) <= limit.TunnelAgain &&
		now.Sub(h.first)%(limit.TunnelFirst+limit.TunnelAgain) <= limit.TunnelFirst
}

// done reports whether an answer to what we have begun came a moment ago. What the peer has begun
// was under way then, and it knows no more of it. WireGuard would make both at once, and mix them up:
// what comes by the session goes nowhere until it is replaced, 15 s later. A peer that has forgotten
// the session within the moment looks the same, and tries again after 5 s.
func (h *handshake) done(now time.Time) bool {
	took := h.answered.Load()
	return took > 0 && isInitiation(h.packet) && now.Sub(h.at)-time.Duration(took) <= limit.TunnelCrossed
}

// answer notes that a packet answers what we have begun with a peer: whether it is a good one,
// WireGuard knows alone. Who is on the way and knows no key makes none that looks like one: were
// it taken for one, the two ends would drop each other's handshakes for as long as he likes.
// A cookie is no session: what the peer begins after it is all there is.
func (h *handshake) answer(peer member.Key, p []byte) {
	own := binary.LittleEndian.Uint32(h.packet[4:])
	switch {
	case !isInitiation(h.packet):
	case p[0] == typeResponse && binary.LittleEndian.Uint32(p[8:]) == own && h.answered.Load() <= 0 && h.bind.isFor(p):
		h.answered.Store(int64(time.Since(h.at)) | 1)
	case p[0] == typeCookie && binary.LittleEndian.Uint32(p[4:]) == own && h.refusal(peer, p):
		h.answered.CompareAndSwap(0, refused)
	}
}

// refusal reports whether a cookie is of the peer, and for this handshake (whitepaper, section 5.4.7).
func (h *handshake) refusal(peer member.Key, p []byte) bool {
	key := blake2s.Sum256(append([]byte("cookie--"), peer[:]...))
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return false
	}
	_, err = aead.Open(nil, p[8:32], p[32:sizeCookie], h.packet[sizeInitiation-32:sizeInitiation-16])
	return err == nil
}

// What a handshake of WireGuard begins with (whitepaper, section 5.4).
const (
	construction = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
	identifier   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
)

// sender is the public key that a handshake for us names.
func (c *crossing) sender(p []byte) (k member.Key, ok bool) {
	private := c.private.Load()
	if private == nil || len(p) != sizeInitiation {
		return k, false
	}
	ephemeral, static := p[8:40], p[40:88]
	other, err := ecdh.X25519().NewPublicKey(ephemeral)
	if err != nil {
		return k, false
	}
	shared, err := private.ECDH(other)
	if err != nil {
		return k, false
	}
	chain := blake2s.Sum256([]byte(construction))
	sum := func(h [32]byte, more []byte) [32]byte { return blake2s.Sum256(append(h[:], more...)) }
	transcript := sum(sum(sum(chain, []byte(identifier)), private.PublicKey().Bytes()), ephemeral)
	first, err := hkdf.Key(hashed, ephemeral, chain[:], "", 32)
	if err != nil {
		return k, false
	}
	second, err := hkdf.Key(hashed, shared, first, "", 64)
	if err != nil {
		return k, false
	}
	aead, err := chacha20poly1305.New(second[32:])
	if err != nil {
		return k, false
	}
	plain, err := aead.Open(nil, make([]byte, chacha20poly1305.NonceSize), static, transcript[:])
	if err != nil || len(plain) != len(k) {
		return k, false
	}
	return member.Key(plain), true
}

// hashed is BLAKE2s without a key.
func hashed() hash.Hash {
	h, _ := blake2s.New256(nil) // only a key may be wrong
	return h
}
