// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// nonceSize and overhead are of AES-256-GCM.
const (
	nonceSize = 12
	overhead  = nonceSize + 16
)

// Content is what a member seals.
type Content struct {
	Version    uint64
	TTL        time.Duration
	Member     *discovery.Member     // fields that this version does not know are sealed with it
	Succession *discovery.Succession // nil but in the first entry of a new key
}

// NextVersion is the version of a member's next entry after last, which is 0
// for the first: it grows even if the clock has gone back.
func NextVersion(last uint64, now time.Time) uint64 {
	if ns := now.UnixNano(); ns > 0 && uint64(ns) > last {
		return uint64(ns)
	}
	return last + 1
}

// Seal makes the member's entry. Random is 12 bytes from rand, which must never
// repeat: use crypto/rand.
func (k Keys) Seal(rand io.Reader, member MemberKey, c Content) (*discovery.Entry, error) {
	refuse := func(err error) (*discovery.Entry, error) {
		return nil, fault.New(fault.CodeEntryInvalid, "the member's entry cannot be sealed").Because(err)
	}
	if c.Member == nil {
		return refuse(errors.New("there is no content"))
	}
	plain, err := proto.Marshal(c.Member)
	switch {
	case err != nil: // text that is no UTF-8
		return refuse(err)
	case len(plain) == 0:
		return refuse(errors.New("there is no content"))
	case len(plain)+overhead > limit.DiscoverySealed:
		return refuse(fmt.Errorf("it has %d bytes, at most %d are taken", len(plain)+overhead, limit.DiscoverySealed))
	}
	sealed := make([]byte, nonceSize, len(plain)+overhead)
	if _, err := io.ReadFull(rand, sealed); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	sealed = k.Get().data.Seal(sealed, sealed, plain, k.associated(member.ID(), c.Version))
	e := &discovery.Entry{Version: c.Version, Ttl: seconds(c.TTL), Sealed: sealed, Succession: c.Succession}
	k.sign(member, e)
	if _, err := Verify(k.Cluster(), k.Verifier(), e); err != nil {
		return refuse(errors.New(fault.From(err).Why)) // version, lease or succession
	}
	return e, nil
}

// Remove makes the member's removal: a version above that of its last entry, and
// for how long others had better remember it.
func (k Keys) Remove(member MemberKey, version uint64, ttl time.Duration) *discovery.Entry {
	e := &discovery.Entry{Version: version, Ttl: seconds(ttl), Removed: true}
	k.sign(member, e)
	return e
}

// Relet is the member's entry with another lease: what it says, and when, is the same.
func (k Keys) Relet(member MemberKey, e *discovery.Entry, ttl time.Duration) *discovery.Entry {
	out := &discovery.Entry{Version: e.GetVersion(), Ttl: seconds(ttl), Sealed: e.GetSealed(),
		Succession: e.GetSuccession(), Removed: e.GetRemoved()}
	k.sign(member, out)
	return out
}

func (k Keys) sign(member MemberKey, e *discovery.Entry) {
	e.Member = member.Public()
	e.Admission = k.Admit(e.Member)
	e.Signature = ed25519.Sign(member.Get().private, k.Get().cluster.signed(e))
}

// seconds rounds up: a lease of less than a second is one of a second, and one
// that Verify refuses stays so.
func seconds(d time.Duration) uint32 {
	return uint32(min(max(0, d+time.Second-1)/time.Second, math.MaxUint32))
}

// associated is bound to the sealed bytes, so that they open nowhere else.
func (k Keys) associated(id MemberID, version uint64) []byte {
	return message("tombolo discovery data 1", k.Get().cluster[:], id[:], binary.BigEndian.AppendUint64(nil, version))
}

// signed is what an entry's signature is over.
func (id ClusterID) signed(e *discovery.Entry) []byte {
	numbers := binary.BigEndian.AppendUint64(nil, e.GetVersion())
	numbers = binary.BigEndian.AppendUint32(numbers, e.GetTtl())
	removed := byte(0)
	if e.GetRemoved() {
		removed = 1
	}
	var succession []byte
	if s := e.GetSuccession(); s != nil {
		succession = append(append(succession, s.GetOldMember()...), s.GetSignature()...) // of fixed length: see Verify
	}
	sealed, succeeds := sha256.Sum256(e.GetSealed()), sha256.Sum256(succession)
	return message("tombolo discovery entry 1", id[:], e.GetMember(), append(numbers, removed), sealed[:], succeeds[:])
}

// Verify is all that can be checked of an entry without the secret: that the
// cluster's verifier admits the member, that the member signed it, its
// succession, and every bound. Unknown fields are not signed: they are
// bounded and mean nothing.
func Verify(cluster ClusterID, verifier ed25519.PublicKey, e *discovery.Entry) (MemberID, error) {
	return verify(cluster, verifier, e, false)
}

