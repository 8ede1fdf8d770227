// SPDX-License-Identifier: Apache-2.0

// Package member has the values that say what a member of a mesh is. They are parsed
// once, where they come in, and are the same from discovery to the tunnel. It does not
// decide which of two members is right, and keeps no secret.
package member

import (
	"encoding/base64"
	"fmt"
)

// Key is a WireGuard public key. The zero value is no key.
type Key [32]byte

// ParseKey parses a key as WireGuard's tools write it: base64 with padding.
func ParseKey(s string) (Key, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	switch {
	case err != nil || len(b) != len(Key{}) || len(s) != base64.StdEncoding.EncodedLen(len(b)):
		return Key{}, fmt.Errorf("%.64q is not a WireGuard public key: 44 characters of base64 are expected", s)
	case Key(b) == Key{}:
		return Key{}, fmt.Errorf("%q is the zero key, which nobody has", s)
	}
	return Key(b), nil
}

// String is the whole key in base64, as wg(8) shows it; empty for no key.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k[:])
}

// Short is the key for logs, shortened as in WireGuard.
func (k Key) Short() string {
	s := base64.StdEncoding.EncodeToString(k[:])
	return s[:4] + "…" + s[len(s)-5:len(s)-1]
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText writes what UnmarshalText reads.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is ParseKey; an empty text is no key.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k = Key{}
	if len(text) > 0 {
		*k, err = ParseKey(string(text))
	}
	return err
}
