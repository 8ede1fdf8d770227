// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestSequenceNumbersOfIPsec: with 64 bits packets pass 2^32, and with 32 bits no further. At 2^64 none leaves any more,
// in clear neither, until there are new keys.
func TestSequenceNumbersOfIPsec(t *testing.T) {
	e := newEnds(t)
	e.open()
	e.paths(0)
	t.Run("64 bits at 2^32", func(t *testing.T) {
		e.t = t
		names := e.keys(0, ipsec.AES, false)
		e.worn(names, 1<<32-3, true)
		e.reach(names)
		e.forget(names)
	})
	t.Run("64 bits at 2^64", func(t *testing.T) {
		e.t = t
		names := e.keys(0, ipsec.AES, false)
		e.worn(names, 1<<64-3, true)
		e.exhausted()
		fresh := e.keys(0, ipsec.AES, false)
		e.forget(names)
		e.reach(fresh)
		e.forget(fresh)
	})
	t.Run("32 bits at 2^32", func(t *testing.T) {
		e.t = t
		names := e.shortKeys()
		e.worn(names, 1<<32-3, false)
		e.exhausted()
		e.forget(names)
	})
	e.nothingInClear()
}

// worn has both ends of states be at a sequence number.
func (e *ends) worn(names []ipsec.Name, at uint64, esn bool) {
	e.t.Helper()
	for i, n := range names { // from side i
		sa := lab.SA{To: n.To, SPI: n.SPI}
		if err := errors.Join(lab.Age(e.side[i].host, sa, lab.Wear{Sent: at, ESN: esn}),
			lab.Age(e.side[1-i].host, sa, lab.Wear{Received: at, ESN: esn})); err != nil {
			e.t.Fatal(err)
		}
	}
}

// shortKeys gives both nodes states with sequence numbers of 32 bits, as the mesh makes none.
func (e *ends) shortKeys() (names []ipsec.Name) {
	e.t.Helper()
	for i, s := range e.side {
		far := e.side[1-i]
		e.next++
		state := &netlink.XfrmState{Src: s.outer[0].AsSlice(), Dst: far.outer[0].AsSlice(), Proto: netlink.XFRM_PROTO_ESP,
			Mode: netlink.XFRM_MODE_TUNNEL, Spi: int(e.next), Reqid: 1, Ifid: ipsecID, ReplayWindow: 32,
			Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, ipsec.KeyBytes), ICVLen: 128}}
		far.do(e.t, func() error { return netlink.XfrmStateAdd(state) })
		state.OutputMark = &netlink.XfrmMark{Value: ipsecMark, Mask: 0x60}
		s.do(e.t, func() error { return netlink.XfrmStateAdd(state) })
		names = append(names, ipsec.Name{To: far.outer[0], SPI: e.next})
	}
	return names
}

