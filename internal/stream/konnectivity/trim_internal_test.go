// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
)

// TestAPacketThatWaitsHoldsWhatItCounts: a queue counts payloads, and a peer may send little in much.
func TestAPacketThatWaitsHoldsWhatItCounts(t *testing.T) {
	unknown := append([]byte{0x7a, 0x80, 0x80, 0x40}, make([]byte, 1<<20)...) // field 15, 1 MiB
	for name, c := range map[string]struct {
		payload int
		more    []byte
		stays   bool
	}{
		"a byte":                        {1, nil, false},
		"a byte and what nobody knows":  {1, unknown, false},
		"a piece":                       {32 << 10, nil, true},
		"a piece and what nobody knows": {32 << 10, unknown, false},
		"none":                          {0, unknown, false},
	} {
		sent := packet{kind: data, body: body{connectID: 7, payload: bytes.Repeat([]byte{'x'}, c.payload)}}
		raw := append(sent.marshal(nil), c.more...)
		var p packet
		pool := newPool()
		if err := newCodec(pool).Unmarshal(mem.BufferSlice{mem.NewBuffer(&raw, pool)}, &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.trim()
		if stays := p.buffer != nil; stays != c.stays || !bytes.Equal(p.payload, sent.payload) {
			t.Errorf("%s: the buffer stays: %v, payload of %d bytes", name, stays, len(p.payload))
		}
		p.free()
	}
}
