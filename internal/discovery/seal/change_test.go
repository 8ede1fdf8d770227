// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
	"github.com/tombolo-io/tombolo/proto/sidero/sealed"
)

// eachFlip calls fn with b changed by one bit, for each of its bits.
func eachFlip(b []byte, fn func(bit int, changed []byte)) {
	for bit := range 8 * len(b) {
		c := slices.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		fn(bit, c)
	}
}

// TestEntryChangedByOneBit: an entry of which a bit is changed on its way is
// refused, or says the same (a true that is spelled 3, say).
func TestEntryChangedByOneBit(t *testing.T) {
	k, m, old := newKeys(t), newMember(t), newMember(t)
	content := seal.Content{Version: 1 << 60, TTL: time.Minute, Member: says("a"), Succession: k.Succeed(old, m.ID())}
	for name, e := range map[string]*discovery.Entry{"entry": entryOf(t, k, m, content), "removal": k.Remove(m, 7, time.Minute)} {
		same, of := 0, write(t, e)
		eachFlip(of, func(bit int, changed []byte) {
			var c discovery.Entry
			if proto.Unmarshal(changed, &c) != nil {
				return
			}
			if _, _, err := k.Open(&c); err == nil {
				if same++; !proto.Equal(&c, e) {
					t.Errorf("%s: with bit %d of %d changed it is taken as %v", name, bit, 8*len(of), &c)
				}
			}
		})
		if same > 8 {
			t.Errorf("%s: %d changes change nothing", name, same)
		}
	}
}

// TestProofChangedByOneBit: what is proven does not change with a bit.
func TestProofChangedByOneBit(t *testing.T) {
	k, m, nonce := newKeys(t), newMember(t), bytes.Repeat([]byte{9}, seal.NonceSize)
	for name, member := range map[string]*seal.MemberKey{"member": &m, "watcher": nil} {
		p, err := seal.Prove(k, member, nonce, "s")
		if err != nil {
			t.Fatal(err)
		}
		signed := proto.Clone(p).(*discovery.Proof)
		signed.Software = "" // nobody signs it
		eachFlip(write(t, signed), func(bit int, changed []byte) {
			var c discovery.Proof
			if proto.Unmarshal(changed, &c) != nil {
				return
			}
			if got, err := seal.VerifyProof(nonce, &c); err == nil {
				t.Errorf("%s: with bit %d changed it proves %+v", name, bit, got)
			}
		})
		eachFlip(nonce, func(bit int, other []byte) {
			if _, err := seal.VerifyProof(other, p); err == nil {
				t.Errorf("%s: it answers another challenge: bit %d", name, bit)
			}
		})
	}
}

func TestSideroChangedByOneBit(t *testing.T) {
	v := readVectors(t)
	key := secretOf(t, v.Secret).Sidero()
	eachFlip(v.Affiliate, func(bit int, changed []byte) {
		_, err := key.OpenData(changed)
		if err == nil {
			t.Errorf("data with bit %d changed open", bit)
		}
	})
	for text, blob := range v.Endpoints {
		eachFlip(blob, func(bit int, changed []byte) {
			if at, err := key.OpenEndpoint(changed); err == nil {
				t.Errorf("%s with bit %d changed opens as %v", text, bit, at)
			}
		})
	}
}

// resign signs an entry as docs/reference/discovery-wire.md has it, whatever is in it:
// what a member with the secret and a program of its own can do.
func resign(k seal.Keys, private ed25519.PrivateKey, e *discovery.Entry) *discovery.Entry {
	e = proto.Clone(e).(*discovery.Entry)
	e.Member = private.Public().(ed25519.PublicKey)
	e.Admission = k.Admit(e.Member)
	cluster, removed := k.Cluster(), []byte{0}
	if e.Removed {
		removed[0] = 1
	}
	var succession []byte
	if e.Succession != nil {
		succession = slices.Concat(e.Succession.OldMember, e.Succession.Signature)
	}
	a, b := sha256.Sum256(e.Sealed), sha256.Sum256(succession)
	e.Signature = ed25519.Sign(private, slices.Concat([]byte("tombolo discovery entry 1\x00"), cluster[:], e.Member,
		binary.BigEndian.AppendUint64(nil, e.Version), binary.BigEndian.AppendUint32(nil, e.Ttl), removed, a[:], b[:]))
	return e
}

