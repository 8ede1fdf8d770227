// SPDX-License-Identifier: Apache-2.0

package disco

import (
	"reflect"
	"testing"
)

// FuzzPayload: what a member of the cluster seals may be anything. Nothing
// panics, and what is taken is written and read alike.
func FuzzPayload(f *testing.F) {
	for _, m := range []Message{{Ping: &Ping{ID: 1}}, {Pong: &Pong{ID: 1}}, {Call: &Call{}}, {Trial: &Trial{ID: 1, Heard: 2}}} {
		f.Add(m.append(nil, 0))
	}
	f.Add([]byte{typeCall, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 0, 9})
	f.Add([]byte{9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			if !reflect.DeepEqual(m, Message{}) {
				t.Fatalf("%v, and yet %+v", err, m)
			}
			return
		}
		if reflect.DeepEqual(m, Message{}) {
			return // of an unknown type
		}
		again, err := parse(m.append(nil, 0))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

// FuzzKindOf: a packet is of one kind, and nothing of any length panics.
func FuzzKindOf(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{0xf5, 0x54, 0x42, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind := KindOf(b)
		if _, ok := HintOf(b); ok && kind != Probe {
			t.Fatalf("a hint of a packet of kind %v", kind)
		}
	})
}
