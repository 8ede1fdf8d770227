// SPDX-License-Identifier: Apache-2.0

package netstack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
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
	icmp []byte // the last message
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
		if proto == header.IPv4ProtocolNumber && p[9] == 1 || proto == header.IPv6ProtocolNumber && p[6] == 58 {
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

// TestWhatIsNotTCP: datagrams are answered at once, echo requests never.
func TestWhatIsNotTCP(t *testing.T) {
	r := start(t, func(context.Context, *netstack.Coming) { t.Error("a connection") })
	from, to := netip.MustParseAddrPort("192.0.0.8:1000"), netip.MustParseAddrPort("10.244.3.4:53")
	for protocol, want := range map[uint8]netstack.Drop{17: netstack.DropUDP, 1: netstack.DropICMP, 47: netstack.DropOther} {
		p := segment(from, to, 0)
		p[9] = protocol
		r.sends(p)
		if got := <-r.drops; got != want {
			t.Errorf("protocol %d: %s", protocol, got)
		}
	}
	<-r.got
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.icmp; m[20] != 3 || m[21] != 3 {
		t.Errorf("ICMP %d, %d", m[20], m[21])
	}
	for _, p := range [][]byte{{}, {0x45}, {0x60, 0}, {0xf0, 1, 2}, make([]byte, 60)} {
		r.sends(p)
		if got := <-r.drops; got != netstack.DropMalformed {
			t.Errorf("%x: %s", p, got)
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
