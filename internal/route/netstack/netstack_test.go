// SPDX-License-Identifier: Apache-2.0

package netstack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/route/answer"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mtu = 1500

// machine is a caller's machine: a network stack of its own, whose only link is the device under test.
type machine struct {
	stack  *stack.Stack
	link   *channel.Endpoint
	ctx    context.Context
	closed context.CancelFunc

	mu   sync.Mutex
	icmp []byte // the last packet that is not TCP
	got  chan struct{}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{link: channel.New(1024, mtu, ""), got: make(chan struct{}, 16)}
	m.ctx, m.closed = context.WithCancel(t.Context())
	m.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	if err := m.stack.CreateNIC(1, m.link); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"192.0.0.8", "fd74::8"} {
		p := netip.MustParseAddr(a)
		address := tcpip.ProtocolAddress{Protocol: protocol(p), AddressWithPrefix: tcpip.AddrFromSlice(p.AsSlice()).WithPrefix()}
		if err := m.stack.AddProtocolAddress(1, address, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	m.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	t.Cleanup(m.stack.Destroy)
	return m
}

func protocol(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}

func (m *machine) dial(ctx context.Context, to string) (*gonet.TCPConn, error) {
	at := netip.MustParseAddrPort(to)
	return gonet.DialContextTCP(ctx, m.stack, tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(at.Addr().AsSlice()), Port: at.Port()}, protocol(at.Addr()))
}

// Read implements netstack.Device: what the machine sends.
func (m *machine) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	pkt := m.link.ReadContext(m.ctx)
	if pkt == nil {
		return 0, os.ErrClosed
	}
	defer pkt.DecRef()
	v := pkt.ToView()
	defer v.Release()
	sizes[0] = copy(bufs[0][offset:], v.AsSlice())
	return 1, nil
}

// Write implements netstack.Device.
func (m *machine) Write(bufs [][]byte, offset int) (int, error) {
	for _, b := range bufs {
		p := bytes.Clone(b[offset:])
		proto := header.IPv4ProtocolNumber
		if header.IPVersion(p) == header.IPv6Version {
			proto = header.IPv6ProtocolNumber
		}
		if proto == header.IPv4ProtocolNumber && p[9] != 6 || proto == header.IPv6ProtocolNumber && p[6] != 6 {
			m.mu.Lock()
			m.icmp = p
			m.mu.Unlock()
			m.got <- struct{}{}
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
		m.link.InjectInbound(proto, pkt)
		pkt.DecRef()
	}
	return len(bufs), nil
}

func (m *machine) BatchSize() int { return 1 }

func (m *machine) Close() error { m.closed(); return nil }

// sends puts a packet onto the machine's link.
func (m *machine) sends(packet []byte) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	var list stack.PacketBufferList
	list.PushBack(pkt)
	m.link.WritePackets(list)
	pkt.DecRef()
}

type running struct {
	*machine
	drops chan netstack.Drop
}

