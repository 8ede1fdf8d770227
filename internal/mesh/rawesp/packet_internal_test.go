// SPDX-License-Identifier: Apache-2.0

package rawesp

import (
	"bytes"
	"testing"

	"golang.org/x/net/bpf"
)

// withHeader is a packet as a raw socket of IPv4 shows it.
func withHeader(b []byte, words int) []byte {
	return append(append([]byte{byte(0x40 | words)}, make([]byte, 4*words-1)...), b...)
}

func TestFilter(t *testing.T) {
	ours, other := compose([]byte("a trial")), append([]byte{0xf5, 'T', 'B', 0x51, 0, 0, 0, 1}, "of ESP"...)
	for _, v6 := range []bool{false, true} {
		vm, err := bpf.NewVM(filter(v6))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			packet []byte
			passes bool
		}{{ours, true}, {other, false}, {ours[:3], false}, {nil, false}} {
			for _, words := range []int{5, 6} {
				b := c.packet
				if !v6 {
					b = withHeader(b, words)
				}
				n, err := vm.Run(b)
				data, ok := parse(b, v6)
				if err != nil || n > 0 != c.passes || ok != c.passes || ok && string(data) != "a trial" {
					t.Errorf("IPv6 %v, %d words of header, %x: the filter says %d (%v), and it is read as %q, %v", v6, words,
						c.packet, n, err, data, ok)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(withHeader(compose([]byte("a trial")), 5), false)
	f.Add(compose([]byte("a trial")), true)
	f.Add([]byte{0x41}, false)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		if data, ok := parse(b, v6); ok && !bytes.HasSuffix(b, data) {
			t.Fatalf("%x has %x within", b, data)
		}
	})
}
