// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// TestMovedAddressesKeepChecksums does what the kernel does with a packet, by the messages that it gets.
func TestMovedAddressesKeepChecksums(t *testing.T) {
	const tcp, udp, icmp6 = unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6
	four, other4 := netip.MustParseAddr("10.8.1.7"), netip.MustParseAddr("10.9.2.3")
	six, other6 := netip.MustParseAddr("fd01::1:7"), netip.MustParseAddr("fd09::2:3")
	for name, c := range map[string]struct {
		line string
		p    []byte
		want []byte
	}{
		"source, TCP": {"saddr4 10.8.0.0/16 move-saddr 240.8.0.0/16", packet(four, other4, tcp, nil),
			packet(netip.MustParseAddr("240.8.1.7"), other4, tcp, nil)},
		"destination, UDP": {"daddr4 10.9.0.0/16 move-daddr 240.9.0.0/16", packet(four, other4, udp, nil),
			packet(four, netip.MustParseAddr("240.9.2.3"), udp, nil)},
		"source, TCP, IPv6": {"saddr6 fd01::/64 move-saddr fd77:1::/64", packet(six, other6, tcp, nil),
			packet(netip.MustParseAddr("fd77:1::1:7"), other6, tcp, nil)},
		"destination, UDP, IPv6": {"daddr6 fd09::/64 move-daddr fd77:1::/64", packet(six, other6, udp, nil),
			packet(six, netip.MustParseAddr("fd77:1::2:3"), udp, nil)},
		"source, ICMPv6": {"saddr6 fd01::/64 move-saddr fd77:1::/64", packet(six, other6, icmp6, []byte{128, 0}),
			packet(netip.MustParseAddr("fd77:1::1:7"), other6, icmp6, []byte{128, 0})},
	} {
		got := bytes.Clone(c.p)
		play(t, c.line, got)
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s: %s\n%x, want\n%x", name, c.line, got, c.want)
		}
	}
}

// TestMovedAddressesInErrors: the error is valid, and about a packet whose header is.
func TestMovedAddressesInErrors(t *testing.T) {
	four, six := netip.MustParseAddr("10.8.1.7"), netip.MustParseAddr("fd01::1:7")
	from4, from6 := netip.MustParseAddr("10.9.2.3"), netip.MustParseAddr("fd09::2:3")
	moved4, moved6 := netip.MustParseAddr("240.8.1.7"), netip.MustParseAddr("fd77:1::1:7")
	head := func(p []byte) []byte { return p[:len(p)-20] } // the checksum of what it carries is not looked at
	for line, c := range map[string]struct {
		from  netip.Addr
		proto byte
		kind  byte
		about [2]netip.Addr
		want  [2]netip.Addr
	}{
		"about-saddr4 10.8.0.0/16 move-about-saddr 240.8.0.0/16": {from4, unix.IPPROTO_ICMP, 3,
			[2]netip.Addr{four, from4}, [2]netip.Addr{moved4, from4}},
		"about-daddr4 10.8.0.0/16 move-about-daddr 240.8.0.0/16": {from4, unix.IPPROTO_ICMP, 11,
			[2]netip.Addr{from4, four}, [2]netip.Addr{from4, moved4}},
		"about-saddr6 fd01::/64 move-about-saddr fd77:1::/64": {from6, unix.IPPROTO_ICMPV6, 2,
			[2]netip.Addr{six, from6}, [2]netip.Addr{moved6, from6}},
		"about-daddr6 fd01::/64 move-about-daddr fd77:1::/64": {from6, unix.IPPROTO_ICMPV6, 1,
			[2]netip.Addr{from6, six}, [2]netip.Addr{from6, moved6}},
	} {
		text := func(kind byte, a [2]netip.Addr) []byte {
			return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, head(packet(a[0], a[1], unix.IPPROTO_TCP, nil))...)
		}
		got := packet(c.from, c.from, c.proto, text(c.kind, c.about))
		play(t, line, got)
		if want := packet(c.from, c.from, c.proto, text(c.kind, c.want)); !bytes.Equal(got, want) {
			t.Errorf("%s\n%x, want\n%x", line, got, want)
		}
		echo := packet(c.from, c.from, c.proto, text(map[bool]byte{true: 8, false: 128}[c.from.Is4()], c.about))
		if got := bytes.Clone(echo); play(t, line, got) || !bytes.Equal(got, echo) {
			t.Errorf("%s changes what is no error", line)
		}
	}
}

// sumsAt are where checksums are in what packets carry.
var sumsAt = map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6, unix.IPPROTO_ICMP: 2, unix.IPPROTO_ICMPV6: 2}