func start(t *testing.T, handle netstack.Handler) running {
	t.Helper()
	m := newMachine(t)
	drops := make(chan netstack.Drop, 64)
	s, err := netstack.New(t.Context(), m, netstack.Options{MTU: mtu, Handle: handle, Dropped: func(d netstack.Drop) { drops <- d }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return running{m, drops}
}

// TestAccept: nothing is established before the handler accepts; bytes and ends go both ways.
func TestAccept(t *testing.T) {
	for _, to := range []string{"10.244.3.4:80", "[fd00:10::4]:80"} {
		may, asked := make(chan struct{}), make(chan netip.AddrPort, 1)
		r := start(t, func(_ context.Context, c *netstack.Coming) {
			asked <- c.To
			<-may
			conn, err := c.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			all, err := io.ReadAll(conn) // until the caller's end
			if err != nil {
				t.Error(err)
			}
			conn.Write(bytes.ToUpper(all))
			conn.CloseWrite()
		})
		type dialled struct {
			conn *gonet.TCPConn
			err  error
		}
		done := make(chan dialled, 1)
		go func() { conn, err := r.dial(t.Context(), to); done <- dialled{conn, err} }()
		if at := <-asked; at.String() != to {
			t.Errorf("asked for %s", at)
		}
		select {
		case d := <-done:
			t.Fatalf("established before it was accepted: %v", d.err)
		default:
		}
		close(may)
		d := <-done
		if d.err != nil {
			t.Fatal(d.err)
		}
		big := bytes.Repeat([]byte("tombolo "), 100_000)
		go func() { d.conn.Write(big); d.conn.CloseWrite() }()
		d.conn.SetDeadline(time.Now().Add(runtest.Patience))
		got, err := io.ReadAll(d.conn)
		if err != nil || !bytes.Equal(got, bytes.ToUpper(big)) {
			t.Errorf("%d of %d bytes came back: %v", len(got), len(big), err)
		}
		d.conn.Close()
	}
}

func TestRefuse(t *testing.T) {
	type want struct{ kind, code4, code6 byte }
	for a, want := range map[answer.Answer]*want{
		answer.Reset: nil, answer.NoNetwork: {3, 0, 0}, answer.NoHost: {3, 1, 3}, answer.Prohibited: {3, 13, 1},
	} {
		for _, to := range []string{"10.244.3.4:80", "[fd00:10::4]:80"} {
			r := start(t, func(_ context.Context, c *netstack.Coming) { c.Refuse(a) })
			ctx, cancel := context.WithTimeout(t.Context(), runtest.Patience)
			done := make(chan error, 1)
			go func() {
				conn, err := r.dial(ctx, to)
				if err == nil {
					conn.Close()
				}
				done <- err
			}()
			if want == nil {
				if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %s: %v", a, to, err)
				}
				cancel()
				continue
			}
			<-r.got
			r.mu.Lock()
			m := r.icmp
			r.mu.Unlock()
			inner := 28
			kind, code, expect := m[20], m[21], want.code4
			if to[0] == '[' {
				inner = 48
				kind, code, expect = m[40], m[41], want.code6
				want.kind = 1
			} else {
				want.kind = 3
			}
			if kind != want.kind || code != expect || len(m) < inner+20 {
				t.Errorf("%s: %s: ICMP %d, %d of %d bytes", a, to, kind, code, len(m))
			}
			cancel() // this machine's stack does not heed each of them
			if err := <-done; err == nil {
				t.Errorf("%s: %s is connected", a, to)
			}
		}
	}
}

// TestSilence: a handler that decides nothing leaves the caller without an answer, and asks it again.
func TestSilence(t *testing.T) {
	asked := make(chan struct{}, 8)
	r := start(t, func(context.Context, *netstack.Coming) { asked <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.dial(ctx, "10.244.3.4:80"); done <- err }()
	<-asked
	<-asked // the second SYN
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestTheCallerGivesUp: an RST of the caller ends the context of the handler.
func TestTheCallerGivesUp(t *testing.T) {
	syn := make(chan *netstack.Coming, 1)
	ended := make(chan error, 1)
	r := start(t, func(ctx context.Context, c *netstack.Coming) {
		syn <- c
		<-ctx.Done()
		ended <- ctx.Err()
		c.Refuse(answer.Silence)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.dial(ctx, "10.244.3.4:80"); close(done) }()
	c := <-syn
	r.sends(segment(c.From, c.To, header.TCPFlagRst))
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	cancel()
	<-done
}

// segment is a TCP segment without data.
func segment(from, to netip.AddrPort, flags header.TCPFlags) []byte {
	b := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.TCPProtocolNumber),
		SrcAddr: tcpip.AddrFromSlice(from.Addr().AsSlice()), DstAddr: tcpip.AddrFromSlice(to.Addr().AsSlice())})
	ip.SetChecksum(^ip.CalculateChecksum())
	header.TCP(b[header.IPv4MinimumSize:]).Encode(&header.TCPFields{SrcPort: from.Port(), DstPort: to.Port(), DataOffset: header.TCPMinimumSize, Flags: flags})
	return b
}

// TestWhatIsNotTaken: other protocols, fragments, and what is no packet.
func TestWhatIsNotTaken(t *testing.T) {
	r := start(t, func(context.Context, *netstack.Coming) { t.Error("a connection") })
	from, to := netip.MustParseAddrPort("192.0.0.8:1000"), netip.MustParseAddrPort("10.244.3.4:53")
	other, unreachable, cut := segment(from, to, 0), segment(from, to, 0), udp(from, to, []byte("x"))
	other[9], unreachable[9], unreachable[20] = 47, 1, 3
	header.IPv4(cut).SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 0)
	short, noPort := udp(from, to, nil), udp(from, netip.AddrPortFrom(to.Addr(), 0), nil)
	header.UDP(short[20:]).SetLength(9)
	for want, packets := range map[netstack.Drop][][]byte{
		netstack.DropOther: {other}, netstack.DropICMP: {unreachable}, netstack.DropFragment: {cut},
		netstack.DropMalformed: {{}, {0x45}, {0x60, 0}, {0xf0, 1, 2}, make([]byte, 60), short, noPort, short[:27]},
	} {
		for _, p := range packets {
			r.sends(p)
			if got := <-r.drops; got != want {
				t.Errorf("%x: %s, not %s", p, got, want)
			}
		}
	}
}

