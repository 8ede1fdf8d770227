// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The frames of docs/reference/mux.md.
const (
	frameData        = 1
	frameOpen        = 2
	frameWindow      = 3
	frameFin         = 4
	frameRst         = 5
	framePing        = 6
	framePong        = 7
	frameGoAway      = 8
	frameMove        = 9
	frameMoved       = 10
	frameLeave       = 11
	frameConnections = 12
)

const (
	headerSize  = 8
	mostPayload = 64 << 10            // that we accept
	sendPayload = 2 * quantum         // that we send: two turns, and with its header two TLS records
	firstWindow = 256 << 10           // of a stream, without pressure
	leastWindow = 16 << 10            // of a stream under pressure
	mostWindow  = 16 << 20            // of a stream
	mostID      = 1<<32 - 1           // then stream ids start again
	quantum     = 16<<10 - headerSize // of a stream in its turn: with its header one TLS record
	batchSize   = 64 << 10            // of one write
	bulkBatch   = 256 << 10           // of one write where nothing interactive has to wait for it
	smallFrame  = 4 << 10             // copied into the batch instead of being written on its own
	mostControl = 64 << 10            // control frames that wait for a link that does not move
	mostConns   = 16                  // connections of a session, by the specification
)

// Codes of RST and GOAWAY that are the mux's own; the others are the application's.
const (
	resetClosed = 0
	// ResetRefused: nobody has seen the stream; it may be tried elsewhere.
	ResetRefused = 7
	resetLost    = 8

	goAwayDrain     = 0
	goAwayViolation = 1
	goAwayEnd       = 2
)

// header of a frame.
type header struct {
	kind   byte
	length int
	id     uint32
}

func appendHeader(b []byte, kind byte, length int, id uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(kind)<<24|uint32(length))
	return binary.BigEndian.AppendUint32(b, id)
}

// putHeader writes a header into the first 8 bytes of b.
func putHeader(b []byte, kind byte, length int, id uint32) {
	binary.BigEndian.PutUint32(b, uint32(kind)<<24|uint32(length))
	binary.BigEndian.PutUint32(b[4:], id)
}

// shape is what a frame type asks of its header.
type shape struct {
	least   int  // bytes of payload
	stream  bool // the id names a stream
	session bool // the id is 0
}

func shapes() [13]shape {
	return [13]shape{
		frameData: {1, true, false}, frameOpen: {8, true, false}, frameWindow: {8, true, true},
		frameFin: {0, true, false}, frameRst: {4, true, false}, framePing: {8, false, true},
		framePong: {8, false, true}, frameGoAway: {4, false, true}, frameMove: {8, true, false},
		frameMoved: {8, true, false}, frameLeave: {0, false, true}, frameConnections: {4, false, true},
	}
}

// parseHeader reads a header and refuses what no frame can be. known is false
// for a type of a newer version, whose payload is to be skipped.
func parseHeader(b *[headerSize]byte) (h header, known bool, err error) {
	first := binary.BigEndian.Uint32(b[:])
	h = header{kind: byte(first >> 24), length: int(first & 0xffffff), id: binary.BigEndian.Uint32(b[4:])}
	if h.length > mostPayload {
		return h, false, violation("a frame of type %d has %d bytes", h.kind, h.length)
	}
	s, known := shapeOf(h.kind)
	switch {
	case !known:
		return h, false, nil
	case h.length < s.least:
		return h, false, violation("a frame of type %d has only %d bytes", h.kind, h.length)
	case h.id == 0 && !s.session || h.id != 0 && !s.stream:
		return h, false, violation("a frame of type %d has the id %d", h.kind, h.id)
	}
	return h, true, nil
}

func shapeOf(kind byte) (shape, bool) {
	all := shapes()
	if kind == 0 || int(kind) >= len(all) {
		return shape{}, false
	}
	return all[kind], true
}

// violation is what ends the session of a peer that breaks the protocol.
func violation(format string, args ...any) error {
	return fault.New(fault.CodeFrameInvalid, "the peer broke the mux protocol").Whyf(format, args...)
}
