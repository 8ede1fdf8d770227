// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/test/lab"
)

// patience bounds the wait for a packet; none is expected to take long.
const patience = 10 * time.Second

// tunnel stands for the engine: what the kernel sends by the link is read here.
type tunnel struct {
	t    *testing.T
	file *os.File
}

func openTunnel(t *testing.T, host *lab.Host) *tunnel {
	t.Helper()
	var fd int
	err := host.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		req, err := unix.NewIfreq(kerneltest.Link)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	})
	if err != nil {
		t.Fatal(err)
	}
	tun := &tunnel{t, os.NewFile(uintptr(fd), "tun")}
	t.Cleanup(func() { tun.file.Close() })
	return tun
}

// packet is what matters of an IP packet.
type packet struct {
	src, dst     netip.Addr
	proto        byte
	sport, dport uint16
	flags        byte // of TCP
	seq          uint32
	mss          int // of its option; 0: none
	payload      string
}

const (
	syn    = 0x02
	synAck = 0x12
	ack    = 0x10
)

func parse(b []byte) (p packet, ok bool) {
	var body []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		p.src, p.dst, p.proto = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9]
		body = b[int(b[0]&15)*4:]
	case len(b) >= 40 && b[0]>>4 == 6:
		p.src, p.dst, p.proto = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6]
		body = b[40:]
	}
	switch {
	case p.proto == unix.IPPROTO_UDP && len(body) >= 8:
		p.payload = string(body[8:])
	case p.proto == unix.IPPROTO_TCP && len(body) >= 20:
		p.flags, p.seq = body[13], binary.BigEndian.Uint32(body[4:])
		p.payload = string(body[int(body[12]>>4)*4:])
		for o := body[20 : int(body[12]>>4)*4]; len(o) >= 4; o = o[max(1, int(o[1])):] {
			if o[0] == 1 {
				o[1] = 1 // one byte without a length
			} else if o[0] == 2 {
				p.mss = int(binary.BigEndian.Uint16(o[2:]))
			}
		}
	default:
		return p, false
	}
	p.sport, p.dport = binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])
	return p, true
}

// receive reads until a packet comes that is looked for.
func (tun *tunnel) receive(what string, looked func(packet) bool) packet {
	tun.t.Helper()
	p, ok := tun.poll(patience, looked)
	if !ok {
		tun.t.Fatalf("no packet by the tunnel: %s", what)
	}
	return p
}

func (tun *tunnel) poll(wait time.Duration, looked func(packet) bool) (packet, bool) {
	if err := tun.file.SetReadDeadline(time.Now().Add(wait)); err != nil {
		tun.t.Fatal(err)
	}
	buffer := make([]byte, 65536)
	for {
		n, err := tun.file.Read(buffer)
		if err != nil {
			return packet{}, false
		}
		if p, ok := parse(buffer[:n]); ok && looked(p) {
			return p, true
		}
	}
}

func (tun *tunnel) send(b []byte) {
	tun.t.Helper()
	if _, err := tun.file.Write(b); err != nil {
		tun.t.Fatal(err)
	}
}

func to(dst string, port uint16) func(packet) bool {
	a := netip.MustParseAddr(dst)
	return func(p packet) bool { return p.dst == a && p.dport == port }
}

// udp makes a packet of IPv4.
func udp(src, dst string, port uint16, payload string) []byte {
	body := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(body, 4000)
	binary.BigEndian.PutUint16(body[2:], port)
	binary.BigEndian.PutUint16(body[4:], uint16(8+len(payload)))
	return ipv4(src, dst, unix.IPPROTO_UDP, append(body, payload...)) // without a checksum (RFC 768)
}

// tcp makes a segment of IPv4 with an option for the segment size, if it is not 0.
func tcp(p packet, acked uint32) []byte {
	body := make([]byte, 20)
	binary.BigEndian.PutUint16(body, p.sport)
	binary.BigEndian.PutUint16(body[2:], p.dport)
	binary.BigEndian.PutUint32(body[4:], p.seq)
	binary.BigEndian.PutUint32(body[8:], acked)
	body[12], body[13] = 5<<4, p.flags
	binary.BigEndian.PutUint16(body[14:], 65535)
	if p.mss != 0 {
		body[12] = 6 << 4
		body = binary.BigEndian.AppendUint16(append(body, 2, 4), uint16(p.mss))
	}
	body = append(body, p.payload...)
	pseudo := append(append(p.src.AsSlice(), p.dst.AsSlice()...), 0, unix.IPPROTO_TCP, byte(len(body)>>8), byte(len(body)))
	binary.BigEndian.PutUint16(body[16:], checksum(append(pseudo, body...)))
	return ipv4(p.src.String(), p.dst.String(), unix.IPPROTO_TCP, body)
}

// udpBy makes a datagram that goes to one address and on to another (LSRR, RFC 791).
func udpBy(src, by, dst string, port uint16, payload string) []byte {
	p := udp(src, by, port, payload)
	h := append(p[:20:20], 131, 7, 4)
	h = append(append(h, netip.MustParseAddr(dst).AsSlice()...), 0)
	h[0] = byte(0x40 | len(h)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(p)-20))
	binary.BigEndian.PutUint16(h[10:], 0)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, p[20:]...)
}

func ipv4(src, dst string, proto byte, body []byte) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(body)))
	copy(h[12:], netip.MustParseAddr(src).AsSlice())
	copy(h[16:], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, body...)
}

// checksum is that of the internet (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