// udp is a datagram in a packet.
func udp(from, to netip.AddrPort, data []byte) []byte {
	return packet(from, to, header.UDPProtocolNumber, func(b []byte) {
		header.UDP(b).Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: to.Port(), Length: uint16(len(b))})
	}, data)
}

// ask is an echo request, whose identifier is the port of the sender.
func ask(from, to netip.AddrPort, number uint16, data []byte) []byte {
	kind, protocol := byte(8), header.ICMPv4ProtocolNumber
	if to.Addr().Is6() {
		kind, protocol = 128, header.ICMPv6ProtocolNumber
	}
	return packet(from, to, protocol, func(b []byte) {
		b[0] = kind
		binary.BigEndian.PutUint16(b[4:], from.Port())
		binary.BigEndian.PutUint16(b[6:], number)
	}, data)
}

// packet is an IP packet with 8 bytes of a header and data.
func packet(from, to netip.AddrPort, protocol tcpip.TransportProtocolNumber, head func(b []byte), data []byte) []byte {
	n := 8 + len(data)
	src, dst := tcpip.AddrFromSlice(from.Addr().AsSlice()), tcpip.AddrFromSlice(to.Addr().AsSlice())
	if to.Addr().Is6() {
		b := make([]byte, 40+n)
		copy(b[48:], data)
		head(b[40:])
		header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(n), TransportProtocol: protocol, HopLimit: 64, SrcAddr: src, DstAddr: dst})
		return b
	}
	b := make([]byte, 20+n)
	copy(b[28:], data)
	head(b[20:])
	header.IPv4(b).Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(protocol), SrcAddr: src, DstAddr: dst})
	return b
}

