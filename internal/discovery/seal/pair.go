// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
)

// PairPSK is WireGuard's preshared key of two members, by their public keys in
// any order: docs/reference/mesh-wire.md section 1.
func (k Keys) PairPSK(one, other [32]byte) (psk [size]byte) {
	if bytes.Compare(one[:], other[:]) > 0 {
		one, other = other, one
	}
	base := k.MeshPSK()
	out, err := hkdf.Key(sha256.New, base[:], []byte("tombolo mesh pair 1"), string(one[:])+string(other[:]), size)
	if err != nil {
		panic("seal: " + err.Error()) // for lengths that HKDF cannot give, and ours is 32
	}
	copy(psk[:], out)
	return psk
}