// TestWhatAnInsiderCannotDo: a member that has the secret writes no entry of
// another, and passes off no sealed bytes as other ones.
func TestWhatAnInsiderCannotDo(t *testing.T) {
	k, other, victim := newKeys(t), newKeys(t), newMember(t)
	_, mallory, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(k seal.Keys) *discovery.Entry {
		return entryOf(t, k, victim, seal.Content{Version: 5, TTL: time.Minute, Member: says("victim")})
	}
	change := func(e *discovery.Entry, fn func(*discovery.Entry)) *discovery.Entry {
		e = proto.Clone(e).(*discovery.Entry)
		fn(e)
		return e
	}
	removal := k.Remove(victim, 6, time.Minute)
	own := resign(k, mallory, of(k))
	for name, c := range map[string]struct {
		e   *discovery.Entry
		why string
	}{
		"other cluster":            {of(other), "does not admit"},
		"admitted here":            {change(of(other), func(e *discovery.Entry) { e.Admission = k.Admit(victim.Public()) }), "not the member's"},
		"other's bytes as its own": {own, "not sealed"},
		"signed in another's name": {change(own, func(e *discovery.Entry) { e.Member, e.Admission = victim.Public(), k.Admit(victim.Public()) }), "not the member's"},
		"newer version":            {change(of(k), func(e *discovery.Entry) { e.Version++ }), "not the member's"},
		"longer lease":             {change(of(k), func(e *discovery.Entry) { e.Ttl++ }), "not the member's"},
		"removed for it":           {change(of(k), func(e *discovery.Entry) { e.Removed, e.Sealed = true, nil }), "not the member's"},
		"back for it":              {change(removal, func(e *discovery.Entry) { e.Removed, e.Sealed = false, of(k).Sealed }), "not the member's"},
		"removal at a later time":  {change(removal, func(e *discovery.Entry) { e.Version++ }), "not the member's"},
		"removal with content":     {resign(k, mallory, change(removal, func(e *discovery.Entry) { e.Sealed = make([]byte, 40) })), "removal with content"},
		"removal that succeeds": {resign(k, mallory, change(removal, func(e *discovery.Entry) {
			e.Succession = k.Succeed(victim, seal.MemberOf(mallory.Public().(ed25519.PublicKey)))
		})), "removal with content"},
		"no content":             {resign(k, mallory, change(of(k), func(e *discovery.Entry) { e.Sealed = e.Sealed[:28] })), "too few"},
		"too much":               {resign(k, mallory, change(of(k), func(e *discovery.Entry) { e.Sealed = make([]byte, 16385) })), "at most"},
		"a version without next": {resign(k, mallory, change(of(k), func(e *discovery.Entry) { e.Version = 1 << 63 })), "version"},
		"stolen place":           {resign(k, mallory, change(of(k), func(e *discovery.Entry) { e.Succession = k.Succeed(victim, victim.ID()) })), "old member's"},
		"succession left out":    {change(succeeded(t, k), func(e *discovery.Entry) { e.Succession = nil }), "not the member's"},
		"nothing":                {&discovery.Entry{}, "0 bytes"},
		"nil":                    {nil, "0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			id, m, err := k.Open(c.e)
			refused(t, err, fault.CodeEntryInvalid, c.why)
			if m != nil || !id.IsZero() {
				t.Errorf("opened as %v, %v", id, m)
			}
		})
	}
	if id, err := seal.Verify(k.Cluster(), k.Verifier(), own); err != nil || id == victim.ID() {
		t.Errorf("what a service sees of it: %v, %v: the table's resign is wrong", id, err)
	}
	if _, err := seal.Verify(k.Cluster(), other.Verifier(), of(other)); err == nil {
		t.Error("a cluster is taken with the verifier of another")
	}
}

func succeeded(t testing.TB, k seal.Keys) *discovery.Entry {
	next := newMember(t)
	return entryOf(t, k, next, seal.Content{Version: 1, TTL: time.Minute, Member: says("a"), Succession: k.Succeed(newMember(t), next.ID())})
}

// TestProofsOfOthers: a proof is of one cluster and one member.
func TestProofsOfOthers(t *testing.T) {
	k, other, m, nonce := newKeys(t), newKeys(t), newMember(t), make([]byte, seal.NonceSize)
	prove := func(k seal.Keys, m *seal.MemberKey) *discovery.Proof {
		p, err := seal.Prove(k, m, nonce, "s\x1b[31m")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	mixed := func(fn func(p, foreign *discovery.Proof)) *discovery.Proof {
		p := prove(k, &m)
		fn(p, prove(other, &m))
		return p
	}
	for name, c := range map[string]struct {
		p   *discovery.Proof
		why string
	}{
		"nothing":              {nil, "of the verifier"},
		"other verifier":       {mixed(func(p, f *discovery.Proof) { p.Verifier = f.Verifier }), "not the verifier's"},
		"other signature":      {mixed(func(p, f *discovery.Proof) { p.VerifierSignature = f.VerifierSignature }), "not the verifier's"},
		"other admission":      {mixed(func(p, f *discovery.Proof) { p.Admission = f.Admission }), "does not admit"},
		"other cluster's word": {mixed(func(p, f *discovery.Proof) { p.MemberSignature = f.MemberSignature }), "not the member's"},
		"no admission":         {mixed(func(p, _ *discovery.Proof) { p.Admission = nil }), "does not admit"},
		"no signature":         {mixed(func(p, _ *discovery.Proof) { p.MemberSignature = nil }), "not the member's"},
		"no member":            {mixed(func(p, _ *discovery.Proof) { p.Member = nil }), "no member"},
		"only a signature":     {mixed(func(p, _ *discovery.Proof) { p.Member, p.Admission = nil, nil }), "no member"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := seal.VerifyProof(nonce, c.p)
			refused(t, err, fault.CodeEntryInvalid, c.why)
			if got.Member != nil || !got.Cluster.IsZero() {
				t.Errorf("proven: %+v", got)
			}
		})
	}
	got, err := seal.VerifyProof(nonce, prove(k, &m))
	if err != nil || got.Software != "s?[31m" {
		t.Errorf("%q, %v", got.Software, err)
	}
	for _, n := range []int{0, 31, 33} {
		_, err := seal.Prove(k, &m, make([]byte, n), "")
		refused(t, err, fault.CodeFrameInvalid, "bytes, not 32")
		_, err = seal.VerifyProof(make([]byte, n), prove(k, &m))
		refused(t, err, fault.CodeEntryInvalid, "bytes, not 32")
	}
}

