// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// PacketType is PacketType of konnectivity's client.proto; it decides, not the
// tag of the payload.
type PacketType int32

const (
	dialRequest PacketType = iota
	dialResponse
	closeRequest
	closeResponse
	data
	closeDial
	drain
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

// packet is a Packet with its payload flattened: no two payloads give one name
// two meanings.
type packet struct {
	kind PacketType
	body

	buffer mem.Buffer
	by     *sent // of one that is sent to a caller
}

// body is the oneof of all payloads.
type body struct {
	protocol  string // dialRequest
	address   string // dialRequest
	random    int64  // dialRequest, dialResponse, closeDial
	connectID int64  // dialResponse, closeRequest, closeResponse, data
	errText   string // dialResponse, closeResponse
	payload   []byte // data; valid until free
}

// free gives the memory of a received packet back.
func (p *packet) free() {
	if p.buffer != nil {
		p.buffer.Free()
		p.buffer, p.payload = nil, nil
	}
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
func fieldOf(kind PacketType) protowire.Number {
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

// unmarshal decodes a packet; payload points into b. Unknown fields are
// skipped. As with the reference, the last payload counts, and none does whose
// field is not that of the type.
func (p *packet) unmarshal(b []byte) error {
	var present protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		l, known := layoutOf(num)
		switch {
		case num == fieldType && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return malformed(n)
			}
			p.kind, b = PacketType(int32(v)), b[n:]
		case known && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return malformed(n)
			}
			if present != num {
				present, p.body = num, body{}
			}
			if err := p.unmarshalPayload(l, v); err != nil {
				return err
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
	if present != fieldOf(p.kind) {
		p.body = body{}
	}
	return nil
}

func (p *body) unmarshalPayload(l layout, b []byte) error {
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
				p.random = int64(v)
			case l.connectID:
				p.connectID = int64(v)
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
				text = &p.protocol
			case l.address:
				text = &p.address
			case l.errText:
				text = &p.errText
			case l.payload:
				p.payload = v
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

// size bounds the encoded form: fixed parts are far below 64 bytes.
func (p *packet) size() int {
	return 64 + len(p.protocol) + len(p.address) + len(p.errText) + len(p.payload)
}

// marshal appends the encoded packet to b, as the reference encodes it: zero
// values are left out (proto3).
func (p *packet) marshal(b []byte) []byte {
	if p.kind != 0 {
		b = protowire.AppendTag(b, fieldType, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(p.kind))
	}
	l, ok := layoutOf(fieldOf(p.kind))
	if !ok {
		return b
	}
	b = protowire.AppendTag(b, l.field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(p.payloadSize(l)))
	for num := protowire.Number(1); num <= 3; num++ {
		switch num {
		case l.protocol:
			b = appendBytes(b, num, []byte(p.protocol))
		case l.address:
			b = appendBytes(b, num, []byte(p.address))
		case l.errText:
			b = appendBytes(b, num, []byte(p.errText))
		case l.payload:
			b = appendBytes(b, num, p.payload)
		case l.random:
			b = appendInt(b, num, p.random)
		case l.connectID:
			b = appendInt(b, num, p.connectID)
		}
	}
	return b
}

func (p *packet) payloadSize(l layout) (n int) {
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
	bytesSize(l.protocol, len(p.protocol))
	bytesSize(l.address, len(p.address))
	bytesSize(l.errText, len(p.errText))
	bytesSize(l.payload, len(p.payload))
	intSize(l.random, p.random)
	intSize(l.connectID, p.connectID)
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

// codec carries packets through gRPC without generated code, so that data is
// neither copied nor allocated per packet.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*packet)
	if !ok {
		return nil, fault.Newf(fault.CodeInternal, "a %T is no packet", v)
	}
	p.errText = strings.ToValidUTF8(p.errText, " ") // the other side refuses a packet for it
	if p.by == nil {
		pool := mem.DefaultBufferPool()
		buf := pool.Get(p.size())
		*buf = p.marshal((*buf)[:0])
		return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
	}
	buf := p.by.Get(p.size())
	*buf = p.marshal((*buf)[:0])
	return mem.BufferSlice{p.by.buffer(buf)}, nil
}

func (codec) Unmarshal(raw mem.BufferSlice, v any) error {
	p, ok := v.(*packet)
	if !ok {
		return fault.Newf(fault.CodeInternal, "a %T is no packet", v)
	}
	*p = packet{buffer: raw.MaterializeToBuffer(mem.DefaultBufferPool())}
	if err := p.unmarshal(p.buffer.ReadOnlyData()); err != nil {
		p.free()
		return err
	}
	return nil
}