// exhausted sends from the first pod until the kernel says that there is no sequence number left. A few packets pass.
func (e *ends) exhausted() {
	e.t.Helper()
	const none = "a:XfrmOutStateSeqError"
	conn, err := e.side[0].pod.ListenUDP("udp4", ":0")
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	before := e.trouble()
	until := time.Now().Add(time.Minute)
	sent := 0
	for now := before; !slices.ContainsFunc(now, func(s string) bool {
		return strings.HasPrefix(s, none) && !slices.Contains(before, s)
	}); now = e.trouble() {
		if time.Now().After(until) {
			e.t.Fatalf("after %d packets there is none of %s: %v", sent, none, now)
		}
		if _, err := conn.WriteToUDPAddrPort(marker, netip.AddrPortFrom(e.side[1].inner[0], ipsecEcho)); err == nil {
			sent++
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		e.t.Fatal(err)
	}
	back := 0
	for buffer := make([]byte, 100); ; back++ {
		if _, _, err := conn.ReadFromUDPAddrPort(buffer); err != nil {
			break
		}
	}
	if back == 0 || back > 2 {
		e.t.Errorf("%d packets of %d came back, want those before the end: 1 or 2", back, sent)
	}
}

// TestPacketSizesOfIPsec: the largest packet that is computed for a path passes in one packet of the path's size, both
// ways. One with a byte more is refused, and its sender is told the size.
func TestPacketSizesOfIPsec(t *testing.T) {
	e := newEnds(t)
	e.open()
	for _, s := range e.side {
		s.do(t, func() error { // what counts is the path
			link, err := netlink.LinkByName(ipsecLink)
			if err == nil {
				err = netlink.LinkSetMTU(link, 1500)
			}
			return err
		})
		var err error
		if s.socket, err = s.host.ListenUDP("udp", ":4500"); err != nil {
			t.Fatal(err)
		}
		encapsulate(t, s.socket)
	}
	for _, c := range []struct {
		name   string
		family int
		udp    bool
		inner  int // what fits in 1,500 bytes: 32 of ESP, its trailer of 2, and what is around it
	}{ // the largest first: what a pod has been told counts for 10 minutes
		{"IPv4", 0, false, 1500 - 20 - 32 - 2},
		{"UDP over IPv4", 0, true, 1500 - 20 - 8 - 32 - 2},
		{"IPv6", 1, false, 1500 - 40 - 32 - 2},
		{"UDP over IPv6", 1, true, 1500 - 40 - 8 - 32 - 2},
	} {
		e.paths(c.family)
		names := e.keys(c.family, ipsec.AES, c.udp)
		for inner, headers := range []int{20 + 8, 40 + 8} {
			t.Run(fmt.Sprintf("%s, within it IPv%d", c.name, 4+2*inner), func(t *testing.T) {
				e.t = t
				e.sized(inner, c.inner-headers, true)
				e.sized(inner, c.inner+1-headers, false)
				if told := e.told(inner); told != c.inner {
					t.Errorf("the pod is told %d bytes, want %d", told, c.inner)
				}
			})
		}
		e.forget(names)
	}
	if n, err := e.wire.Count(inPieces); err != nil || n > 0 {
		t.Errorf("%d packets were in pieces (%v)", n, err)
	}
	if n, err := e.wire.Count(func(frame []byte) bool { return len(frame) == 14+1500 }); err != nil || n == 0 {
		t.Errorf("%d packets were as large as the path (%v)", n, err)
	}
	e.nothingInClear()
}

// dial is a socket of the first pod to the echo of the other one, which takes no packet to pieces.
func (e *ends) dial(inner int) *net.UDPConn {
	e.t.Helper()
	c, err := e.side[0].pod.DialContext(context.Background(), "udp",
		netip.AddrPortFrom(e.side[1].inner[inner], ipsecEcho).String())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	conn := c.(*net.UDPConn)
	e.control(conn, func(fd int) error {
		if inner == 0 {
			return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	})
	return conn
}

func (e *ends) control(conn *net.UDPConn, do func(fd int) error) {
	e.t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(fd uintptr) { err = do(int(fd)) })
		err = errors.Join(err, ctlErr)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// sized sends so many bytes to the echo until they come back, or until it is told that they are too many.
func (e *ends) sized(inner, size int, fits bool) {
	e.t.Helper()
	conn := e.dial(inner)
	data := bytes.Repeat(marker, size/len(marker)+1)[:size]
	for range 60 {
		_, err := conn.Write(data)
		if errors.Is(err, unix.EMSGSIZE) {
			if fits {
				e.t.Errorf("%d bytes are too many", size)
			}
			return
		}
		if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			e.t.Fatal(err)
		}
		n, err := conn.Read(make([]byte, 2000))
		if err == nil && n == size {
			if !fits {
				e.t.Errorf("%d bytes have passed", size)
			}
			return
		}
	}
	e.t.Errorf("%d bytes have not come back, and nobody said that they are too many: %v", size, e.trouble())
}

// told is the size that the first pod's kernel has been told of the path to the other one.
func (e *ends) told(inner int) (size int) {
	conn := e.dial(inner)
	e.control(conn, func(fd int) (err error) {
		if inner == 0 {
			size, err = unix.GetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU)
		} else {
			size, err = unix.GetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MTU)
		}
		return err
	})
	return size
}

// inPieces reports whether a frame is a piece of a packet.
func inPieces(frame []byte) bool {
	switch kind := binary.BigEndian.Uint16(frame[12:]); kind {
	case unix.ETH_P_IP:
		return binary.BigEndian.Uint16(frame[14+6:])&0x3fff != 0 // more of them, or not the first one
	case unix.ETH_P_IPV6:
		return frame[14+6] == unix.IPPROTO_FRAGMENT
	}
	return false
}
