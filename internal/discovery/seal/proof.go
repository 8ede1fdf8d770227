// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

// NonceSize is the length of a challenge.
const NonceSize = size

// Proven is what a proof shows.
type Proven struct {
	Cluster   ClusterID
	Verifier  ed25519.PublicKey
	Member    *MemberID         // nil: the caller watches only
	MemberKey ed25519.PublicKey // of Member
	Software  string            // as the caller says, for people

	admission []byte // of MemberKey, checked
}

// Verify is Verify for an entry of the one who proved itself: what was checked
// with the proof is not checked again.
func (p Proven) Verify(e *discovery.Entry) (MemberID, error) {
	admitted := len(p.admission) > 0 && bytes.Equal(p.MemberKey, e.GetMember()) &&
		bytes.Equal(p.admission, e.GetAdmission())
	return verify(p.Cluster, p.Verifier, e, admitted)
}

// Prove answers a challenge; without a member's key it is that of a watcher. The
// caller sets the version that it chose. A challenge of another length is not
// signed.
func Prove(k Keys, member *MemberKey, nonce []byte, software string) (*discovery.Proof, error) {
	if len(nonce) != NonceSize {
		return nil, fault.New(fault.CodeFrameInvalid, "the service's challenge is not answered").
			Whyf("it has %d bytes, not %d", len(nonce), NonceSize)
	}
	msg := challenge(nonce, k.Get().cluster)
	p := &discovery.Proof{Verifier: k.Verifier(), VerifierSignature: ed25519.Sign(k.Get().verifier, msg),
		Software: cleanText(software)}
	if member != nil {
		p.Member = member.Public()
		p.Admission = k.Admit(p.Member)
		p.MemberSignature = ed25519.Sign(member.Get().private, msg)
	}
	return p, nil
}

func challenge(nonce []byte, cluster ClusterID) []byte {
	return message("tombolo discovery proof 1", nonce, cluster[:])
}

// VerifyProof checks the answer to a challenge. The cluster is that of the
// verifier: whoever proves another one is in another cluster. Version and
// software are not signed, and mean nothing for what is proven.
func VerifyProof(nonce []byte, p *discovery.Proof) (Proven, error) {
	refuse := func(err error) (Proven, error) {
		return Proven{}, fault.New(fault.CodeEntryInvalid, "the proof is not taken").Because(err).
			Hint("see to the cluster's secret of the caller: tombolo discovery secret show")
	}
	if len(nonce) != NonceSize {
		return refuse(fmt.Errorf("the challenge has %d bytes, not %d", len(nonce), NonceSize))
	}
	if err := checkPublic(p.GetVerifier()); err != nil {
		return refuse(fmt.Errorf("of the verifier %w", err))
	}
	out := Proven{Cluster: ClusterOf(p.GetVerifier()), Verifier: p.GetVerifier(), Software: cleanText(p.GetSoftware())}
	msg := challenge(nonce, out.Cluster)
	if !signed(out.Verifier, msg, p.GetVerifierSignature()) {
		return refuse(errors.New("the signature is not the verifier's"))
	}
	if len(p.ProtoReflect().GetUnknown()) > limit.DiscoveryUnknown {
		return refuse(errors.New("it has too many fields that are not known"))
	}
	if len(p.GetMember()) == 0 {
		if len(p.GetAdmission()) > 0 || len(p.GetMemberSignature()) > 0 {
			return refuse(errors.New("it has signatures for a member, and no member"))
		}
		return out, nil
	}
	if err := checkPublic(p.GetMember()); err != nil {
		return refuse(fmt.Errorf("of the member %w", err))
	}
	if !signed(out.Verifier, admission(out.Cluster, p.GetMember()), p.GetAdmission()) {
		return refuse(errors.New("the cluster does not admit the member"))
	}
	if !signed(p.GetMember(), msg, p.GetMemberSignature()) {
		return refuse(errors.New("the signature is not the member's"))
	}
	id := MemberOf(p.GetMember())
	out.Member, out.MemberKey, out.admission = &id, p.GetMember(), p.GetAdmission()
	return out, nil
}
