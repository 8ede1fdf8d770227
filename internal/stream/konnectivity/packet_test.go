// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
	pb "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// reference renders a packet with the reference's generated types.
func reference(p *packet) *pb.Packet {
	out := &pb.Packet{Type: pb.PacketType(p.kind)}
	switch p.kind {
	case dialRequest:
		out.Payload = &pb.Packet_DialRequest{DialRequest: &pb.DialRequest{Protocol: p.protocol, Address: p.address, Random: p.random}}
	case dialResponse:
		out.Payload = &pb.Packet_DialResponse{DialResponse: &pb.DialResponse{Error: p.errText, ConnectID: p.connectID, Random: p.random}}
	case closeRequest:
		out.Payload = &pb.Packet_CloseRequest{CloseRequest: &pb.CloseRequest{ConnectID: p.connectID}}
	case closeResponse:
		out.Payload = &pb.Packet_CloseResponse{CloseResponse: &pb.CloseResponse{Error: p.errText, ConnectID: p.connectID}}
	case data:
		out.Payload = &pb.Packet_Data{Data: &pb.Data{ConnectID: p.connectID, Data: p.payload}}
	case closeDial:
		out.Payload = &pb.Packet_CloseDial{CloseDial: &pb.CloseDial{Random: p.random}}
	case drain:
		out.Payload = &pb.Packet_Drain{Drain: &pb.Drain{}}
	}
	return out
}

// flatten reads the reference's packet as the reference itself does: the type
// decides, and the getter of an absent payload gives zero values.
func flatten(in *pb.Packet) *packet {
	p := &packet{kind: PacketType(in.GetType())}
	switch in.GetType() {
	case pb.PacketType_DIAL_REQ:
		m := in.GetDialRequest()
		p.body = body{protocol: m.GetProtocol(), address: m.GetAddress(), random: m.GetRandom()}
	case pb.PacketType_DIAL_RSP:
		m := in.GetDialResponse()
		p.body = body{errText: m.GetError(), connectID: m.GetConnectID(), random: m.GetRandom()}
	case pb.PacketType_CLOSE_REQ:
		p.connectID = in.GetCloseRequest().GetConnectID()
	case pb.PacketType_CLOSE_RSP:
		p.body = body{errText: in.GetCloseResponse().GetError(), connectID: in.GetCloseResponse().GetConnectID()}
	case pb.PacketType_DATA:
		p.body = body{connectID: in.GetData().GetConnectID(), payload: in.GetData().GetData()}
	case pb.PacketType_DIAL_CLS:
		p.random = in.GetCloseDial().GetRandom()
	}
	return p
}

func same(a, b *packet) bool {
	return a.kind == b.kind && a.protocol == b.protocol && a.address == b.address && a.random == b.random &&
		a.connectID == b.connectID && a.errText == b.errText && bytes.Equal(a.payload, b.payload)
}

// anyPacket draws a packet whose type uses every field that it has.
func anyPacket(t *rapid.T) *packet {
	full := packet{kind: PacketType(rapid.IntRange(int(dialRequest), int(drain)).Draw(t, "type")), body: body{
		protocol: rapid.String().Draw(t, "protocol"), address: rapid.String().Draw(t, "address"),
		errText: rapid.String().Draw(t, "error"), random: rapid.Int64().Draw(t, "random"),
		connectID: rapid.Int64().Draw(t, "id"), payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data"),
	}}
	return flatten(reference(&full))
}

// unknown draws fields that no version knows yet.
func unknown(t *rapid.T) []byte {
	var b []byte
	for range rapid.IntRange(0, 3).Draw(t, "unknown fields") {
		num := protowire.Number(rapid.IntRange(20, 5000).Draw(t, "number"))
		switch rapid.IntRange(0, 3).Draw(t, "wire type") {
		case 0:
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), rapid.Uint64().Draw(t, "varint"))
		case 1:
			b = protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), rapid.Uint64().Draw(t, "fixed64"))
		case 2:
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		case 3:
			b = protowire.AppendFixed32(protowire.AppendTag(b, num, protowire.Fixed32Type), rapid.Uint32().Draw(t, "fixed32"))
		}
	}
	return b
}

// TestMarshal: the reference reads what we write, and writes the same bytes.
func TestMarshal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPacket(t)
		got := p.marshal(nil)
		if len(got) > p.size() {
			t.Fatalf("%d bytes, announced at most %d", len(got), p.size())
		}
		var read pb.Packet
		if err := proto.Unmarshal(got, &read); err != nil {
			t.Fatalf("the reference cannot read %x: %v", got, err)
		}
		if !proto.Equal(&read, reference(p)) {
			t.Fatalf("the reference reads %v, want %v", &read, reference(p))
		}
		if want, err := (proto.MarshalOptions{Deterministic: true}).Marshal(reference(p)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("wrote %x, the reference %x, %v", got, want, err)
		}
	})
}

