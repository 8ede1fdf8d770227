// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdh"
	"crypto/rand"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
)

func newTestPair(t *testing.T, n byte) *disco.Pair {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p, err := disco.NewPair(k, [32]byte(k.PublicKey().Bytes()), [32]byte{n})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
