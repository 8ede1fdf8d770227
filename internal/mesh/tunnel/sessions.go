// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/hmac"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/blake2s"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// The messages of WireGuard, by their first byte (whitepaper, section 5.4).
const (
	typeInitiation = 1
	typeResponse   = 2
	typeCookie     = 3
	typeTransport  = 4

	sizeInitiation = 148
	sizeResponse   = 92
	sizeCookie     = 64
	sizeTransport  = 32 // of one without content: a keepalive
)

// sessions know for which bind a packet of WireGuard is, and of which peer, by the
// indexes that the binds gave away in what they sent.
type sessions struct {
	mu    sync.RWMutex
	owner map[uint32]owner
	binds []*Bind
}

// owner is who gave an index away.
type owner struct {
	bind *Bind
	peer *endpoint // nil if it went to an address that WireGuard heard of
}

func (s *sessions) init() { s.owner = map[uint32]owner{} }

func (s *sessions) add(b *Bind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binds = append(s.binds, b)
}

func (s *sessions) remove(b *Bind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.binds {
		if other == b {
			s.binds = append(s.binds[:i:i], s.binds[i+1:]...)
			break
		}
	}
	for _, given := range b.indexes {
		for _, g := range given {
			delete(s.owner, g.index)
		}
	}
	b.indexes, b.places = map[holder][]given{}, 0
}

// holder is to whom indexes were given: a peer, or, of those without probes, the place where
// WireGuard heard of one. Each has its own: nobody's handshakes end another one's session.
type holder struct {
	peer *endpoint
	at   netip.AddrPort
}

// given is an index of a session, and when it was given away.
type given struct {
	index uint32
	at    time.Time
}

// gave learns the index of a handshake that is sent.
func (s *sessions) gave(b *Bind, to holder, packet []byte) {
	index := binary.LittleEndian.Uint32(packet[4:])
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all, known := b.indexes[to]
	if !known && to.peer == nil {
		if b.places >= limit.TunnelPlaces {
			s.sweep(b, now)
		}
		if b.places >= limit.TunnelPlaces { // who is there already stays
			return
		}
		b.places++
	}
	for len(all) > 0 && (now.Sub(all[0].at) > limit.TunnelIndex || len(all) >= limit.TunnelIndexes) {
		if s.owner[all[0].index].bind == b {
			delete(s.owner, all[0].index)
		}
		all = all[1:]
	}
	b.indexes[to] = append(all, given{index, now})
	s.owner[index] = owner{b, to.peer}
}

// sweep drops the places of which no session can live any more, once in a second at most.
func (s *sessions) sweep(b *Bind, now time.Time) {
	if now.Sub(b.swept) < time.Second {
		return
	}
	b.swept = now
	for h, all := range b.indexes {
		if h.peer != nil || now.Sub(all[len(all)-1].at) <= limit.TunnelIndex {
			continue
		}
		for _, g := range all {
			if s.owner[g.index].bind == b {
				delete(s.owner, g.index)
			}
		}
		delete(b.indexes, h)
		b.places--
	}
}

// forget drops the indexes of a peer that is gone.
func (s *sessions) forget(b *Bind, peer *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range b.indexes[holder{peer: peer}] {
		if s.owner[g.index].peer == peer {
			delete(s.owner, g.index)
		}
	}
	delete(b.indexes, holder{peer: peer})
}

// lookup is one look at the sessions for a batch of packets.
type lookup struct {
	s     *sessions
	known bool
	index uint32
	owner owner
}

func (s *sessions) look() lookup {
	s.mu.RLock()
	return lookup{s: s}
}

func (l *lookup) done() { l.s.mu.RUnlock() }

// find says for whom a packet is; no bind if for none.
func (l *lookup) find(p []byte) (*Bind, *endpoint) {
	at := 4
	switch {
	case p[0] == typeInitiation && len(p) == sizeInitiation:
		return l.addressed(p), nil
	case p[0] == typeResponse && len(p) == sizeResponse:
		at = 8
	case p[0] == typeCookie && len(p) == sizeCookie, p[0] == typeTransport && len(p) >= sizeTransport:
	default:
		return nil, nil
	}
	index := binary.LittleEndian.Uint32(p[at:])
	if !l.known || index != l.index {
		l.known, l.index, l.owner = true, index, l.s.owner[index]
	}
	return l.owner.bind, l.owner.peer
}

// addressed finds the bind whose public key the first MAC of a handshake is made with. Who
// does not know the key fills no device's queue of handshakes: a full one has honest
// peers prove their address first.
func (l *lookup) addressed(p []byte) *Bind {
	for _, b := range l.s.binds {
		if b.isFor(p) {
			return b
		}
	}
	return nil
}

// macKey is the key of the first MAC of what is sent to a public key.
func macKey(public member.Key) [blake2s.Size]byte {
	return blake2s.Sum256(append([]byte("mac1----"), public[:]...))
}

// isFor reports whether a handshake's first MAC is made with this bind's public key.
func (b *Bind) isFor(p []byte) bool {
	key := b.mac.Load()
	if key == nil {
		return false
	}
	mac, err := blake2s.New128(key[:])
	if err != nil {
		return false
	}
	mac.Write(p[:len(p)-32])
	return hmac.Equal(mac.Sum(nil), p[len(p)-32:len(p)-16])
}
