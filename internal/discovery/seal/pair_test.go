// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// TestPairPSK: of both ends alike, of each pair and each secret another, and as
// the specification says: RFC 5869 by hand.
func TestPairPSK(t *testing.T) {
	keys := func(first byte) seal.Keys {
		s, err := seal.NewSecret(bytes.NewReader(bytes.Repeat([]byte{first}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		return s.Keys()
	}
	k := keys(1)
	a, b, c := [32]byte{1}, [32]byte{2}, [32]byte{3}
	got := k.PairPSK(a, b)
	if got != k.PairPSK(b, a) {
		t.Error("the two ends of a pair have different keys")
	}
	if got == k.PairPSK(a, c) || got == keys(2).PairPSK(a, b) {
		t.Error("another pair, or another secret, has the same key")
	}
	sum := func(key []byte, text ...[]byte) []byte {
		h := hmac.New(sha256.New, key)
		for _, b := range text {
			h.Write(b)
		}
		return h.Sum(nil)
	}
	base := k.MeshPSK()
	prk := sum([]byte("tombolo mesh pair 1"), base[:])
	if want := sum(prk, a[:], b[:], []byte{1}); got != [32]byte(want) {
		t.Errorf("it is %x, want %x", got, want)
	}
}