func verify(cluster ClusterID, verifier ed25519.PublicKey, e *discovery.Entry, admitted bool) (MemberID, error) {
	if err := checkPublic(e.GetMember()); err != nil {
		return MemberID{}, fault.New(fault.CodeEntryInvalid, "the entry is not taken").
			Whyf("the member is not known: %v", err)
	}
	id := MemberOf(e.GetMember())
	refuse := func(err error) (MemberID, error) {
		return MemberID{}, fault.New(fault.CodeEntryInvalid, "the entry of member "+id.String()+" is not taken").Because(err).
			Hint("compare the cluster ids on both sides: tombolo discovery secret show")
	}
	if err := checkPublic(verifier); err != nil || ClusterOf(verifier) != cluster {
		return refuse(errors.New("the verifier is not that of the cluster"))
	}
	if err := checkForm(e); err != nil {
		return refuse(err)
	}
	if !admitted && !signed(verifier, admission(cluster, e.GetMember()), e.GetAdmission()) {
		return refuse(errors.New("the cluster does not admit the member"))
	}
	if !signed(e.GetMember(), cluster.signed(e), e.GetSignature()) {
		return refuse(errors.New("the signature is not the member's"))
	}
	if e.GetSuccession() != nil {
		if _, err := VerifySuccession(cluster, e); err != nil {
			return refuse(errors.New(fault.From(err).Why))
		}
	}
	return id, nil
}

// checkForm looks at what needs no cryptography.
func checkForm(e *discovery.Entry) error {
	longest := uint32(limit.DiscoveryTTL / time.Second)
	switch n := len(e.GetSealed()); {
	case e.GetVersion() == 0 || e.GetVersion() > math.MaxInt64: // so that there is always a next one
		return fmt.Errorf("its version %d is not within 1 and 2^63-1", e.GetVersion())
	case e.GetTtl() == 0 || e.GetTtl() > longest:
		return fmt.Errorf("its lease of %d s is not within 1 and %d", e.GetTtl(), longest)
	case e.GetRemoved() && (n > 0 || e.GetSuccession() != nil):
		return errors.New("it is a removal with content")
	case !e.GetRemoved() && n <= overhead:
		return fmt.Errorf("its %d sealed bytes are too few", n)
	case n > limit.DiscoverySealed:
		return fmt.Errorf("it has %d sealed bytes, at most %d are taken", n, limit.DiscoverySealed)
	}
	unknown := len(e.ProtoReflect().GetUnknown())
	if s := e.GetSuccession(); s != nil {
		unknown += len(s.ProtoReflect().GetUnknown())
		if len(s.GetOldMember()) != ed25519.PublicKeySize || len(s.GetSignature()) != ed25519.SignatureSize {
			return errors.New("its succession is damaged")
		}
	}
	if unknown > limit.DiscoveryUnknown {
		return fmt.Errorf("it has %d bytes of fields that are not known, at most %d are taken", unknown,
			limit.DiscoveryUnknown)
	}
	return nil
}

// Open verifies an entry and gives what the member says; nil for a removal. The
// caller compares the version with what it knows, and asks VerifySuccession
// whom the member takes the place of.
func (k Keys) Open(e *discovery.Entry) (MemberID, *discovery.Member, error) {
	id, err := Verify(k.Cluster(), k.Verifier(), e)
	if err != nil || e.GetRemoved() {
		return id, nil, err
	}
	refuse := func(why string) (MemberID, *discovery.Member, error) {
		return MemberID{}, nil, fault.New(fault.CodeEntryInvalid, "the entry of member "+id.String()+" cannot be opened").
			Whyf("%s", why).
			Hint("see to the software of that member: its entry is signed, and what it holds is damaged")
	}
	sealed := e.GetSealed()
	plain, err := k.Get().data.Open(nil, sealed[:nonceSize], sealed[nonceSize:], k.associated(id, e.GetVersion()))
	if err != nil {
		return refuse("it is not sealed with the cluster's secret, for this member and version")
	}
	m := new(discovery.Member)
	if err := proto.Unmarshal(plain, m); err != nil {
		return refuse("what it holds is no message Member")
	}
	if !k.provenOrNot(id, m.GetWireguardKey(), m.GetWireguardProof()) {
		return refuse("the WireGuard key that it names does not say that it is this member's")
	}
	return id, m, nil
}

// provenOrNot reports whether a proof is good, or there is none.
func (k Keys) provenOrNot(id MemberID, key, proof []byte) bool {
	return len(proof) == 0 || len(key) == size && VerifyWireGuard(k.Cluster(), id, member.Key(key), proof)
}

// Succeed is the old key's word that next takes its place.
func (k Keys) Succeed(old MemberKey, next MemberID) *discovery.Succession {
	return &discovery.Succession{OldMember: old.Public(),
		Signature: ed25519.Sign(old.Get().private, succession(k.Get().cluster, old.ID(), next))}
}

func succession(cluster ClusterID, old, next MemberID) []byte {
	return message("tombolo discovery succession 1", cluster[:], old[:], next[:])
}

// VerifySuccession gives the member whose place an entry takes. It looks at the
// succession alone: the entry must have passed Verify.
func VerifySuccession(cluster ClusterID, e *discovery.Entry) (MemberID, error) {
	s := e.GetSuccession()
	refuse := func(why string) (MemberID, error) {
		return MemberID{}, fault.New(fault.CodeEntryInvalid, "the succession is not taken").Whyf("%s", why)
	}
	if s == nil {
		return refuse("there is none")
	}
	if err := checkPublic(s.GetOldMember()); err != nil {
		return refuse("of the old member " + err.Error())
	}
	old, next := MemberOf(s.GetOldMember()), MemberOf(e.GetMember())
	if old == next {
		return refuse("the member succeeds itself")
	}
	if !signed(s.GetOldMember(), succession(cluster, old, next), s.GetSignature()) {
		return refuse("its signature is not the old member's")
	}
	return old, nil
}
