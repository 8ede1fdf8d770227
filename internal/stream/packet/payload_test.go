// SPDX-License-Identifier: Apache-2.0

package packet_test

import (
	"bytes"
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/stream/packet"
)

// kep are the messages as the KEP writes them down, and the metadata, by protobuf's own library.
func kep(t testing.TB) (options, payload protoreflect.MessageDescriptor) {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, JsonName: &name, Number: &number, Type: &kind,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	text, raw := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES
	pairs := field("metadata", 2, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	pairs.Label, pairs.TypeName = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), proto.String(".Payload.MetadataEntry")
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("kep.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("ConnectOptions"), Field: []*descriptorpb.FieldDescriptorProto{field("remote_addr", 1, text)}},
			{Name: proto.String("Payload"), Field: []*descriptorpb.FieldDescriptorProto{field("data", 1, raw), pairs},
				NestedType: []*descriptorpb.DescriptorProto{{Name: proto.String("MetadataEntry"),
					Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
					Field:   []*descriptorpb.FieldDescriptorProto{field("key", 1, text), field("value", 2, text)}}}},
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("ConnectOptions"), file.Messages().ByName("Payload")
}

func mapOf(pairs []reqmeta.Pair) map[string]string {
	out := map[string]string{}
	for _, p := range pairs {
		out[p.Key] = p.Value
	}
	return out
}

// FuzzPayload compares what is read with protobuf's own library, and what is written with what was read.
func FuzzPayload(f *testing.F) {
	f.Add([]byte{0x0a, 1, 'x'})
	f.Add(packet.Payload{Data: []byte("x"), Metadata: []reqmeta.Pair{{Key: "a", Value: "b"}}}.Append(nil))
	f.Add([]byte{0x0a, 1, 'x', 0x0a, 2, 'y', 'z', 0x18, 7, 0x12, 3, 0x0a, 1, 0xff})
	f.Add([]byte{0x12, 0})
	_, d := kep(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := packet.ParsePayload(raw)
		want := dynamicpb.NewMessage(d)
		if theirs := proto.Unmarshal(raw, want); (err == nil) != (theirs == nil) {
			t.Fatalf("%v, and protobuf says %v", err, theirs)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(got.Data, want.Get(d.Fields().ByNumber(1)).Bytes()) {
			t.Errorf("data %x", got.Data)
		}
		pairs := map[string]string{}
		want.Get(d.Fields().ByNumber(2)).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			pairs[k.String()] = v.String()
			return true
		})
		if !maps.Equal(pairs, mapOf(got.Metadata)) {
			t.Errorf("metadata %v, want %v", got.Metadata, pairs)
		}
		again, err := packet.ParsePayload(got.Append(nil))
		if err != nil || !bytes.Equal(again.Data, got.Data) || !maps.Equal(mapOf(again.Metadata), pairs) {
			t.Errorf("%v comes back as %v: %v", got, again, err)
		}
	})
}

// FuzzConnectOptions does the same.
func FuzzConnectOptions(f *testing.F) {
	f.Add(packet.AppendConnectOptions(nil, "8.8.8.8:53"))
	f.Add([]byte{0x0a, 1, 'x', 0x0a, 1, 'y', 0x10, 1})
	f.Add([]byte{0x0a, 1, 0xff})
	d, _ := kep(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := packet.ParseConnectOptions(raw)
		want := dynamicpb.NewMessage(d)
		if theirs := proto.Unmarshal(raw, want); (err == nil) != (theirs == nil) {
			t.Fatalf("%v, and protobuf says %v", err, theirs)
		}
		if err == nil && got != want.Get(d.Fields().ByNumber(1)).String() {
			t.Errorf("%q", got)
		}
		if err == nil {
			if again, err := packet.ParseConnectOptions(packet.AppendConnectOptions(nil, got)); err != nil || again != got {
				t.Errorf("%q comes back as %q: %v", got, again, err)
			}
		}
	})
}
