// SPDX-License-Identifier: Apache-2.0

package espudp

import (
	"bytes"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// FuzzKindOf: only what is behind a marker is taken, as it is, and of one kind alone.
func FuzzKindOf(f *testing.F) {
	for _, head := range [][]byte{{0xf5, 0x54, 0x42, 0x01}, {0xc0, 0, 0, 0, 1}, {0x40}, {1, 0, 0, 0},
		nat.Request(nat.ID{}, nat.WishNothing)} {
		f.Add(head)
		f.Add(append([]byte(nat.Marker), head...))
		f.Add(append([]byte{0, 0, 0, 1}, head...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, data := kindOf(b)
		if kind == unknown {
			if data != nil {
				t.Fatalf("%x is of no kind, and has %x", b, data)
			}
			return
		}
		if !bytes.Equal(append([]byte(nat.Marker), data...), b) || len(data) == 0 {
			t.Fatalf("%x becomes %x", b, data)
		}
		if kind == stun != nat.IsSTUN(data) || kind == probe != (disco.KindOf(data) == disco.Probe) {
			t.Fatalf("%x is of kind %d", b, kind)
		}
		if kind == quic && data[0]&0x40 == 0 {
			t.Fatalf("%x is QUIC's", b)
		}
	})
}
