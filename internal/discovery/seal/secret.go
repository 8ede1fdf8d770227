// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// size is the length of secrets, keys, seeds, ids and nonces of proofs alike.
const size = 32

// Secret is what the members of a cluster have in common. The zero value is none.
type Secret struct{ secret.Value[[size]byte] }

// ParseSecret reads standard base64 with padding of 32 bytes; white space around
// it is that of a file. Its error shows nothing of the text.
func ParseSecret(text string) (Secret, error) {
	key, err := parse32(text)
	if err != nil {
		return Secret{}, fault.New(fault.CodeSecret, "the cluster's secret cannot be read").Because(err).
			Hint("write it with 'tombolo discovery secret create', or copy the whole line again")
	}
	return Secret{secret.Hide(key)}, nil
}

// NewSecret draws a secret.
func NewSecret(rand io.Reader) (Secret, error) {
	key, err := draw(rand)
	if err != nil {
		return Secret{}, err
	}
	return Secret{secret.Hide(key)}, nil
}

// Encode is the text that ParseSecret reads: write it to a file of mode 0600 only.
func (s Secret) Encode() string { return base64.StdEncoding.EncodeToString(s.Get()[:]) }

// Equal compares in a time that does not depend on the bytes.
func (s Secret) Equal(other Secret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() && other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.Get()[:], other.Get()[:]) == 1
}

// derive is HKDF-SHA256 (RFC 5869) for one purpose.
func (s Secret) derive(info string) []byte {
	out, err := hkdf.Key(sha256.New, s.Get()[:], []byte("tombolo cluster secret 1"), info, size)
	if err != nil {
		panic("seal: " + err.Error()) // for lengths alone, and this one is constant
	}
	return out
}

// parse32 reads 32 bytes in their one spelling.
func parse32(text string) (*[size]byte, error) {
	text = strings.TrimSpace(text)
	if want := base64.StdEncoding.EncodedLen(size); len(text) != want {
		return nil, fmt.Errorf("it has %d characters, not the %d of %d bytes in base64", len(text), want, size)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != size { // the decoder passes over line ends
		return nil, fmt.Errorf("it is not base64 of %d bytes", size)
	}
	return (*[size]byte)(raw), nil
}

func draw(rand io.Reader) (*[size]byte, error) {
	var key [size]byte
	if _, err := io.ReadFull(rand, key[:]); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return &key, nil
}