// TestRoundTrips: whatever a member says comes back, from its own cluster,
// member and version alone.
func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, err := seal.NewSecret(bytes.NewReader(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "secret")))
		if err != nil {
			t.Fatal(err)
		}
		member, err := seal.NewMemberKey(bytes.NewReader(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "member")))
		if err != nil {
			t.Fatal(err)
		}
		k := secret.Keys()
		m := &discovery.Member{Node: "n" + rapid.String().Draw(t, "node"), Hostname: rapid.String().Draw(t, "host"),
			Addresses: rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 0, 20).Draw(t, "addresses")}
		e, err := k.Seal(rand.Reader, member, seal.Content{Version: rapid.Uint64Range(1, 1<<63-1).Draw(t, "version"), TTL: time.Minute, Member: m})
		if err != nil {
			t.Fatal(err)
		}
		id, opened, err := k.Open(e)
		if err != nil || id != member.ID() || !proto.Equal(opened, m) {
			t.Fatalf("opened %v as %v, %v", opened, id, err)
		}
		if c, err := seal.ParseClusterID(k.Cluster().String()); err != nil || c != k.Cluster() {
			t.Fatalf("%v, %v", c, err)
		}
		if i, err := seal.ParseMemberID(id.String()); err != nil || i != id {
			t.Fatalf("%v, %v", i, err)
		}
		key := secret.Sidero()
		a := &sealed.Affiliate{NodeId: m.Node, Hostname: m.Hostname, Addresses: m.Addresses[:min(3, len(m.Addresses))]}
		if data, err := key.SealData(rand.Reader, a); err == nil {
			if got, err := key.OpenData(data); err != nil || !proto.Equal(got, a) {
				t.Fatalf("opened %v, %v", got, err)
			}
		}
		addr, ok := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ip4"))
		if rapid.Bool().Draw(t, "v6") {
			addr, ok = netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ip6"))
		}
		at := netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, "port"))
		if blob, err := key.SealEndpoint(at); ok && err == nil {
			if got, err := key.OpenEndpoint(blob); err != nil || got != netip.AddrPortFrom(addr.Unmap(), at.Port()) {
				t.Fatalf("%v became %v, %v", at, got, err)
			}
		}
	})
}

// TestAProofIsCheckedOnce: an entry with another admission than the proof's, or of
// another member, is looked at as if there had been none.
func TestAProofIsCheckedOnce(t *testing.T) {
	k, m, other, nonce := newKeys(t), newMember(t), newMember(t), bytes.Repeat([]byte{9}, seal.NonceSize)
	p, err := seal.Prove(k, &m, nonce, "s")
	if err != nil {
		t.Fatal(err)
	}
	who, err := seal.VerifyProof(nonce, p)
	if err != nil {
		t.Fatal(err)
	}
	of := func(by seal.MemberKey) *discovery.Entry {
		return entryOf(t, k, by, seal.Content{Version: 5, TTL: time.Minute, Member: says("m")})
	}
	if id, err := who.Verify(of(m)); err != nil || id != m.ID() {
		t.Errorf("its own entry: %v, %v", id, err)
	}
	if id, err := who.Verify(of(other)); err != nil || id != other.ID() {
		t.Errorf("another's: %v, %v", id, err)
	}
	stolen := of(other)
	stolen.Admission = p.Admission
	changed := of(m)
	changed.Admission[0] ^= 1
	unsigned := of(m)
	unsigned.Ttl++
	for name, e := range map[string]*discovery.Entry{"another's with its admission": stolen, "its own with another": changed, "not signed": unsigned, "none": {}} {
		if _, err := who.Verify(e); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
