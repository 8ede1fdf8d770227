// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
)

// The messages of the KEP's own protocol, of which nothing was shipped by the reference:
//
//	ConnectOptions{ remote_addr = 1 }, in the metadata of a stream
//	Payload{ data = 1 }, and ours: map<string, string> metadata = 2
const (
	fieldRemoteAddress = 1
	fieldBytes         = 1
	fieldMetadata      = 2
	fieldKey           = 1
	fieldValue         = 2
)

// Payload is what one message carries.
type Payload struct {
	Data     []byte // points into what was parsed
	Metadata []reqmeta.Pair
}

// ParseConnectOptions gives the target that ConnectOptions name, empty if there is none.
func ParseConnectOptions(b []byte) (address string, err error) {
	err = fields(b, func(num protowire.Number, v []byte) error {
		if num == fieldRemoteAddress {
			address = string(v)
			return textual(v)
		}
		return nil
	})
	return address, err
}

// AppendConnectOptions is the other way round.
func AppendConnectOptions(b []byte, address string) []byte {
	return appendText(b, fieldRemoteAddress, address)
}

// ParsePayload decodes a Payload. Unknown fields are skipped, and the last of several data counts.
func ParsePayload(b []byte) (p Payload, err error) {
	err = fields(b, func(num protowire.Number, v []byte) error {
		switch num {
		case fieldBytes:
			p.Data = v
		case fieldMetadata:
			pair, err := pairOf(v)
			p.Metadata = append(p.Metadata, pair)
			return err
		}
		return nil
	})
	if err != nil {
		return Payload{}, err
	}
	return p, nil
}

func pairOf(b []byte) (p reqmeta.Pair, err error) {
	err = fields(b, func(num protowire.Number, v []byte) error {
		switch num {
		case fieldKey:
			p.Key = string(v)
		case fieldValue:
			p.Value = string(v)
		default:
			return nil
		}
		return textual(v)
	})
	return p, err
}

// Append appends the encoded payload to b.
func (p Payload) Append(b []byte) []byte {
	if len(p.Data) > 0 {
		b = protowire.AppendTag(b, fieldBytes, protowire.BytesType)
		b = protowire.AppendBytes(b, p.Data)
	}
	for _, pair := range p.Metadata {
		b = protowire.AppendTag(b, fieldMetadata, protowire.BytesType)
		b = protowire.AppendBytes(b, appendText(appendText(nil, fieldKey, pair.Key), fieldValue, pair.Value))
	}
	return b
}

// PayloadHead is more than what an encoded Payload adds to its data.
const PayloadHead = 16

func appendText(b []byte, num protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), text)
}

func textual(v []byte) error {
	if !utf8.Valid(v) {
		return fault.New(fault.CodeFrameInvalid, "a konnectivity message cannot be decoded").Whyf("a text is not UTF-8")
	}
	return nil
}

// fields calls visit for each field of bytes, and skips the others.
func fields(b []byte, visit func(num protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		if num > protowire.MaxValidNumber {
			return fault.New(fault.CodeFrameInvalid, "a konnectivity message cannot be decoded").
				Whyf("a field has the number %d", num)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return malformed(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return malformed(n)
		}
		if err := visit(num, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
