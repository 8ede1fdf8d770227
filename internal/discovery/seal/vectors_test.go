// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	"github.com/tombolo-io/tombolo/proto/sidero/sealed"
)

type unhex []byte

func (b *unhex) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

// vectors is testdata/vectors.json, which testdata/vectors.py computes.
type vectors struct {
	Secret       string `json:"secret"`
	VerifierSeed unhex  `json:"verifier_seed"`
	Verifier     unhex  `json:"verifier"`
	DataKey      unhex  `json:"data_key"`
	MeshPSK      unhex  `json:"mesh_psk"`
	Cluster      string `json:"cluster_id"`

	MemberSeed    string `json:"member_seed"`
	Member        unhex  `json:"member"`
	MemberID      string `json:"member_id"`
	OldMemberSeed string `json:"old_member_seed"`
	OldMemberID   string `json:"old_member_id"`
	Admission     unhex  `json:"admission"`

	Version  uint64 `json:"version"`
	TTL      uint32 `json:"ttl"`
	Nonce    unhex  `json:"nonce"`
	Plain    unhex  `json:"plain"`
	Entry    unhex  `json:"entry"`
	Succeeds unhex  `json:"entry_with_succession"`
	Removal  unhex  `json:"removal"`

	WireGuard   string `json:"wireguard_private"`
	ProofRandom unhex  `json:"proof_random"`
	MeshPlain   unhex  `json:"mesh_plain"`
	Mesh        unhex  `json:"entry_for_the_mesh"`

	Challenge unhex  `json:"challenge"`
	Software  string `json:"software"`
	Proof     unhex  `json:"proof"`
	Watcher   unhex  `json:"proof_of_a_watcher"`

	AffiliatePlain unhex            `json:"affiliate_plain"`
	Affiliate      unhex            `json:"affiliate"`
	Endpoints      map[string]unhex `json:"endpoints"`
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func secretOf(t testing.TB, text string) seal.Secret {
	t.Helper()
	s, err := seal.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func memberOf(t testing.TB, text string) seal.MemberKey {
	t.Helper()
	m, err := seal.ParseMemberKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read[M proto.Message](t testing.TB, b []byte, into M) M {
	t.Helper()
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func write(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func equal(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

func TestVectorsOfKeys(t *testing.T) {
	v := readVectors(t)
	k, member := secretOf(t, v.Secret).Keys(), memberOf(t, v.MemberSeed)
	equal(t, "verifier", k.Verifier(), v.Verifier)
	equal(t, "verifier of the seed", k.Verifier(), ed25519.NewKeyFromSeed(v.VerifierSeed).Public().(ed25519.PublicKey))
	psk := k.MeshPSK()
	equal(t, "mesh psk", psk[:], v.MeshPSK)
	equal(t, "member", member.Public(), v.Member)
	equal(t, "admission", k.Admit(member.Public()), v.Admission)
	for what, is := range map[string][2]string{
		"cluster id": {k.Cluster().String(), v.Cluster}, "member id": {member.ID().String(), v.MemberID},
		"old member id": {memberOf(t, v.OldMemberSeed).ID().String(), v.OldMemberID},
		"secret":        {secretOf(t, v.Secret).Encode(), v.Secret}, "member seed": {member.Encode(), v.MemberSeed},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: got %s, want %s", what, is[0], is[1])
		}
	}
	if len(v.Cluster) != 55 || v.Cluster[:3] != "t1-" {
		t.Errorf("cluster id %q", v.Cluster)
	}
}

func TestVectorsOfEntries(t *testing.T) {
	v := readVectors(t)
	k, member, old := secretOf(t, v.Secret).Keys(), memberOf(t, v.MemberSeed), memberOf(t, v.OldMemberSeed)
	says := read(t, v.Plain, new(discovery.Member))
	content := seal.Content{Version: v.Version, TTL: time.Duration(v.TTL) * time.Second, Member: says}
	succeeding := content
	succeeding.Succession = k.Succeed(old, member.ID())
	for name, c := range map[string]struct {
		bytes   unhex
		content *seal.Content
	}{"entry": {v.Entry, &content}, "entry with succession": {v.Succeeds, &succeeding}, "removal": {v.Removal, nil}} {
		t.Run(name, func(t *testing.T) {
			e := read(t, c.bytes, new(discovery.Entry))
			id, err := seal.Verify(k.Cluster(), k.Verifier(), e)
			if err != nil || id != member.ID() {
				t.Fatalf("verified as %v, %v", id, err)
			}
			id, opened, err := k.Open(e)
			if err != nil || id != member.ID() {
				t.Fatalf("opened as %v, %v", id, err)
			}
			if c.content == nil {
				if opened != nil {
					t.Errorf("a removal holds %v", opened)
				}
				equal(t, "made", write(t, k.Remove(member, v.Version+1, content.TTL)), c.bytes)
				return
			}
			equal(t, "opened", write(t, opened), v.Plain) // its field of tomorrow included
			made, err := k.Seal(bytes.NewReader(v.Nonce), member, *c.content)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "made", write(t, made), c.bytes)
			from, err := seal.VerifySuccession(k.Cluster(), e)
			if succeeds := c.content.Succession != nil; succeeds != (err == nil) || succeeds && from != old.ID() {
				t.Errorf("succeeds %v, %v", from, err)
			}
		})
	}
	m, err := seal.ParseMember(says)
	if err != nil || m.Node != "machine-1" || m.Role != "worker" || m.Endpoints[0].Addr.String() != "10.0.0.5:51820" || m.Ranges[0].String() != "10.244.1.0/24" {
		t.Errorf("the member is %+v, %v", m, err)
	}
}

// TestVectorsOfTheMesh: what a member says for the mesh, with the words of both its keys.
func TestVectorsOfTheMesh(t *testing.T) {
	v := readVectors(t)
	k, self := secretOf(t, v.Secret).Keys(), memberOf(t, v.MemberSeed)
	want := member.Facts{Node: "machine-1", Mesh: 1, RelayCluster: "c1", Relays: []string{"hub-1", "hub-2"}}
	says := read(t, v.MeshPlain, new(discovery.Member))
	private, err := seal.ParseWireGuardPrivate(v.WireGuard)
	if err != nil {
		t.Fatal(err)
	}
	want.Key = private.Public()
	proof, err := k.ProveWireGuard(bytes.NewReader(v.ProofRandom), private, self.ID())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the proof of the key", proof, says.GetWireguardProof())
	id, opened, err := k.Open(read(t, v.Mesh, new(discovery.Entry)))
	if err != nil || id != self.ID() {
		t.Fatalf("opened as %v, %v", id, err)
	}
	equal(t, "opened", write(t, opened), v.MeshPlain) // its field of tomorrow included
	if m, err := seal.ParseMember(opened); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("the self is %+v, %v, want %+v", m, err, want)
	}
	made, err := k.Seal(bytes.NewReader(v.Nonce), self, seal.Content{Version: v.Version, TTL: time.Duration(v.TTL) * time.Second, Member: says})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "made", write(t, made), v.Mesh)
}

func TestVectorsOfProofs(t *testing.T) {
	v := readVectors(t)
	k, member := secretOf(t, v.Secret).Keys(), memberOf(t, v.MemberSeed)
	for name, c := range map[string]struct {
		bytes  unhex
		member *seal.MemberKey
	}{"member": {v.Proof, &member}, "watcher": {v.Watcher, nil}} {
		t.Run(name, func(t *testing.T) {
			made, err := seal.Prove(k, c.member, v.Challenge, v.Software)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "made", write(t, made), c.bytes)
			got, err := seal.VerifyProof(v.Challenge, read(t, c.bytes, new(discovery.Proof)))
			if err != nil || got.Cluster != k.Cluster() || got.Software != v.Software || (got.Member == nil) != (c.member == nil) {
				t.Fatalf("proven: %+v, %v", got, err)
			}
			equal(t, "verifier", got.Verifier, v.Verifier)
			if c.member != nil && *got.Member != member.ID() {
				t.Errorf("proven: %v", got.Member)
			}
		})
	}
}

func TestVectorsOfSidero(t *testing.T) {
	v := readVectors(t)
	key := secretOf(t, v.Secret).Sidero()
	opened, err := key.OpenData(v.Affiliate)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "opened", write(t, opened), v.AffiliatePlain) // its excluded addresses, field 4 of KubeSpan, included
	made, err := key.SealData(bytes.NewReader(v.Nonce), read(t, v.AffiliatePlain, new(sealed.Affiliate)))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "made", made, v.Affiliate)
	for text, blob := range v.Endpoints {
		want := netip.MustParseAddrPort(text)
		if n := map[bool]int{true: 16, false: 32}[want.Addr().Is4()]; len(blob) != n {
			t.Errorf("%s has %d bytes, not %d", text, len(blob), n)
		}
		got, err := key.OpenEndpoint(blob)
		if err != nil || got != want {
			t.Errorf("%s opens as %v, %v", text, got, err)
		}
		made, err := key.SealEndpoint(want)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, text, made, blob)
	}
}

func secretBytes(text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

func secretText(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
