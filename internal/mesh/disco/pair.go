// SPDX-License-Identifier: Apache-2.0

package disco

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

// Hint leads a receiver to the sender of a probe without trying keys.
type Hint [8]byte

// Overhead is how much longer a sealed probe is than its payload, in bytes.
const Overhead = header + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

// header is the magic and the hint: what is authenticated and not sealed.
const header = 4 + 8

// Pair seals and opens the probes between this node and one other, under one
// preshared key. It shows nothing of its keys when printed. Several goroutines
// may use it.
type Pair struct {
	// Hint is that of what the other one sends: packets that bear it are for Open.
	Hint Hint
	to   Hint
	seal func() cipher.AEAD // functions, so that no key is printed
	open func() cipher.AEAD
}

// NewPair derives the keys of a pair. A peer's public key of low order, of which
// anybody knows the shared secret, is refused.
func NewPair(self *ecdh.PrivateKey, peer, psk [32]byte) (*Pair, error) {
	other, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	shared, err := self.ECDH(other) // it refuses the all-zero result, RFC 7748 section 6.1
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	own := [32]byte(self.PublicKey().Bytes())
	secret := append(shared, psk[:]...)
	seal, err := aead(secret, own, peer)
	if err != nil {
		return nil, err
	}
	open, err := aead(secret, peer, own)
	if err != nil {
		return nil, err
	}
	return &Pair{
		Hint: hint(own, peer), to: hint(peer, own),
		seal: func() cipher.AEAD { return seal }, open: func() cipher.AEAD { return open },
	}, nil
}

// NewTrialPair derives the keys of a pair for trials: no probe of another socket is one.
func NewTrialPair(self *ecdh.PrivateKey, peer [32]byte) (*Pair, error) {
	return NewPair(self, peer, sha256.Sum256([]byte("tombolo mesh trial 1")))
}

func aead(secret []byte, sender, receiver [32]byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, []byte("tombolo mesh probe 1"), string(sender[:])+string(receiver[:]),
		chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	return chacha20poly1305.NewX(key)
}

func hint(receiver, sender [32]byte) Hint {
	text := append([]byte("tombolo mesh hint 1\x00"), receiver[:]...)
	sum := sha256.Sum256(append(text, sender[:]...))
	return Hint(sum[:8])
}

// Seal appends the sealed message to b. size is that of the UDP payload that it
// shall fill at least, in bytes.
func (p *Pair) Seal(b []byte, rand io.Reader, m Message, size int) ([]byte, error) {
	began := len(b)
	b = binary.BigEndian.AppendUint32(b, magic)
	b = append(b, p.to[:]...)
	b = append(b, make([]byte, chacha20poly1305.NonceSizeX)...)
	nonce := b[began+header:]
	if _, err := io.ReadFull(rand, nonce); err != nil {
		return b[:began], fmt.Errorf("no random bytes for a nonce: %w", err)
	}
	return p.seal().Seal(b, nonce, m.append(nil, size-Overhead), b[began:began+header]), nil
}

// HintOf is the hint of a probe; false for what is too short to be one.
func HintOf(b []byte) (Hint, bool) {
	if len(b) <= Overhead || binary.BigEndian.Uint32(b) != magic {
		return Hint{}, false
	}
	return Hint(b[4:header]), true
}

// Open opens a probe of the other one. An unknown type gives no message and no error.
func (p *Pair) Open(b []byte) (Message, error) {
	h, ok := HintOf(b)
	if !ok || h != p.Hint {
		return Message{}, fmt.Errorf("not a probe of this peer")
	}
	nonce := b[header : header+chacha20poly1305.NonceSizeX]
	payload, err := p.open().Open(nil, nonce, b[header+len(nonce):], b[:header])
	if err != nil {
		return Message{}, fmt.Errorf("the probe was not sealed by this peer for us: %w", err)
	}
	return parse(payload)
}