// TestUnmarshal: we read what the reference writes, whatever newer versions add.
func TestUnmarshal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyPacket(t)
		raw, err := proto.Marshal(reference(want))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(append(unknown(t), raw...), unknown(t)...)
		var got packet
		if err := got.unmarshal(raw); err != nil || !same(&got, want) {
			t.Fatalf("read %+v, want %+v, %v", got, *want, err)
		}
	})
}

// TestUnmarshalSequences: any sequence of types and payloads, also contradictory
// ones, means what it means to the reference.
func TestUnmarshalSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw []byte
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			part := anyPacket(t).marshal(nil)
			raw = append(append(raw, unknown(t)...), part...)
		}
		var read pb.Packet
		if err := proto.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		var got packet
		if err := got.unmarshal(raw); err != nil || !same(&got, flatten(&read)) {
			t.Fatalf("read %+v, the reference %+v, %v", got, *flatten(&read), err)
		}
	})
}

// TestCodec: the way through gRPC's buffers, and a text that is no UTF-8.
func TestCodec(t *testing.T) {
	out, err := newCodec(newPool()).Marshal(&packet{kind: dialResponse, body: body{errText: "lookup \xff.example: no such host", random: 7}})
	if err != nil {
		t.Fatal(err)
	}
	var read pb.Packet
	if err := proto.Unmarshal(out.Materialize(), &read); err != nil || read.GetDialResponse().GetError() != "lookup  .example: no such host" {
		t.Fatalf("the reference reads %v, %v", &read, err)
	}
	raw, err := proto.Marshal(reference(&packet{kind: data, body: body{connectID: 3, payload: bytes.Repeat([]byte("x"), 100_000)}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, slice := range map[string]mem.BufferSlice{
		"one buffer": {mem.SliceBuffer(raw)}, "three buffers": {mem.SliceBuffer(raw[:1]), mem.SliceBuffer(raw[1:50_000]), mem.SliceBuffer(raw[50_000:])},
	} {
		var p packet
		if err := newCodec(newPool()).Unmarshal(slice, &p); err != nil || p.connectID != 3 || len(p.payload) != 100_000 {
			t.Errorf("%s: %d bytes for %d, %v", name, len(p.payload), p.connectID, err)
		}
		p.free()
		p.free() // again is harmless
	}
	if _, err := newCodec(newPool()).Marshal("text"); !fault.Has(err, fault.CodeInternal) {
		t.Errorf("a foreign type: %v", err)
	}
}

// malformedPackets are seeds of the fuzzer and each a case of its own.
func malformedPackets() map[string][]byte {
	inner := func(field protowire.Number, b ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
	}
	return map[string][]byte{
		"garbage":             {0xff, 0xff, 0xff},
		"cut in a tag":        {0x80},
		"field 0":             {0x00, 0x01},
		"cut in the type":     {0x08},
		"varint too long":     {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"length past the end": {0x22, 0x7f, 0x01},
		"cut inside":          inner(4, 0x08),
		"cut bytes inside":    inner(4, 0x1a, 0x7f),
		"end of no group":     {0x0c},
		"not UTF-8":           inner(2, 0x12, 0x01, 0xff),
	}
}

func TestMalformed(t *testing.T) {
	for name, raw := range malformedPackets() {
		var p packet
		if err := p.unmarshal(raw); !fault.Has(err, fault.CodeFrameInvalid) {
			t.Errorf("%s: %v, want %s", name, err, fault.CodeFrameInvalid)
		}
		if proto.Unmarshal(raw, &pb.Packet{}) == nil {
			t.Errorf("%s: the reference takes it", name)
		}
	}
}

// FuzzUnmarshal: no input panics; where the reference reads a packet, we read the same one.
func FuzzUnmarshal(f *testing.F) {
	for _, raw := range malformedPackets() {
		f.Add(raw)
	}
	for kind := dialRequest; kind <= drain+1; kind++ {
		f.Add((&packet{kind: kind, body: body{protocol: "tcp", address: "10.0.0.1:443", random: 1 << 40, connectID: 5, errText: "no", payload: []byte("x")}}).marshal(nil))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got packet
		err := got.unmarshal(raw)
		if err != nil && !fault.Has(err, fault.CodeFrameInvalid) {
			t.Errorf("an error without its code: %v", err)
		}
		var read pb.Packet
		if proto.Unmarshal(raw, &read) != nil {
			return // we need not notice everything that it refuses
		}
		if err != nil || !same(&got, flatten(&read)) {
			t.Errorf("read %+v, the reference %+v, %v", got, *flatten(&read), err)
		}
		if again := (packet{}); err == nil && again.unmarshal(got.marshal(nil)) == nil && got.kind >= dialRequest && got.kind <= drain && !same(&again, &got) {
			t.Errorf("round trip: %+v became %+v", got, again)
		}
	})
}
