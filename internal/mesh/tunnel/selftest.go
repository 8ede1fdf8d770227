// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// tryOffloads says which of the wanted offloads of UDP work over loopback.
func (s *Socket) tryOffloads(ctx context.Context, want Offloads) (gso, gro bool) {
	gso, gro = want.UDPGSO, want.UDPGRO
	try := func(name string, wanted bool, joined, split bool) bool {
		if !wanted {
			s.offloads.off(name, notWanted)
			return false
		}
		if err := tryOverLoopback(ctx, joined, split); err != nil {
			s.offloads.off(name, "the test over loopback failed: "+err.Error())
			return false
		}
		return true
	}
	gso = try(udpGSO, gso, true, false)
	gro = try(udpGRO, gro, gso, true) // the kernel joins by itself only what comes from a device
	return gso, gro
}

// tryOverLoopback sends datagrams from one socket to another, joined or not, and looks
// whether they arrive as they were.
func tryOverLoopback(ctx context.Context, joined, split bool) error {
	var ends [2]*family
	for i := range ends {
		v6 := false
		f, err := openFamily(ctx, v6, 0, 0, split && i == 1)
		if err != nil {
			return err
		}
		defer f.conn.Close()
		ends[i] = f
	}
	const size = 1000
	var packets [][]byte
	for i, n := range []int{size, size, size / 2} {
		packets = append(packets, bytes.Repeat([]byte{byte(i + 1)}, n))
	}
	port := ends[1].conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	b := newBatch()
	n := b.fill(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), netip.Addr{}, packets, joined)
	if _, err := ends[0].write(b, n); err != nil {
		return err
	}
	return expect(ends[1], split, packets)
}

func expect(f *family, split bool, want [][]byte) error {
	if err := f.conn.SetReadDeadline(time.Now().Add(tunnelSelfTest)); err != nil {
		return err
	}
	in := room{bufs: make([][]byte, tunnelBatch), sizes: make([]int, tunnelBatch), from: make([]source, tunnelBatch)}
	for i := range in.bufs {
		in.bufs[i] = make([]byte, 1<<12)
	}
	for len(want) > 0 {
		n, err := f.in.read(f.raw, split, in)
		if err != nil {
			return err
		}
		for i := range n {
			switch {
			case in.sizes[i] == 0:
			case len(want) == 0 || !bytes.Equal(in.bufs[i][:in.sizes[i]], want[0]):
				return fmt.Errorf("what was sent came otherwise: %w", unix.EBADMSG)
			default:
				want = want[1:]
			}
		}
	}
	return nil
}
