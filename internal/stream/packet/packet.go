// SPDX-License-Identifier: Apache-2.0

// Package packet encodes and decodes Packet, the message of konnectivity, with which kube-apiserver speaks its GRPC
// egress protocol (docs/decisions/0007). It does not know gRPC, nor the life of a connection.
package packet

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Type is PacketType of konnectivity's client.proto; it decides, not the
// tag of the payload.
type Type int32

// The types.
const (
	DialRequest Type = iota
	DialResponse
	CloseRequest
	CloseResponse
	Data
	CloseDial
	Drain
)

// Field numbers of Packet and of its payloads.
const (
	fieldType          = 1
	fieldDialRequest   = 2
	fieldDialResponse  = 3
	fieldData          = 4
	fieldCloseRequest  = 5
	fieldCloseResponse = 6
	fieldCloseDial     = 7
	fieldDrain         = 8
)

// Packet is a Packet with its payload flattened: no two payloads give one name
// two meanings.
type Packet struct {
	Type      Type
	Protocol  string // DialRequest
	Address   string // DialRequest
	Random    int64  // DialRequest, DialResponse, CloseDial
	ConnectID int64  // DialResponse, CloseRequest, CloseResponse, Data; 0 is none
	Error     string // DialResponse, CloseResponse
	Payload   []byte // Data
}

// layout is the field number of a payload in Packet, and the field numbers
// within it (0: not present).
type layout struct{ field, protocol, address, random, connectID, errText, payload protowire.Number }

func layoutOf(field protowire.Number) (layout, bool) {
	switch field {
	case fieldDialRequest:
		return layout{field: field, protocol: 1, address: 2, random: 3}, true
	case fieldDialResponse:
		return layout{field: field, errText: 1, connectID: 2, random: 3}, true
	case fieldData:
		return layout{field: field, connectID: 1, payload: 3}, true
	case fieldCloseRequest:
		return layout{field: field, connectID: 1}, true
	case fieldCloseResponse:
		return layout{field: field, errText: 1, connectID: 2}, true
	case fieldCloseDial:
		return layout{field: field, random: 1}, true
	case fieldDrain:
		return layout{field: field}, true
	}
	return layout{}, false
}

// fieldOf is 0 for a type that this version does not know.
func fieldOf(kind Type) protowire.Number {
	fields := [...]protowire.Number{fieldDialRequest, fieldDialResponse, fieldCloseRequest, fieldCloseResponse,
		fieldData, fieldCloseDial, fieldDrain}
	if kind < 0 || int(kind) >= len(fields) {
		return 0
	}
	return fields[kind]
}

func malformed(n int) error {
	return fault.New(fault.CodeFrameInvalid, "a konnectivity packet cannot be decoded").Because(protowire.ParseError(n))
}

// Parse decodes a packet; Payload points into b. Unknown fields are
// skipped. As with the reference, the last payload counts, and none does whose
// field is not that of the type.
func Parse(b []byte) (p Packet, err error) {
	var present protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Packet{}, malformed(n)
		}
		b = b[n:]
		l, known := layoutOf(num)
		switch {
		case num == fieldType && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return Packet{}, malformed(n)
			}
			p.Type, b = Type(int32(v)), b[n:]
		case known && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return Packet{}, malformed(n)
			}
			if present != num {
				present, p = num, Packet{Type: p.Type}
			}
			if err := p.payload(l, v); err != nil {
				return Packet{}, err
			}
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return Packet{}, malformed(n)
			}
			b = b[n:]
		}
	}
	if present != fieldOf(p.Type) {
		p = Packet{Type: p.Type}
	}
	return p, nil
}

func (p *Packet) payload(l layout, b []byte) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return malformed(n)
			}
			switch num {
			case l.random:
				p.Random = int64(v)
			case l.connectID:
				p.ConnectID = int64(v)
			}
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return malformed(n)
			}
			var text *string
			switch num {
			case l.protocol:
				text = &p.Protocol
			case l.address:
				text = &p.Address
			case l.errText:
				text = &p.Error
			case l.payload:
				p.Payload = v
			}
			if text != nil {
				if !utf8.Valid(v) {
					return fault.New(fault.CodeFrameInvalid, "a konnectivity packet cannot be decoded").Whyf("a text is not UTF-8")
				}
				*text = string(v)
			}
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return malformed(n)
			}
			b = b[n:]
		}
	}
	return nil
}

// Size bounds the encoded form: fixed parts are far below 64 bytes.
func (p Packet) Size() int {
	return 64 + len(p.Protocol) + len(p.Address) + len(p.Error) + len(p.Payload)
}

// Append appends the encoded packet to b, as the reference encodes it: zero
// values are left out (proto3).
func (p Packet) Append(b []byte) []byte {
	if p.Type != 0 {
		b = protowire.AppendTag(b, fieldType, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(p.Type))
	}
	l, ok := layoutOf(fieldOf(p.Type))
	if !ok {
		return b
	}
	b = protowire.AppendTag(b, l.field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(p.payloadSize(l)))
	for num := protowire.Number(1); num <= 3; num++ {
		switch num {
		case l.protocol:
			b = appendBytes(b, num, []byte(p.Protocol))
		case l.address:
			b = appendBytes(b, num, []byte(p.Address))
		case l.errText:
			b = appendBytes(b, num, []byte(p.Error))
		case l.payload:
			b = appendBytes(b, num, p.Payload)
		case l.random:
			b = appendInt(b, num, p.Random)
		case l.connectID:
			b = appendInt(b, num, p.ConnectID)
		}
	}
	return b
}

func (p *Packet) payloadSize(l layout) (n int) {
	bytesSize := func(num protowire.Number, length int) {
		if num != 0 && length > 0 {
			n += protowire.SizeTag(num) + protowire.SizeBytes(length)
		}
	}
	intSize := func(num protowire.Number, v int64) {
		if num != 0 && v != 0 {
			n += protowire.SizeTag(num) + protowire.SizeVarint(uint64(v))
		}
	}
	bytesSize(l.protocol, len(p.Protocol))
	bytesSize(l.address, len(p.Address))
	bytesSize(l.errText, len(p.Error))
	bytesSize(l.payload, len(p.Payload))
	intSize(l.random, p.Random)
	intSize(l.connectID, p.ConnectID)
	return n
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}
