// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/ecdh"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
)

// Key is a public key of WireGuard. It prints shortened, as WireGuard does it.
type Key [32]byte

func (k Key) String() string {
	s := k.Base64()
	return s[:4] + "…" + s[len(s)-5:len(s)-1]
}

// Base64 is the whole key, as wg(8) shows it.
func (k Key) Base64() string { return base64.StdEncoding.EncodeToString(k[:]) }

// ParseKey reads what Base64 writes.
func ParseKey(s string) (k Key, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return k, fmt.Errorf("public key: %w", err)
	}
	if len(b) != len(k) {
		return k, fmt.Errorf("public key: %d bytes, not %d", len(b), len(k))
	}
	return Key(b), nil
}

// Secret is a private or preshared key. It prints as nothing. The zero value is no key.
type Secret struct{ get func() [32]byte }

// NewSecret keeps a key.
func NewSecret(b [32]byte) Secret { return Secret{func() [32]byte { return b }} }

// IsZero reports whether there is no key.
func (s Secret) IsZero() bool { return s.get == nil }

// Equal compares in constant time.
func (s Secret) Equal(t Secret) bool {
	a, b := s.bytes(), t.bytes()
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Public is the public key of a private one.
func (s Secret) Public() (Key, error) {
	b := s.bytes()
	k, err := ecdh.X25519().NewPrivateKey(b[:])
	if err != nil {
		return Key{}, fmt.Errorf("private key: %w", err)
	}
	return Key(k.PublicKey().Bytes()), nil
}

func (s Secret) String() string { return "(secret)" }

// GoString is for %#v.
func (s Secret) GoString() string { return s.String() }

// Bytes are the key itself, for what derives others from it. They must not be printed.
func (s Secret) Bytes() [32]byte { return s.bytes() }

func (s Secret) bytes() (b [32]byte) {
	if s.get != nil {
		b = s.get()
	}
	return b
}
