// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"

	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

func wireGuard(t *testing.T) WireGuardPrivate {
	t.Helper()
	raw := [size]byte{}
	rand.Read(raw[:])
	w, err := NewWireGuardPrivate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestEdwardsOf: the point of Ed25519 that stands for a key of X25519 is that of the
// same scalar, and its map to u leads back.
func TestEdwardsOf(t *testing.T) {
	odd := 0
	for range 64 {
		w := wireGuard(t)
		public, err := edwardsOf(w.Public())
		if err != nil {
			t.Fatal(err)
		}
		a, err := edwards25519.NewScalar().SetBytesWithClamping(w.Get().scalar[:])
		if err != nil {
			t.Fatal(err)
		}
		point := new(edwards25519.Point).ScalarBaseMult(a)
		if !bytes.Equal(point.BytesMontgomery(), w.Get().public[:]) {
			t.Fatal("the scalar is not that of the public key")
		}
		want := point.Bytes()
		if want[31]&0x80 != 0 {
			odd++
			want[31] &= 0x7f
		}
		if !bytes.Equal(public, want) {
			t.Fatalf("%x stands for %x, not %x", w.Public(), want, public)
		}
	}
	if odd == 0 || odd == 64 {
		t.Errorf("%d of 64 had an odd x: one of the two cases was never seen", odd)
	}
}

// TestWireGuardProof: it is good for the cluster, the member and the key alone that it
// was made for, and is a signature of Ed25519.
func TestWireGuardProof(t *testing.T) {
	k, other := keysOf(t), keysOf(t)
	me, you := MemberID{1}, MemberID{2}
	for range 16 {
		w, w2 := wireGuard(t), wireGuard(t)
		proof, err := k.ProveWireGuard(rand.Reader, w, me)
		if err != nil || len(proof) != ed25519.SignatureSize {
			t.Fatalf("%d bytes, %v", len(proof), err)
		}
		if again, _ := k.ProveWireGuard(rand.Reader, w, me); bytes.Equal(again, proof) {
			t.Fatal("two proofs are one: what is random in them is not")
		}
		if !VerifyWireGuard(k.Cluster(), me, w.Public(), proof) {
			t.Fatal("a good proof is refused")
		}
		for name, ok := range map[string]bool{
			"another cluster": VerifyWireGuard(other.Cluster(), me, w.Public(), proof),
			"another member":  VerifyWireGuard(k.Cluster(), you, w.Public(), proof),
			"another key":     VerifyWireGuard(k.Cluster(), me, w2.Public(), proof),
			"none":            VerifyWireGuard(k.Cluster(), me, w.Public(), nil),
			"a short one":     VerifyWireGuard(k.Cluster(), me, w.Public(), proof[:63]),
		} {
			if ok {
				t.Errorf("%s: it is taken", name)
			}
		}
		for i := range 512 {
			bad := bytes.Clone(proof)
			bad[i/8] ^= 1 << (i % 8)
			if VerifyWireGuard(k.Cluster(), me, w.Public(), bad) {
				t.Fatalf("it is taken with bit %d the other way", i)
			}
		}
	}
}

// TestKeysThatProveNothing: for keys of small order anybody could sign.
func TestKeysThatProveNothing(t *testing.T) {
	minusOne := member.Key(new(field.Element).Negate(new(field.Element).One()).Bytes())
	for name, key := range map[string]member.Key{"zero": {}, "one": {1}, "minus one": minusOne} {
		if _, err := edwardsOf(key); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	w := wireGuard(t).Public()
	w[31] |= 0x80
	if _, err := edwardsOf(w); err == nil {
		t.Error("a second spelling of a key is taken")
	}
}

// TestOpenVerifiesTheProof: an entry with a wrong one is refused, one without is taken.
func TestOpenVerifiesTheProof(t *testing.T) {
	k, w := keysOf(t), wireGuard(t)
	m, err := NewMemberKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := k.ProveWireGuard(rand.Reader, w, m.ID())
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := k.ProveWireGuard(rand.Reader, w, MemberID{7})
	if err != nil {
		t.Fatal(err)
	}
	key := w.Public()
	for name, c := range map[string]struct {
		key, proof []byte
		ok         bool
	}{
		"good":           {key[:], good, true},
		"none":           {key[:], nil, true},
		"of another":     {key[:], stolen, false},
		"short":          {key[:], good[:5], false},
		"without a key":  {nil, good, false},
		"a key too long": {append(key[:], 0), good, false},
	} {
		e, err := k.Seal(rand.Reader, m, Content{Version: 1, TTL: limit.DiscoveryTTL, Member: &discovery.Member{Node: "a", WireguardKey: c.key, WireguardProof: c.proof}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := k.Open(e); (err == nil) != c.ok || err != nil && !fault.Has(err, fault.CodeEntryInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseWireGuardPrivate(t *testing.T) {
	for _, text := range []string{"", "x", strings.Repeat("A", 43) + "=", strings.Repeat("A", 44)} {
		_, err := ParseWireGuardPrivate(text)
		if !fault.Has(err, fault.CodeSecret) || len(text) > 1 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// RFC 7748, section 6.1
	w, err := ParseWireGuardPrivate("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x85\x20\xf0\x09\x89\x30\xa7\x54"; string(w.Get().public[:8]) != want {
		t.Errorf("its public key is %x", w.Public())
	}
}

func keysOf(t *testing.T) Keys {
	t.Helper()
	s, err := NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s.Keys()
}
