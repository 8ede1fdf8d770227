// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// block fills plain up with zeroes and seals it as an endpoint with the
// secret of the vectors, whatever it is.
func block(t testing.TB, plain []byte) []byte {
	t.Helper()
	b, err := aes.NewCipher(secretBytes(readVectors(t).Secret))
	if err != nil {
		t.Fatal(err)
	}
	out := append(plain[:len(plain):len(plain)], make([]byte, -len(plain)&15)...)
	for i := 0; i < len(out); i += 16 {
		b.Encrypt(out[i:], out[i:])
	}
	return out
}

// FuzzSecret: a text that is taken has one spelling, and an error shows none of it.
func FuzzSecret(f *testing.F) {
	f.Add(readVectors(f).Secret)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := seal.ParseSecret(text)
		if m, other := seal.ParseMemberKey(text); (err == nil) != (other == nil) || err == nil && m.Encode() != s.Encode() {
			t.Errorf("a secret: %v, a key: %v", err, other)
		}
		if err != nil {
			if len(text) > 8 && strings.Contains(err.Error(), text) {
				t.Errorf("%v shows the text", err)
			}
			return
		}
		if s.Encode() != strings.TrimSpace(text) || s.IsZero() {
			t.Errorf("%q is written %q", text, s.Encode())
		}
	})
}

// FuzzIDs: an id that is taken has one spelling.
func FuzzIDs(f *testing.F) {
	v := readVectors(f)
	f.Add(v.Cluster)
	f.Add(v.MemberID)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := seal.ParseClusterID(text); err == nil && c.String() != text {
			t.Errorf("%q is written %v", text, c)
		}
		if m, err := seal.ParseMemberID(text); err == nil && m.String() != text {
			t.Errorf("%q is written %v", text, m)
		}
	})
}

// FuzzEntry: only what the member signed is taken, and a service takes whatever
// members open.
func FuzzEntry(f *testing.F) {
	v := readVectors(f)
	k := secretOf(f, v.Secret).Keys()
	known := []*discovery.Entry{}
	for _, b := range []unhex{v.Entry, v.Succeeds, v.Removal} {
		f.Add([]byte(b))
		known = append(known, read(f, b, new(discovery.Entry)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e discovery.Entry
		if proto.Unmarshal(data, &e) != nil {
			return
		}
		id, verified := seal.Verify(k.Cluster(), k.Verifier(), &e)
		from, succeeds := seal.VerifySuccession(k.Cluster(), &e)
		_, m, err := k.Open(&e)
		if verified != nil {
			if err == nil || m != nil {
				t.Errorf("opened %v, which is not to be taken: %v", m, verified)
			}
			return
		}
		if len(e.ProtoReflect().GetUnknown()) > limit.DiscoveryUnknown {
			t.Error("too much that is not known")
		}
		if (succeeds == nil) != (e.Succession != nil) || from == id {
			t.Errorf("%v succeeds %v, %v", id, from, succeeds)
		}
		signed := proto.Clone(&e).(*discovery.Entry)
		signed.ProtoReflect().SetUnknown(nil)
		if signed.Succession != nil {
			signed.Succession.ProtoReflect().SetUnknown(nil)
		}
		for _, one := range known {
			if proto.Equal(signed, one) {
				return
			}
		}
		t.Errorf("an entry that nobody signed: %v", signed)
	})
}

// FuzzProof: what is proven is the one thing that was signed.
func FuzzProof(f *testing.F) {
	v := readVectors(f)
	k, member := secretOf(f, v.Secret).Keys(), memberOf(f, v.MemberSeed)
	f.Add([]byte(v.Proof))
	f.Add([]byte(v.Watcher))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p discovery.Proof
		if proto.Unmarshal(data, &p) != nil {
			return
		}
		got, err := seal.VerifyProof(v.Challenge, &p)
		if err != nil {
			return
		}
		if got.Cluster != k.Cluster() || !bytes.Equal(got.Verifier, k.Verifier()) || got.Member != nil && *got.Member != member.ID() || len(got.Software) > seal.DiscoveryText {
			t.Errorf("proven: %+v", got)
		}
	})
}

// FuzzMember: a member that is taken is within its bounds, comes back as it is,
// and can be sealed.
func FuzzMember(f *testing.F) {
	v := readVectors(f)
	k, key := secretOf(f, v.Secret).Keys(), memberOf(f, v.MemberSeed)
	f.Add([]byte(v.Plain))
	f.Add([]byte(v.MeshPlain))
	f.Add(write(f, full()))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(discovery.Member)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		got, err := seal.ParseMember(m)
		if err != nil {
			if !reflect.DeepEqual(got, member.Facts{}) {
				t.Errorf("half of it is taken: %+v, %v", got, err)
			}
			return
		}
		if len(got.Endpoints) > limit.DiscoveryEndpoints || len(got.Addresses) > limit.DiscoveryFacts || len(got.Relays) > limit.MeshRelays || len(got.Relays) > 0 && got.RelayCluster == "" ||
			strings.ContainsFunc(got.Node+got.Software, func(r rune) bool { return r < ' ' }) {
			t.Errorf("taken: %+v", got)
		}
		again, err := seal.ParseMember(seal.Message(got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
		m.WireguardProof = nil // which Open verifies
		if e, err := k.Seal(bytes.NewReader(v.Nonce), key, seal.Content{Version: 1, TTL: time.Minute, Member: m}); err == nil {
			if _, opened, err := k.Open(e); err != nil || !proto.Equal(opened, m) {
				t.Errorf("opened %v, %v", opened, err)
			}
		}
	})
}

// FuzzSideroData: junk opens as nothing, and what a member with the secret seals
// opens as what it is, or not at all.
func FuzzSideroData(f *testing.F) {
	v := readVectors(f)
	key := secretOf(f, v.Secret).Sidero()
	f.Add([]byte(v.Affiliate), false)
	f.Add([]byte(v.AffiliatePlain), true)
	b, err := aes.NewCipher(secretBytes(v.Secret))
	if err != nil {
		f.Fatal(err)
	}
	aead, err := cipher.NewGCM(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, inside bool) {
		if inside {
			data = aead.Seal(v.Nonce[:12:12], v.Nonce, data, nil)
		}
		a, err := key.OpenData(data)
		if err != nil {
			return
		}
		again, err := key.SealData(bytes.NewReader(data[:12]), a)
		if err != nil {
			return // longer in our spelling than the bound
		}
		if b, err := key.OpenData(again); err != nil || !proto.Equal(a, b) {
			t.Errorf("%v became %v, %v", a, b, err)
		}
	})
}

// FuzzSideroEndpoint: neither a blob nor what one holds panics, and what opens
// has one form of ours.
func FuzzSideroEndpoint(f *testing.F) {
	key := secretOf(f, readVectors(f).Secret).Sidero()
	f.Add(append([]byte{8}, 0x0a, 4, 10, 0, 0, 5, 0x10, 1), true)
	f.Fuzz(func(t *testing.T, data []byte, inside bool) {
		if inside {
			data = block(t, data)
		}
		at, err := key.OpenEndpoint(data)
		if err != nil {
			return
		}
		blob, err := key.SealEndpoint(at)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := key.OpenEndpoint(blob); err != nil || again != at {
			t.Errorf("%v became %v, %v", at, again, err)
		}
	})
}
