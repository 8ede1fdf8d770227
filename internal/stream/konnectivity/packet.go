// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"strings"

	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	form "github.com/tombolo-io/tombolo/internal/stream/packet"
)

// PacketType is the type of a packet.
type PacketType form.Type

const (
	dialRequest   = PacketType(form.DialRequest)
	dialResponse  = PacketType(form.DialResponse)
	closeRequest  = PacketType(form.CloseRequest)
	closeResponse = PacketType(form.CloseResponse)
	data          = PacketType(form.Data)
	closeDial     = PacketType(form.CloseDial)
	drain         = PacketType(form.Drain)
)

// packet is a Packet with the memory of one that was received, or of one that is sent.
type packet struct {
	kind PacketType
	body

	buffer mem.Buffer
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

// trim has a packet that waits hold no more than its queue counts: a few bytes may be a piece of a large buffer of
// gRPC, or come with fields that nobody knows.
func (p *packet) trim() {
	if p.buffer == nil || len(p.payload) >= trimBelow && p.buffer.Len() <= len(p.payload)+queueEntry {
		return
	}
	payload := bytes.Clone(p.payload)
	p.buffer.Free()
	p.buffer, p.payload = nil, payload
}

// unmarshal decodes a packet; payload points into b.
func (p *packet) unmarshal(b []byte) error {
	q, err := form.Parse(b)
	if err != nil {
		return err
	}
	p.kind = PacketType(q.Type)
	p.body = body{protocol: q.Protocol, address: q.Address, random: q.Random, connectID: q.ConnectID, errText: q.Error,
		payload: q.Payload}
	return nil
}

func (p *packet) plain() form.Packet {
	return form.Packet{Type: form.Type(p.kind), Protocol: p.protocol, Address: p.address, Random: p.random,
		ConnectID: p.connectID, Error: p.errText, Payload: p.payload}
}

// size bounds the encoded form.
func (p *packet) size() int { return p.plain().Size() }

// marshal appends the encoded packet to b.
func (p *packet) marshal(b []byte) []byte { return p.plain().Append(b) }

// codec carries packets through gRPC without generated code, so that data is
// neither copied nor allocated per packet.
type codec struct{ pool mem.BufferPool }

func newCodec(pool mem.BufferPool) codec { return codec{pool} }

func (codec) Name() string { return "proto" }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*packet)
	if !ok {
		return nil, fault.Newf(fault.CodeInternal, "a %T is no packet", v)
	}
	p.errText = strings.ToValidUTF8(p.errText, " ") // the other side refuses a packet for it
	buf := c.pool.Get(p.size())
	*buf = p.marshal((*buf)[:0])
	return mem.BufferSlice{mem.NewBuffer(buf, c.pool)}, nil
}

func (c codec) Unmarshal(raw mem.BufferSlice, v any) error {
	p, ok := v.(*packet)
	if !ok {
		return fault.Newf(fault.CodeInternal, "a %T is no packet", v)
	}
	*p = packet{buffer: raw.MaterializeToBuffer(c.pool)}
	if err := p.unmarshal(p.buffer.ReadOnlyData()); err != nil {
		p.free()
		return err
	}
	return nil
}
