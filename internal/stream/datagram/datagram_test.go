// SPDX-License-Identifier: Apache-2.0

package datagram_test

import (
	"bytes"
	"testing"

	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// What is appended is split again, wherever the stream is cut, and nothing else is taken for it.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("abc"), []byte{}, byte(1))
	f.Fuzz(func(t *testing.T, one, two []byte, cut byte) {
		text, err := datagram.Append(nil, one)
		if err == nil {
			text, err = datagram.Append(text, two)
		}
		if err != nil {
			return
		}
		split := func(text []byte) (got [][]byte, err error) {
			var s datagram.Splitter
			for err == nil && len(text) > 0 {
				n := min(int(cut)+1, len(text))
				err = s.Split(text[:n], func(d []byte) error { got = append(got, bytes.Clone(d)); return nil })
				text = text[n:]
			}
			return got, err
		}
		got, err := split(text)
		if err != nil || len(got) != 2 || !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
			t.Fatalf("%q, %v", got, err)
		}
		got, _ = split(one) // anything
		var again []byte
		for _, d := range got {
			again, _ = datagram.Append(again, d)
		}
		if !bytes.HasPrefix(one, again) {
			t.Fatalf("%q became %q", one, got)
		}
	})
}

func TestBounds(t *testing.T) {
	if _, err := datagram.Append(nil, make([]byte, datagram.Most+1)); err == nil {
		t.Error("a datagram that no UDP has is written")
	}
	var s datagram.Splitter
	if err := s.Split([]byte{0xff, 0xff}, func([]byte) error { t.Error("emitted"); return nil }); err == nil {
		t.Error("a datagram that no UDP has is read")
	}
}
