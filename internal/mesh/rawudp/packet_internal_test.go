// SPDX-License-Identifier: Apache-2.0

package rawudp

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
)

// TestWhatIsHeard: probes and STUN to the port, and nothing else.
func TestWhatIsHeard(t *testing.T) {
	const port = 51820
	probe, stun := "f5544201000000000000", "010100002112a4420000000000000000"
	for _, v6 := range []bool{false, true} {
		vm, err := bpf.NewVM(filter(port, v6))
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			probe: true, stun: true, "04000000aabbccdd00000000": false, "01000000aabbccdd00000000": false, "": false,
			"f5544201": true, "f55442": false, "f554424500000000": false, "010100002112a4": false, "2112a4420000000000": false,
		} {
			data, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			for to, hears := range map[uint16]bool{port: want, port + 1: false} {
				b := make([]byte, head)
				binary.BigEndian.PutUint16(b, port) // from the same port, which says nothing
				binary.BigEndian.PutUint16(b[2:], to)
				b = append(b, data...)
				if !v6 { // with an option
					b = append(append([]byte{0x46}, make([]byte, 23)...), b...)
				}
				if n, err := vm.Run(b); err != nil || (n > 0) != hears {
					t.Errorf("IPv6 %v, %s to %d: %d bytes pass (%v), want some: %v", v6, text, to, n, err, hears)
				}
			}
		}
	}
}

// TestChecksums are those of RFC 768: with the right one in its field the sum over all is zero.
func TestChecksums(t *testing.T) {
	for _, ends := range [][2]string{{"192.0.2.1:51820", "198.51.100.7:9"}, {"[2001:db8::1]:51820", "[2001:db8::2]:65535"}} {
		from, to := netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
		for _, data := range []string{"", "a", "ab", "abc", "\xff\xff\xff\xff"} {
			b := compose(from, to, []byte(data))
			if got := checksum(from.Addr(), to.Addr(), b); got != 0xffff { // the complement of zero, and never zero itself
				t.Errorf("%v %q: %#x remains", ends, data, got)
			}
			one, other, in, ok := parse(b)
			if !ok || one != from.Port() || other != to.Port() || string(in) != data {
				t.Errorf("%v %q became %d, %d, %q", ends, data, one, other, in)
			}
		}
	}
	// By hand: the words of both addresses, 17, 9, and those of the datagram, of which the last is filled up.
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	if got := checksum(one, other, []byte{0, 1, 0, 2, 0, 9, 0, 0, 'x'}); got != 0x3d5 {
		t.Errorf("the checksum is %#x", got)
	}
}

// TestWhatIsNoPacket is none, and nothing panics.
func TestWhatIsNoPacket(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 7), {0, 0, 0, 0, 0, 7, 0, 0}, {0, 0, 0, 0, 0, 9, 0, 0}} {
		if _, _, _, ok := parse(b); ok {
			t.Errorf("%x is one of UDP", b)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 19), make([]byte, 20), append([]byte{0x4f}, make([]byte, 30)...)} {
		if _, ok := within(b); ok {
			t.Errorf("%x is one of IPv4", b)
		}
	}
}
