// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/secret"
	"github.com/tombolo-io/tombolo/proto/sidero/sealed"
)

// SideroKey seals for the older protocol: section 4. What it opens is what some
// member once sealed: of this cluster, but perhaps another member's, and old.
// Nothing vouches for an endpoint at all. It is safe for use by many.
type SideroKey struct{ secret.Value[sideroKey] }

type sideroKey struct {
	data  cipher.AEAD
	block cipher.Block
}

// Sidero is the secret as a key of the older protocol.
func (s Secret) Sidero() SideroKey {
	return SideroKey{secret.Hide(&sideroKey{gcm(s.Get()[:]), block(s.Get()[:])})}
}

// SealData seals a member's data; fields that are not known are sealed with it.
// Random is 12 bytes from rand, which must never repeat: use crypto/rand.
func (s SideroKey) SealData(rand io.Reader, a *sealed.Affiliate) ([]byte, error) {
	refuse := func(err error) ([]byte, error) {
		return nil, fault.New(fault.CodeEntryInvalid, "the member's data cannot be sealed").Because(err)
	}
	plain, err := proto.Marshal(a)
	if err != nil { // text that is no UTF-8
		return refuse(err)
	}
	if n := len(plain) + overhead; n > limit.DiscoveryData {
		return refuse(fmt.Errorf("they have %d bytes, a service of this protocol takes %d: announce fewer ranges", n,
			limit.DiscoveryData))
	}
	out := make([]byte, nonceSize, len(plain)+overhead)
	if _, err := io.ReadFull(rand, out); err != nil {
		return nil, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	return s.Get().data.Seal(out, out, plain, nil), nil
}

// OpenData opens what SealData sealed. Nothing in it has been looked at beyond
// its being a message.
func (s SideroKey) OpenData(data []byte) (*sealed.Affiliate, error) {
	refuse := func(why string) (*sealed.Affiliate, error) {
		return nil, fault.New(fault.CodeEntryInvalid, "the member's data cannot be opened").Whyf("%s", why).
			Hint("compare the cluster's secrets of both nodes")
	}
	if len(data) < overhead || len(data) > limit.DiscoveryData {
		return refuse(fmt.Sprintf("they have %d bytes, not %d to %d", len(data), overhead, limit.DiscoveryData))
	}
	plain, err := s.Get().data.Open(nil, data[:nonceSize], data[nonceSize:], nil)
	if err != nil {
		return refuse("they are not sealed with the cluster's secret")
	}
	a := new(sealed.Affiliate)
	if err := proto.Unmarshal(plain, a); err != nil {
		return refuse("what they hold is no message Affiliate")
	}
	return a, nil
}

// SealEndpoint seals an endpoint: 16 bytes for IPv4, 32 for IPv6, the same ones
// for the same endpoint. An IPv4 address within IPv6 becomes an IPv4 one.
func (s SideroKey) SealEndpoint(at netip.AddrPort) ([]byte, error) {
	at, err := checkEndpoint(at)
	if err != nil {
		return nil, fault.New(fault.CodeEntryInvalid, "the endpoint cannot be sealed").Because(err)
	}
	// By hand: the order of fields that a library chooses may change, and equal
	// endpoints must stay equal bytes.
	ip := at.Addr().AsSlice()
	plain := append([]byte{0, 1<<3 | 2, byte(len(ip))}, ip...)
	plain = binary.AppendUvarint(append(plain, 2<<3), uint64(at.Port()))
	plain[0] = byte(len(plain) - 1)
	plain = append(plain, make([]byte, -len(plain)&(aes.BlockSize-1))...)
	for b := plain; len(b) > 0; b = b[aes.BlockSize:] {
		s.Get().block.Encrypt(b, b)
	}
	return plain, nil
}

// OpenEndpoint opens what SealEndpoint sealed. The form is all that tells an
// endpoint from junk, so none of it is passed over.
func (s SideroKey) OpenEndpoint(blob []byte) (netip.AddrPort, error) {
	refuse := func(err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, fault.New(fault.CodeEntryInvalid, "the endpoint cannot be opened").Because(err).
			Hint("compare the cluster's secrets of both nodes")
	}
	if n := len(blob); n == 0 || n%aes.BlockSize != 0 || n > limit.DiscoveryEndpoint {
		return refuse(fmt.Errorf("it has %d bytes, not 16 or %d", n, limit.DiscoveryEndpoint))
	}
	plain := make([]byte, len(blob))
	for i := 0; i < len(blob); i += aes.BlockSize {
		s.Get().block.Decrypt(plain[i:], blob[i:])
	}
	n := int(plain[0])
	if n == 0 || n >= len(plain) {
		return refuse(errors.New("its length is not that of its content"))
	}
	for _, b := range plain[1+n:] {
		if b != 0 {
			return refuse(errors.New("what fills it up is not zero"))
		}
	}
	var e sealed.Endpoint
	if err := proto.Unmarshal(plain[1:1+n], &e); err != nil {
		return refuse(errors.New("what it holds is no message Endpoint"))
	}
	at, err := parseEndpoint(e.GetIp(), e.GetPort())
	if err != nil {
		return refuse(err)
	}
	return at, nil
}
