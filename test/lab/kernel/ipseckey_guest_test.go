// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestWhoHasTheKeyDecryptsIPsec: with the key that the kernel has, what was on the wire is decrypted; with one of which a
// bit is another one, nothing is.
func TestWhoHasTheKeyDecryptsIPsec(t *testing.T) {
	e := newEnds(t)
	e.open()
	for _, s := range e.side {
		var err error
		if s.socket, err = s.host.ListenUDP("udp", ":4500"); err != nil {
			t.Fatal(err)
		}
		encapsulate(t, s.socket)
	}
	keys := map[uint32][]byte{}
	for family := range 2 {
		e.paths(family)
		names := e.keys(family, ipsec.AES, true)
		e.reach(names)
		all, err := lab.SAs(e.side[0].host)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			keys[s.SPI] = s.Key
		}
		e.forget(names)
	}
	decrypted := func() int {
		n, err := e.wire.Count(func(frame []byte) bool {
			_, plain := lab.OpenESP(frame, keys)
			return bytes.Contains(plain, marker)
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := decrypted(); n == 0 {
		t.Errorf("with the keys of %d states nothing is decrypted", len(keys))
	}
	for key := range maps.Values(keys) {
		key[0] ^= 1
	}
	if n := decrypted(); n > 0 {
		t.Errorf("with other keys %d packets are decrypted", n)
	}
}
