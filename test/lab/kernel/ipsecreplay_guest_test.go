// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestAReplayOfIPsec: somebody on the path sends packets again that he has heard, and others with one bit changed. The
// node's kernel drops each of them, and what a pod gets is what the other one sent.
func TestAReplayOfIPsec(t *testing.T) {
	e := newEnds(t)
	e.open()
	e.paths(0)
	names := e.keys(0, ipsec.AES, false)
	const packets = 5
	for range packets {
		e.sized(0, 100, true)
	}
	heard := e.heard(names[0])
	if len(heard) < packets {
		t.Fatalf("%d packets were heard, want at least %d", len(heard), packets)
	}
	had, err := e.side[1].pod.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func([]byte)
		counter string
	}{
		"again": {func([]byte) {}, "b:XfrmInStateSeqError"},
		"with another text": {func(esp []byte) {
			ahead(esp, 100)
			esp[len(esp)-20] ^= 1
		}, "b:XfrmInStateProtoError"},
		"with a number far ahead": {func(esp []byte) { ahead(esp, 1_000_000) }, "b:XfrmInStateProtoError"},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			before := e.counted(c.counter)
			for _, esp := range heard {
				esp = bytes.Clone(esp)
				c.change(esp)
				e.inject(esp)
			}
			until := time.Now().Add(30 * time.Second)
			for e.counted(c.counter) < before+len(heard) {
				if time.Now().After(until) {
					t.Fatalf("of %d packets not all are counted as %s: %v", len(heard), c.counter, e.trouble())
				}
			}
		})
	}
	e.t = t
	if n, err := had.With(marker); err != nil || n != 0 {
		t.Errorf("%d packets came to the pod (%v)", n, err)
	}
	e.sized(0, 100, true) // a forged number does not move the window
	e.nothingInClear()
}

// ahead gives a packet a number that its receiver has not seen.
func ahead(esp []byte, by uint32) {
	binary.BigEndian.PutUint32(esp[4:], binary.BigEndian.Uint32(esp[4:])+by)
}

// heard are the packets by a state that were on the wire, from ESP's header on.
func (e *ends) heard(name ipsec.Name) (all [][]byte) {
	e.t.Helper()
	spi := binary.BigEndian.AppendUint32(nil, name.SPI)
	if _, err := e.wire.Count(func(frame []byte) bool {
		if esp, _ := lab.ESPWithin(frame); bytes.HasPrefix(esp, spi) {
			all = append(all, bytes.Clone(esp))
		}
		return true
	}); err != nil {
		e.t.Fatal(err)
	}
	return all
}

// inject sends ESP to the second node, from where the listener sits.
func (e *ends) inject(esp []byte) {
	e.t.Helper()
	if err := e.wireHost.Do(func() error {
		conn, err := net.DialIP("ip4:50", nil, &net.IPAddr{IP: e.side[1].outer[0].AsSlice()})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(esp)
		return err
	}); err != nil {
		e.t.Fatal(err)
	}
}

// counted is the value of one of the counters that trouble shows.
func (e *ends) counted(name string) (n int) {
	e.t.Helper()
	for _, line := range e.trouble() {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			if _, err := fmt.Sscan(value, &n); err != nil {
				e.t.Fatal(err)
			}
		}
	}
	return n
}