// TestDatagrams: those of a flow go both ways, with checksums that a kernel takes, and another flow is another one.
func TestDatagrams(t *testing.T) {
	for _, c := range []struct{ from, to string }{{"192.0.0.8:1000", "10.244.3.4:53"}, {"[fd74::8]:1000", "[fd00:10::4]:53"}} {
		from, to := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)
		flows := make(chan *netstack.Coming, 8)
		r := start(t, func(_ context.Context, c *netstack.Coming) {
			flows <- c
			near, err := c.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer near.Close()
			io.Copy(near, near) // the target answers with what it is asked
		})
		head, kind := 20, byte(0)
		if to.Addr().Is6() {
			head, kind = 40, 129
		}
		for i, data := range [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{7}, mtu-head-8)} {
			r.sends(udp(from, to, data))
			got := r.packet()
			if h := header.UDP(got[head:]); h.SourcePort() != to.Port() || h.DestinationPort() != from.Port() || !bytes.Equal(h.Payload(), data) {
				t.Errorf("%d: %x", i, got)
			}
			if !valid(got) {
				t.Errorf("%d: %x has a bad checksum", i, got)
			}
		}
		for number := range uint16(3) {
			r.sends(ask(from, to, number, []byte("echo")))
			got := r.packet()
			if b := got[head:]; b[0] != kind || binary.BigEndian.Uint16(b[4:]) != from.Port() || binary.BigEndian.Uint16(b[6:]) != number || string(b[8:]) != "echo" {
				t.Errorf("%x", got)
			}
			if !valid(got) {
				t.Errorf("%x has a bad checksum", got)
			}
		}
		close(flows)
		var asked []string
		for c := range flows {
			asked = append(asked, fmt.Sprint(c.Network, " ", c.From, " ", c.To))
		}
		if want := []string{"udp " + c.from + " " + c.to, "icmp " + c.from + " " + netip.AddrPortFrom(to.Addr(), 7).String()}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, not %v", asked, want)
		}
	}
}

// packet is the next one that is not TCP.
func (r running) packet() []byte {
	<-r.got
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.icmp
}

// valid reports whether the checksum of what is in a packet is right.
func valid(b []byte) bool {
	protocol, body, src, dst := tcpip.TransportProtocolNumber(b[9]), b[20:], b[12:16], b[16:20]
	if b[0]>>4 == 6 {
		protocol, body, src, dst = tcpip.TransportProtocolNumber(b[6]), b[40:], b[8:24], b[24:40]
	}
	if protocol == header.ICMPv4ProtocolNumber {
		return checksum.Checksum(body, 0) == 0xffff
	}
	sum := header.PseudoHeaderChecksum(protocol, tcpip.AddrFromSlice(src), tcpip.AddrFromSlice(dst), uint16(len(body)))
	return checksum.Checksum(body, sum) == 0xffff
}

// TestARefusedFlow is answered once, and asks again after a moment.
func TestARefusedFlow(t *testing.T) {
	from, to := netip.MustParseAddrPort("192.0.0.8:1000"), netip.MustParseAddrPort("10.244.3.4:53")
	for a, code := range map[answer.Answer]byte{answer.Reset: 3, answer.Prohibited: 13} {
		asked := make(chan struct{}, 8)
		r := start(t, func(_ context.Context, c *netstack.Coming) { c.Refuse(a); asked <- struct{}{} })
		r.sends(udp(from, to, []byte("x")))
		if m := r.packet(); m[20] != 3 || m[21] != code {
			t.Errorf("%v: ICMP %d, %d", a, m[20], m[21])
		}
		<-asked
		runtest.Eventually(t, "it is asked again", func() bool {
			r.sends(udp(from, to, []byte("x")))
			return len(asked) > 0
		})
	}
}

// TestFlowsAreBounded: nobody who does not read makes us keep more than there is room for.
func TestFlowsAreBounded(t *testing.T) {
	may := make(chan struct{})
	r := start(t, func(_ context.Context, c *netstack.Coming) { <-may })
	defer close(may)
	from, to := netip.MustParseAddrPort("192.0.0.8:1000"), netip.MustParseAddrPort("10.244.3.4:53")
	for range 64 {
		r.sends(udp(from, to, []byte("x")))
	}
	for range 3 {
		r.sends(udp(from, to, []byte("x")))
		if got := <-r.drops; got != netstack.DropFull {
			t.Error(got)
		}
	}
}

// TestAReset: the caller does not take a reset for an end.
func TestAReset(t *testing.T) {
	r := start(t, func(_ context.Context, c *netstack.Coming) {
		conn, err := c.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		conn.Reset(0)
	})
	conn, err := r.dial(t.Context(), "10.244.3.4:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(runtest.Patience))
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a reset is read as %v", err)
	}
}
