// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2"
)

const (
	frameHead = 9        // bytes before a frame's payload
	frameMost = 16 << 10 // of a payload: what a peer may send, and what we do
)

// frame is the head of one.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	length int
	stream uint32
}

func parseFrame(b []byte) frame {
	return frame{length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]), kind: http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) & (1<<31 - 1)}
}

func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), byte(f.kind), byte(f.flags))
	return binary.BigEndian.AppendUint32(b, f.stream)
}

func appendWindow(b []byte, stream uint32, n int) []byte {
	b = appendFrame(b, frame{kind: http2.FrameWindowUpdate, length: 4, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	b = appendFrame(b, frame{kind: http2.FrameRSTStream, length: 4, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, why string) []byte {
	b = appendFrame(b, frame{kind: http2.FrameGoAway, length: 8 + len(why)})
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, why...)
}

func appendSettings(b []byte, all ...http2.Setting) []byte {
	b = appendFrame(b, frame{kind: http2.FrameSettings, length: 6 * len(all)})
	for _, s := range all {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

// appendField appends a field that no table holds, so that a connection has no table for what it sends.
func appendField(b []byte, name, value string) []byte {
	return appendText(appendText(append(b, 0), name), value)
}

// appendText is HPACK's text, not compressed.
func appendText(b []byte, s string) []byte {
	const prefix = 1<<7 - 1
	if n := uint64(len(s)); n < prefix {
		b = append(b, byte(n))
	} else {
		b = binary.AppendUvarint(append(b, prefix), n-prefix)
	}
	return append(b, s...)
}

// breach is a peer's, for which its connection ends.
type breach struct {
	code http2.ErrCode
	why  string
}

func (b *breach) Error() string { return fmt.Sprintf("%v: %s", b.code, b.why) }

func broken(code http2.ErrCode, why string) error { return &breach{code, why} }

// unpad removes padding, and a priority if there is one.
func unpad(f frame, b []byte) ([]byte, error) {
	padding := 0
	if f.flags.Has(http2.FlagHeadersPadded) {
		if len(b) == 0 {
			return nil, broken(http2.ErrCodeFrameSize, "padding is missing")
		}
		padding, b = int(b[0]), b[1:]
	}
	if f.flags.Has(http2.FlagHeadersPriority) {
		if len(b) < 5 {
			return nil, broken(http2.ErrCodeFrameSize, "a priority is missing")
		}
		b = b[5:]
	}
	if padding > len(b) {
		return nil, broken(http2.ErrCodeProtocol, "more padding than frame")
	}
	return b[:len(b)-padding], nil
}