// packet has valid checksums, and 20 bytes if it is not said what it carries.
func packet(src, dst netip.Addr, proto byte, carried []byte) []byte {
	carried = append(bytes.Clone(carried), make([]byte, max(0, 20-len(carried)))...)
	head := make([]byte, 40)
	if src.Is4() {
		head = head[:20]
		copy(head, []byte{0x45, 0, 0, byte(20 + len(carried)), 0, 1, 0, 0, 64, proto})
	} else {
		copy(head, []byte{0x60, 1, 2, 3, 0, byte(len(carried)), proto, 64})
	}
	copy(head[len(head)-2*len(src.AsSlice()):], append(src.AsSlice(), dst.AsSlice()...))
	pseudo := append(append(src.AsSlice(), dst.AsSlice()...), 0, proto, 0, byte(len(carried)))
	if proto == unix.IPPROTO_ICMP {
		pseudo = nil
	}
	put(carried, sumsAt[proto], ^sum(append(pseudo, carried...)))
	if src.Is4() {
		put(head, 10, ^sum(head))
	}
	return append(head, carried...)
}

func put(b []byte, at int, n uint16) { b[at], b[at+1] = byte(n>>8), byte(n) }

// sum is that of the Internet (RFC 1071).
func sum(b []byte) uint16 {
	var n uint32
	for i := 0; i+1 < len(b); i += 2 {
		n += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}

// played is a packet in nftables' machine.
type played struct {
	packet    []byte
	carried   int // where what it carries begins
	registers [3][]byte
}

// play evaluates a line as nft_do_chain does, and reports whether its conditions hold. Of each expression it knows what
// is in the message to the kernel.
func play(t *testing.T, text string, p []byte) bool {
	t.Helper()
	line, err := plan.ParseLine(text)
	if err != nil {
		t.Fatal(err)
	}
	exprs, err := encode(line)
	if err != nil {
		t.Fatal(err)
	}
	m := played{packet: p, carried: 40}
	if p[0]>>4 == 4 {
		m.carried = 20
	}
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Meta:
			m.registers[1] = []byte{map[bool]byte{true: unix.NFPROTO_IPV4, false: unix.NFPROTO_IPV6}[m.carried == 20]}
			if e.Key == expr.MetaKeyL4PROTO {
				m.registers[1] = []byte{m.proto()}
			}
		case *expr.Bitwise:
			got := bytes.Clone(m.registers[e.SourceRegister])
			for i := range got {
				got[i] = got[i]&e.Mask[i] ^ e.Xor[i]
			}
			m.registers[e.DestRegister] = got
		case *expr.Cmp:
			if bytes.Equal(m.registers[e.Register], e.Data) != (e.Op == expr.CmpOpEq) {
				return false
			}
		case *expr.Payload:
			m.payload(t, e)
		default:
			t.Fatalf("%T is unknown", e)
		}
	}
	return true
}

func (m *played) proto() byte { return m.packet[map[int]int{20: 9, 40: 6}[m.carried]] }

// payload does what nft_payload_eval and nft_payload_set_eval do (Linux 6.12).
func (m *played) payload(t *testing.T, e *expr.Payload) {
	t.Helper()
	told := attributes(t, e)
	base := 0
	if told[unix.NFTA_PAYLOAD_BASE] == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
		base = m.carried
	}
	at := m.packet[base+int(told[unix.NFTA_PAYLOAD_OFFSET]):][:told[unix.NFTA_PAYLOAD_LEN]]
	if to, load := told[unix.NFTA_PAYLOAD_DREG]; load {
		m.registers[to] = bytes.Clone(at)
		return
	}
	fresh := m.registers[told[unix.NFTA_PAYLOAD_SREG]]
	old := ^sum(at)
	follow := func(at int) { // RFC 1624
		put(m.packet, at, ^sum([]byte{^m.packet[at], ^m.packet[at+1], byte(old >> 8), byte(old), byte(sum(fresh) >> 8),
			byte(sum(fresh))}))
	}
	if told[unix.NFTA_PAYLOAD_CSUM_TYPE] == unix.NFT_PAYLOAD_CSUM_INET {
		follow(base + int(told[unix.NFTA_PAYLOAD_CSUM_OFFSET]))
	}
	if told[unix.NFTA_PAYLOAD_CSUM_FLAGS]&unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR != 0 && m.proto() != unix.IPPROTO_ICMP {
		follow(m.carried + sumsAt[m.proto()])
	}
	copy(at, fresh)
}

// attributes are the numbers in the message of an expression.
func attributes(t *testing.T, e expr.Any) map[uint16]uint32 {
	t.Helper()
	text, err := expr.Marshal(byte(nftables.TableFamilyINet), e)
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint16]uint32{}
	outer, err := netlink.NewAttributeDecoder(text)
	if err != nil {
		t.Fatal(err)
	}
	for outer.Next() {
		if outer.Type() != unix.NFTA_EXPR_DATA {
			continue
		}
		inner, err := netlink.NewAttributeDecoder(outer.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for inner.Next() {
			b := inner.Bytes()
			out[inner.Type()] = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		}
	}
	return out
}
