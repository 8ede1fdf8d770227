// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/hmac"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/blake2s"

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
	sizeTransport  = 32 // without content: a keepalive
)

// sessions map the receiver index of a WireGuard packet to the peer of that session, so that
// received traffic counts for its peer before the packet is decrypted. The indexes are read from
// the handshakes that this node sends.
type sessions struct {
	mac atomic.Pointer[[blake2s.Size]byte] // key of the first MAC of handshakes for this node
	key atomic.Pointer[member.Key]         // this node's

	mu    sync.RWMutex
	owner map[uint32]*endpoint
	given map[*endpoint][]given
}

// given is a session index of this node, and when it was sent to the peer.
type given struct {
	index uint32
	at    time.Time
}

func (s *sessions) init() {
	s.owner, s.given = map[uint32]*endpoint{}, map[*endpoint][]given{}
}

// gave learns the index of a handshake that is sent.
func (s *sessions) gave(peer *endpoint, packet []byte) {
	index := binary.LittleEndian.Uint32(packet[4:])
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.given[peer]
	for len(all) > 0 && (now.Sub(all[0].at) > tunnelIndex || len(all) >= tunnelIndexes) {
		if s.owner[all[0].index] == peer {
			delete(s.owner, all[0].index)
		}
		all = all[1:]
	}
	s.given[peer] = append(all, given{index, now})
	s.owner[index] = peer
}

// forget drops the indexes of a removed peer.
func (s *sessions) forget(peer *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.given[peer] {
		if s.owner[g.index] == peer {
			delete(s.owner, g.index)
		}
	}
	delete(s.given, peer)
}

// lookup is one look at the sessions for a batch of packets.
type lookup struct {
	s     *sessions
	known bool
	index uint32
	peer  *endpoint
}

func (s *sessions) look() lookup {
	s.mu.RLock()
	return lookup{s: s}
}

func (l *lookup) unlock() { l.s.mu.RUnlock() }

// find returns the peer of a packet's session, nil if it is not known: sessions with peers that
// speak no probes have none. It reports false for what is no message of WireGuard, or a handshake
// for another key.
func (l *lookup) find(p []byte) (*endpoint, bool) {
	at := 4
	switch {
	case p[0] == typeInitiation && len(p) == sizeInitiation:
		return nil, l.s.isFor(p)
	case p[0] == typeResponse && len(p) == sizeResponse && l.s.isFor(p):
		at = 8
	case p[0] == typeCookie && len(p) == sizeCookie, p[0] == typeTransport && len(p) >= sizeTransport:
	default:
		return nil, false
	}
	index := binary.LittleEndian.Uint32(p[at:])
	if !l.known || index != l.index {
		l.known, l.index, l.peer = true, index, l.s.owner[index]
	}
	return l.peer, true
}

// setKey sets the public key that handshakes for this node name.
func (s *sessions) setKey(public member.Key) {
	mac := blake2s.Sum256(append([]byte("mac1----"), public[:]...))
	s.mac.Store(&mac)
	s.key.Store(&public)
}

// own is this node's public key; zero before it is set.
func (s *sessions) own() (k member.Key) {
	if p := s.key.Load(); p != nil {
		k = *p
	}
	return k
}

// isFor reports whether the first MAC of a handshake is made with this node's public key. Whoever
// does not know the key cannot fill WireGuard's queue of handshakes with junk: a full queue makes
// honest peers prove their address first.
func (s *sessions) isFor(p []byte) bool {
	key := s.mac.Load()
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
