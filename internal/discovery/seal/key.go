// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/secret"
)

// Keys are what comes of a cluster's secret. They are safe for use by many.
type Keys struct{ secret.Value[keys] }

type keys struct {
	cluster  ClusterID
	verifier ed25519.PrivateKey
	data     cipher.AEAD
	cache    cipher.AEAD
	mesh     [size]byte
}

// Keys derives them: do it once for each secret.
func (s Secret) Keys() Keys {
	k := &keys{verifier: ed25519.NewKeyFromSeed(s.derive("discovery verifier")), mesh: [size]byte(s.derive("mesh psk"))}
	k.data = gcm(s.derive("discovery data"))
	k.cache = gcm(s.derive("discovery cache"))
	k.cluster = ClusterOf(public(k.verifier))
	return Keys{secret.Hide(k)}
}

// Cluster is the cluster's native id.
func (k Keys) Cluster() ClusterID { return k.Get().cluster }

// Verifier is the public key of which Cluster is the hash.
func (k Keys) Verifier() ed25519.PublicKey { return public(k.Get().verifier) }

// MeshPSK is the base of WireGuard's preshared keys: a secret.
func (k Keys) MeshPSK() [size]byte { return k.Get().mesh }

// Admit is the verifier's signature that lets a member's key into the cluster.
func (k Keys) Admit(member ed25519.PublicKey) []byte {
	return ed25519.Sign(k.Get().verifier, admission(k.Get().cluster, member))
}

func admission(cluster ClusterID, member ed25519.PublicKey) []byte {
	return message("tombolo discovery admission 1", cluster[:], member)
}

// MemberKey is a member's own key: with it entries are signed. The zero value is none.
type MemberKey struct{ secret.Value[memberKey] }

type memberKey struct {
	private ed25519.PrivateKey
	id      MemberID
}

// NewMemberKey draws a key.
func NewMemberKey(rand io.Reader) (MemberKey, error) {
	seed, err := draw(rand)
	if err != nil {
		return MemberKey{}, err
	}
	return memberKeyOf(seed), nil
}

// ParseMemberKey reads the seed of a key as Encode writes it: base64, as a secret.
func ParseMemberKey(text string) (MemberKey, error) {
	seed, err := parse32(text)
	if err != nil {
		return MemberKey{}, fault.New(fault.CodeSecret, "the member's key cannot be read").Because(err).
			Hint("remove the file: the member draws a new key, and its old entry ends with its lease")
	}
	return memberKeyOf(seed), nil
}

func memberKeyOf(seed *[size]byte) MemberKey {
	private := ed25519.NewKeyFromSeed(seed[:])
	return MemberKey{secret.Hide(&memberKey{private, MemberOf(public(private))})}
}

// Encode is the text that ParseMemberKey reads: write it to a file of mode 0600 only.
func (m MemberKey) Encode() string { return base64.StdEncoding.EncodeToString(m.Get().private.Seed()) }

// ID is the member's.
func (m MemberKey) ID() MemberID { return m.Get().id }

// Public is the key that others check signatures with.
func (m MemberKey) Public() ed25519.PublicKey { return public(m.Get().private) }

func public(k ed25519.PrivateKey) ed25519.PublicKey {
	return slices.Clone(ed25519.PublicKey(k[ed25519.SeedSize:]))
}

func gcm(key []byte) cipher.AEAD {
	aead, err := cipher.NewGCM(block(key))
	if err != nil {
		panic("seal: " + err.Error()) // for blocks that are not of 16 bytes
	}
	return aead
}

func block(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic("seal: " + err.Error()) // for lengths of keys alone, and ours are 32
	}
	return b
}

// checkPublic refuses what ed25519.Verify takes and should not be a name: keys
// whose order is small, for which anybody can sign, and second spellings of a
// key, which would be second names of one member. A key that is no point of the
// curve verifies nothing.
func checkPublic(key []byte) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("the key has %d bytes, not %d", len(key), ed25519.PublicKeySize)
	}
	y := [size]byte(key)
	y[size-1] &= 0x7f // without the sign of x
	if !canonical(y) {
		return errors.New("the key is not in its one spelling (RFC 8032 section 5.1.3)")
	}
	if slices.Contains(smallOrders(), hex.EncodeToString(y[:])) {
		return errors.New("the key is of small order: anybody could sign for it")
	}
	return nil
}

// canonical reports whether y, little endian, is below the field's prime 2^255-19.
func canonical(y [size]byte) bool {
	if y[size-1] != 0x7f || y[0] < 0xed {
		return true
	}
	return slices.ContainsFunc(y[1:size-1], func(b byte) bool { return b != 0xff })
}

// smallOrders are the y of the eight points whose order divides 8; each stands
// for both signs of x. They include the only y for which x is 0, whose sign has
// two spellings.
func smallOrders() []string {
	return []string{
		"0000000000000000000000000000000000000000000000000000000000000000", // order 4
		"0100000000000000000000000000000000000000000000000000000000000000", // 1
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // 2
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", // 8
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", // 8
	}
}

// signed reports whether signature is key's. Go refuses an S that is not below
// the order and an R that is not in its one spelling, so that nobody but the
// holder of the key can make a second signature of a first.
func signed(key ed25519.PublicKey, msg, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && len(signature) == ed25519.SignatureSize &&
		ed25519.Verify(key, msg, signature)
}
