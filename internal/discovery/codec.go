// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// raw is a message that is bytes already. Many streams send the same ones.
type raw []byte

// codec is the one of gRPC for everything but what was made ready to be sent.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*sending); ok {
		return m.data, nil
	}
	return c.CodecV2.Marshal(v)
}

// unreadable is the number of a field, unknown to all messages, in which the codec
// says why it could not read one.
const unreadable = 1<<29 - 1

// Unmarshal implements encoding.CodecV2. What cannot be read is marked, and taken:
// gRPC would answer for itself, before anybody is asked, as if it were a fault of
// the service.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(protobuf.Message)
	if err == nil || !ok {
		return err
	}
	protobuf.Reset(m)
	m.ProtoReflect().SetUnknown(field(nil, unreadable, []byte(err.Error())))
	return nil
}

// readable is the refusal of a message that the codec could not read.
func readable(v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return nil
	}
	number, _, n := protowire.ConsumeTag(m.ProtoReflect().GetUnknown())
	if n < 0 || number != unreadable {
		return nil
	}
	why, _ := protowire.ConsumeBytes(m.ProtoReflect().GetUnknown()[n:])
	return fault.New(fault.CodeEntryInvalid, "the call is refused").Whyf("%q", why).
		Hint("send a message as docs/reference/discovery-wire.md says, ids in UTF-8")
}

// The fields of the messages that are put together here, because most of their
// bytes are there already: proto/sidero/server.proto, proto/discovery/discovery.proto.
const (
	watchAffiliates, watchDeleted                  = 1, 2
	affiliateID, affiliateData, affiliateEndpoints = 1, 2, 3

	frameSnapshot, frameChange   = 3, 4
	snapshotEntries              = 1
	changeEntries, changeExpired = 1, 2
	frameHead                    = 8 // at most, before what is in a frame
)

// field appends a field of bytes.
func field(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// fieldSize is how much field appends.
func fieldSize(number protowire.Number, n int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(n)
}

// pack puts items, which are fields already, into as many messages as a bound
// asks for. Without an item there is no message.
func pack(items [][]byte, most int) (out [][]byte) {
	var now []byte
	for _, item := range items {
		if len(now) > 0 && len(now)+len(item) > most {
			out, now = append(out, now), nil
		}
		now = append(now, item...)
	}
	if len(now) > 0 {
		out = append(out, now)
	}
	return out
}
