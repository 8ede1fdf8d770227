// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/pion/stun/v3"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// ID is the transaction id of a request. Only a sender that can guess it can forge an answer.
type ID [12]byte

// Class is what a message is.
type Class uint8

// The classes of binding messages that are understood.
const (
	ClassRequest Class = iota + 1
	ClassSuccess
	ClassFailure
)

// Message is a binding message of STUN (RFC 8489), as far as a node needs it.
type Message struct {
	Class  Class
	ID     ID
	Mapped netip.AddrPort // of a success: where the request came from
	Code   int            // of a failure
	Other  netip.AddrPort // of a success: the server's other endpoint, if it says so
	// Of a request:
	Change        bool     // it knows of RFC 5780: it reports whether there is another endpoint
	ChangePort    bool     // the answer must come from the server's other port (RFC 5780)
	ChangeAddress bool     // or from its other address
	Unknown       []uint16 // attributes that must be understood, and are not
	Fingerprint   bool     // it has one, as must the answer
}

// Marker precedes what is not ESP on a port of ESP in UDP (RFC 3948 section 2.2). A request that comes from such a port
// has it, and so must its answer: the kernel would take it for ESP.
const Marker = "\x00\x00\x00\x00"

// AttrChangeRequest is the attribute that asks for an answer from another endpoint (RFC 5780).
const AttrChangeRequest = uint16(stun.AttrChangeRequest)

const (
	header        = 20
	changeAddress = 0x04
	changePort    = 0x02
)

var (
	errNoSTUN  = errors.New("not a STUN message")
	errBinding = errors.New("not a binding request or answer")
)

// IsSTUN reports whether a packet of a socket that carries several things is STUN.
func IsSTUN(b []byte) bool {
	return len(b) >= header && b[0] < 0x40 && binary.BigEndian.Uint32(b[4:]) == 0x2112a442
}

// Parse reads a binding message.
func Parse(b []byte) (Message, error) {
	if !IsSTUN(b) || len(b) > limit.STUNMessage || len(b)%4 != 0 || len(b) != header+int(binary.BigEndian.Uint16(b[2:])) {
		return Message{}, errNoSTUN
	}
	raw := stun.New()
	if err := stun.Decode(b, raw); err != nil {
		return Message{}, fmt.Errorf("%w: %w", errNoSTUN, err)
	}
	m := Message{ID: raw.TransactionID}
	switch raw.Type {
	case stun.BindingRequest:
		m.Class = ClassRequest
	case stun.BindingSuccess:
		m.Class = ClassSuccess
	case stun.BindingError:
		m.Class = ClassFailure
	default:
		return Message{}, errBinding
	}
	if _, m.Fingerprint = raw.Attributes.Get(stun.AttrFingerprint); m.Fingerprint {
		if err := stun.Fingerprint.Check(raw); err != nil ||
			raw.Attributes[len(raw.Attributes)-1].Type != stun.AttrFingerprint {
			return Message{}, errors.New("the fingerprint is wrong")
		}
	}
	return m, m.read(raw)
}

func (m *Message) read(raw *stun.Message) error {
	switch m.Class {
	case ClassSuccess:
		var a stun.XORMappedAddress
		if err := a.GetFrom(raw); err != nil {
			return fmt.Errorf("the answer has no mapped address: %w", err)
		}
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Port <= 0 || a.Port > 65535 {
			return errors.New("the answer has no mapped address")
		}
		m.Mapped = netip.AddrPortFrom(addr.Unmap(), uint16(a.Port))
		var other stun.OtherAddress
		if err := other.GetFrom(raw); err == nil && other.Port > 0 && other.Port <= 65535 {
			if addr, ok := netip.AddrFromSlice(other.IP); ok {
				m.Other = netip.AddrPortFrom(addr.Unmap(), uint16(other.Port))
			}
		}
	case ClassFailure:
		var code stun.ErrorCodeAttribute
		if err := code.GetFrom(raw); err != nil {
			return fmt.Errorf("the failure has no code: %w", err)
		}
		m.Code = int(code.Code)
	case ClassRequest:
		for _, a := range raw.Attributes {
			m.attribute(a)
		}
	}
	return nil
}

// attribute reads what a request asks. Attributes that authenticate the caller are understood and
// not needed: everybody may know their own address.
func (m *Message) attribute(a stun.RawAttribute) {
	switch a.Type {
	case stun.AttrChangeRequest:
		if len(a.Value) == 4 {
			m.Change, m.ChangeAddress, m.ChangePort = true, a.Value[3]&changeAddress != 0, a.Value[3]&changePort != 0
			return
		}
	case stun.AttrUsername, stun.AttrMessageIntegrity, stun.AttrMessageIntegritySHA256, stun.AttrRealm,
		stun.AttrNonce, stun.AttrUserhash:
		return
	}
	if a.Type < 0x8000 && len(m.Unknown) < stunUnknown {
		m.Unknown = append(m.Unknown, uint16(a.Type))
	}
}

// Wish is what a request asks in addition to its source address.
type Wish uint8

// The wishes (RFC 5780).
const (
	WishNothing   Wish = iota
	WishOther          // the server's other endpoint is wanted
	WishOtherPort      // the answer must come from the server's other port
)

// Request is a binding request.
func Request(id ID, w Wish) []byte {
	m := begin(stun.BindingRequest, id)
	switch w {
	case WishOther:
		m.Add(stun.AttrChangeRequest, []byte{0, 0, 0, 0})
	case WishOtherPort:
		m.Add(stun.AttrChangeRequest, []byte{0, 0, 0, changePort})
	}
	return m.Raw
}

// Answer is a server's answer to a request. It is 12 bytes longer than a request without
// attributes, 24 with an IPv6 address. It contains the server's other endpoint only for requests
// with that attribute, which cost 8 bytes more: so forging a request gains nothing.
func Answer(to Message, from, other netip.AddrPort) []byte {
	m := begin(stun.BindingSuccess, to.ID)
	addr := from.Addr().Unmap()
	a := stun.XORMappedAddress{IP: net.IP(addr.AsSlice()), Port: int(from.Port())}
	if err := a.AddTo(m); err != nil {
		return nil // no address at all
	}
	if to.Change && other.IsValid() {
		o := stun.OtherAddress{IP: net.IP(other.Addr().Unmap().AsSlice()), Port: int(other.Port())}
		if err := o.AddTo(m); err != nil {
			return nil
		}
	}
	return end(m, to.Fingerprint)
}

// Refusal is a server's answer to a request with unknown attributes.
func Refusal(to Message) []byte {
	m := begin(stun.BindingError, to.ID)
	m.Add(stun.AttrErrorCode, []byte{0, 0, 4, 20})
	var unknown []byte
	for _, t := range to.Unknown {
		unknown = binary.BigEndian.AppendUint16(unknown, t)
	}
	m.Add(stun.AttrUnknownAttributes, unknown)
	return end(m, to.Fingerprint)
}

func begin(t stun.MessageType, id ID) *stun.Message {
	m := stun.New()
	m.TransactionID = id
	m.SetType(t)
	m.WriteHeader()
	return m
}

func end(m *stun.Message, fingerprint bool) []byte {
	if fingerprint {
		if err := stun.Fingerprint.AddTo(m); err != nil {
			return nil // of integrity before it only
		}
	}
	return m.Raw
}
