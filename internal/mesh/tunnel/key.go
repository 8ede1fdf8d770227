// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/subtle"
	"fmt"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// Secret is a private or preshared key. It prints as nothing. The zero value is no key.
type Secret struct{ secret.Value[[32]byte] }

// NewSecret keeps a key.
func NewSecret(b [32]byte) Secret { return Secret{secret.Hide(&b)} }

// Equal compares in constant time.
func (s Secret) Equal(t Secret) bool {
	a, b := s.bytes(), t.bytes()
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Public is the public key of a private one.
func (s Secret) Public() (member.Key, error) {
	b := s.bytes()
	k, err := ecdh.X25519().NewPrivateKey(b[:])
	if err != nil {
		return member.Key{}, fmt.Errorf("private key: %w", err)
	}
	return member.Key(k.PublicKey().Bytes()), nil
}

// Bytes are the key itself, for what derives others from it. They must not be printed.
func (s Secret) Bytes() [32]byte { return s.bytes() }

func (s Secret) bytes() (b [32]byte) {
	if !s.IsZero() {
		b = *s.Get()
	}
	return b
}

// Signer is the private key of the certificate by which others know a node that runs IPsec. It prints as nothing. The
// zero value is no key.
type Signer struct {
	secret.Value[ed25519.PrivateKey]
}

// NewSigner keeps a key.
func NewSigner(k ed25519.PrivateKey) Signer { return Signer{secret.Hide(&k)} }
