// SPDX-License-Identifier: Apache-2.0

package member

import (
	"encoding/base64"
	"fmt"
)

// Pin is by what others know the certificate of a node that runs IPsec: the SHA-256 of its public key
// (SubjectPublicKeyInfo). The zero value is no pin.
type Pin [32]byte

// ParsePin parses what String writes. A WireGuard public key is longer by its padding, and is none.
func ParsePin(s string) (Pin, error) {
	b, err := base64.RawStdEncoding.Strict().DecodeString(s)
	switch {
	case err != nil || len(b) != len(Pin{}) || len(s) != base64.RawStdEncoding.EncodedLen(len(b)):
		return Pin{}, fmt.Errorf("%.64q is not the pin of a node: 43 characters of base64 are expected", s)
	case Pin(b) == Pin{}:
		return Pin{}, fmt.Errorf("%q is the zero pin, which nobody has", s)
	}
	return Pin(b), nil
}

// String is the whole pin in base64 without padding; empty for no pin.
func (p Pin) String() string {
	if p.IsZero() {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(p[:])
}

// IsZero reports whether there is no pin.
func (p Pin) IsZero() bool { return p == Pin{} }

// MarshalText writes what UnmarshalText reads.
func (p Pin) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePin; an empty text is no pin.
func (p *Pin) UnmarshalText(text []byte) (err error) {
	*p = Pin{}
	if len(text) > 0 {
		*p, err = ParsePin(string(text))
	}
	return err
}
