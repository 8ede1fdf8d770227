// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha512"
	"errors"
	"io"
	"slices"

	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// WireGuardPrivate is a private key of WireGuard. With it a member proves that the
// public key which it names is its own. The zero value is none.
type WireGuardPrivate struct{ secret.Value[wireGuardPrivate] }

type wireGuardPrivate struct {
	scalar [size]byte // clamped
	public member.Key
}

// ParseWireGuardPrivate reads the form of WireGuard's tools, base64 of 32 bytes. Its
// error shows nothing of the text.
func ParseWireGuardPrivate(text string) (WireGuardPrivate, error) {
	refuse := func(err error) (WireGuardPrivate, error) {
		return WireGuardPrivate{}, fault.New(fault.CodeSecret, "the private key of WireGuard cannot be read").Because(err).
			Hint("write it anew: wg genkey")
	}
	raw, err := parse32(text)
	if err != nil {
		return refuse(err)
	}
	if *raw == ([size]byte{}) {
		return refuse(errors.New("it is zero"))
	}
	return NewWireGuardPrivate(*raw)
}

// NewWireGuardPrivate takes the bytes of a key.
func NewWireGuardPrivate(raw [size]byte) (WireGuardPrivate, error) {
	private, err := ecdh.X25519().NewPrivateKey(raw[:])
	if err != nil {
		return WireGuardPrivate{}, fault.New(fault.CodeSecret, "the private key of WireGuard cannot be used").Because(err)
	}
	raw[0] &= 248
	raw[31] = raw[31]&127 | 64
	return WireGuardPrivate{secret.Hide(&wireGuardPrivate{raw, member.Key(private.PublicKey().Bytes())})}, nil
}

// Public is the key that others know.
func (w WireGuardPrivate) Public() member.Key { return w.Get().public }

// ProveWireGuard is the word of a WireGuard key that it belongs to a member. Random is
// 64 bytes from rand.
func (k Keys) ProveWireGuard(rand io.Reader, private WireGuardPrivate, member MemberID) ([]byte, error) {
	var z [64]byte
	if _, err := io.ReadFull(rand, z[:]); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	key := private.Get()
	return signX25519(&key.scalar, wireGuardProof(k.Cluster(), member, key.public), z), nil
}

// VerifyWireGuard reports whether a key has said that it belongs to a member.
func VerifyWireGuard(cluster ClusterID, member MemberID, key member.Key, proof []byte) bool {
	public, err := edwardsOf(key)
	return err == nil && signed(public, wireGuardProof(cluster, member, key), proof)
}

func wireGuardProof(cluster ClusterID, member MemberID, key member.Key) []byte {
	return message("tombolo discovery wireguard 1", cluster[:], member[:], key[:])
}

// edwardsOf is the Ed25519 key with the u of an X25519 key, and of the two the one
// whose x is even: y = (u-1)/(u+1) (XEdDSA, convert_mont).
func edwardsOf(key member.Key) (ed25519.PublicKey, error) {
	if key[size-1]&0x80 != 0 || !canonical(key) {
		return nil, errors.New("the key is not in its one spelling")
	}
	u, err := new(field.Element).SetBytes(key[:])
	if err != nil {
		return nil, err
	}
	one := new(field.Element).One()
	down := new(field.Element).Add(u, one)
	y := new(field.Element).Subtract(u, one)
	y.Multiply(y, down.Invert(down))
	public := y.Bytes()
	return public, checkPublic(public)
}

// signX25519 signs with an X25519 key as XEdDSA does (revision 1, section 2.3): what
// it gives is a signature of Ed25519 by edwardsOf the public key.
func signX25519(k *[size]byte, msg []byte, z [64]byte) []byte {
	// k is clamped and below 2^255; as a scalar it is reduced, which changes no point.
	a, err := edwards25519.NewScalar().SetBytesWithClamping(k[:])
	if err != nil {
		panic("seal: " + err.Error()) // for lengths alone
	}
	public := new(edwards25519.Point).ScalarBaseMult(a).Bytes()
	if public[size-1]&0x80 != 0 {
		a.Negate(a)
		public[size-1] &= 0x7f
	}
	prefix := slices.Repeat([]byte{0xff}, size) // 2^256 - 2, little endian: no point begins so
	prefix[0] = 0xfe
	r := scalarOf(prefix, a.Bytes(), msg, z[:])
	point := new(edwards25519.Point).ScalarBaseMult(r).Bytes()
	s := edwards25519.NewScalar().MultiplyAdd(scalarOf(point, public, msg), a, r)
	return append(point, s.Bytes()...)
}

func scalarOf(parts ...[]byte) *edwards25519.Scalar {
	h := sha512.New()
	for _, p := range parts {
		h.Write(p)
	}
	s, err := edwards25519.NewScalar().SetUniformBytes(h.Sum(nil))
	if err != nil {
		panic("seal: " + err.Error()) // for lengths alone
	}
	return s
}
