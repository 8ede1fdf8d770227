// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

// The beginnings of the kinds of packets.
var (
	probeHead = []byte{0xf5, 0x54, 0x42, 0x01}
	stunHead  = append([]byte{1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)
)

// next is the next packet that was handed over.
func (n *node) next(t testing.TB) came {
	t.Helper()
	select {
	case c := <-n.packets:
		return c
	case <-runtest.Within(t).Done():
		t.Fatal("nothing was handed over")
		return came{}
	}
}

// stranger is another program on a loopback address.
func stranger(t testing.TB, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestProbesAndSTUNAreHandedOver with where they came from and to; each answer leaves
// from the address that was asked, of both families.
func TestProbesAndSTUNAreHandedOver(t *testing.T) {
	a := newNode(t, "10.1.0.1", nil, tunnel.AllOffloads())
	asked := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.88")}
	if a.socket.Has(netip.IPv6Loopback()) {
		asked = append(asked, netip.IPv6Loopback())
	}
	for _, at := range asked {
		c := stranger(t, netip.AddrPortFrom(at, a.at.Port())) // it takes only what comes from there
		for kind, head := range map[string][]byte{"probe": probeHead, "STUN": stunHead} {
			text := append(bytes.Clone(head), "a question"...)
			if _, err := c.Write(text); err != nil {
				t.Fatal(err)
			}
			got := a.next(t)
			if own := c.LocalAddr().(*net.UDPAddr).AddrPort(); got.kind != kind || got.data != string(text) || got.local != at || got.from != own {
				t.Errorf("to %v came %+v, of %v", at, got, own)
			}
			if err := a.socket.Send(got.from, got.local, []byte("an answer")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 100)
			if n, err := c.Read(b); err != nil || string(b[:n]) != "an answer" {
				t.Errorf("from %v: %q, %v", at, b[:n], err)
			}
			if err := a.socket.SendWhole(got.from, got.local, []byte("one more")); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(b); err != nil || string(b[:n]) != "one more" {
				t.Errorf("from %v: %q, %v", at, b[:n], err)
			}
		}
	}
}

// TestAnAddressThatIsLost: packets whose own address this machine has no more go from another.
func TestAnAddressThatIsLost(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.AllOffloads()), newNode(t, "10.1.0.2", nil, tunnel.AllOffloads())
	meet(t, a, b)
	if err := a.socket.Send(b.at, netip.MustParseAddr("192.0.2.77"), probeHead); err != nil {
		t.Fatal(err)
	}
	if got := b.next(t); got.from.Port() != a.at.Port() {
		t.Errorf("it came from %v", got.from)
	}
}

// insist sends each packet until it arrives: the kernel may drop any in a flood.
func insist(t testing.TB, from, to *node, count uint64) {
	t.Helper()
	ctx := runtest.Within(t)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for i := range count {
		for arrived := false; !arrived; {
			select {
			case from.tun.Out <- tunneltest.Packet(from.addr, to.addr, 1<<48+i, 500):
			case <-ctx.Done():
				t.Fatal("the tunnel takes nothing")
			}
			for waits := true; waits && !arrived; {
				select {
				case b := <-to.tun.In:
					arrived = tunneltest.Number(b) == 1<<48+i
				case <-again.C:
					waits = false
				case <-ctx.Done():
					t.Fatalf("%d packets passed", i)
				}
			}
		}
	}
}

// TestJunkHarmsNoTraffic: floods of every kind of junk go on while packets pass; what nobody
// takes is dropped and counted, and the queues stay bounded.
func TestJunkHarmsNoTraffic(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.AllOffloads()), newNode(t, "10.1.0.2", nil, tunnel.AllOffloads())
	meet(t, a, b)
	say(t, a, b, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	junk := [][]byte{
		append(bytes.Clone(probeHead), make([]byte, 100)...),
		bytes.Clone(stunHead),
		[]byte("unknown"), {}, {1}, make([]byte, 1400),
		append([]byte{1, 0, 0, 0}, make([]byte, 144)...), // a handshake with a wrong MAC
		append([]byte{2, 0, 0, 0}, make([]byte, 88)...),
		append([]byte{4, 0, 0, 0, 9, 9, 9, 9}, make([]byte, 200)...), // of no session
		append(bytes.Clone(probeHead), make([]byte, tunnel.TunnelProbe)...),
	}
	c := stranger(t, b.at)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := c.Write(junk[i%len(junk)]); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				ended <- err
				return
			}
			if i%64 == 0 { // two cores, and the traffic's own packets must find room in the kernel
				select {
				case <-ctx.Done():
				case <-b.packets:
				}
			}
		}
		ended <- nil
	}()
	insist(t, a, b, 2000)
	insist(t, b, a, 2000)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	counts := b.socket.Counts()
	if probes := counts.Probes.Load(); counts.Unknown.Load() == 0 || counts.Stray.Load() == 0 || probes == 0 {
		t.Errorf("unknown %d, stray %d, probes too large or too many %d", counts.Unknown.Load(), counts.Stray.Load(), probes)
	}
	if n := counts.Failed.Load(); n != 0 {
		t.Errorf("%d reads failed", n)
	}
}

// TestAFullQueueDrops: with nobody who takes probes their number is bounded, and traffic
// passes.
func TestAFullQueueDrops(t *testing.T) {
	hold, let := make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	block := tunnel.Handlers{Probe: func(netip.AddrPort, netip.Addr, []byte) {
		select {
		case let <- struct{}{}:
		default:
		}
		<-hold
	}}
	s, err := tunnel.OpenSocket(ctx, tunnel.SocketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := tunneltest.Key(t)
	e, err := tunnel.Open(ctx, tunnel.Parts{Socket: s, Tun: tunneltest.NewPipe(false), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(tunnel.Config{Key: secret}); err != nil {
		t.Fatal(err)
	}
	ran := make(chan error)
	go func() { ran <- s.Run(ctx, block) }()
	c := stranger(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port()))
	runtest.Eventually(t, "probes that are dropped", func() bool {
		for range 200 {
			c.Write(probeHead)
		}
		return s.Counts().Probes.Load() > 0 && s.Counts().STUN.Load() == 0
	})
	<-let
	close(hold)
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	a := newNode(t, "10.1.0.1", nil, tunnel.Offloads{})
	s, err := tunnel.OpenSocket(t.Context(), tunnel.SocketConfig{Port: a.socket.Port()})
	var f *fault.Fault
	if !errors.As(err, &f) || f.Code != fault.CodeAddressBusy || f.Next == "" {
		t.Errorf("%v, %v", s, err)
	}
}

// TestNoSecretIsPrinted in whatever form.
func TestNoSecretIsPrinted(t *testing.T) {
	s := tunnel.NewSecret([32]byte{0xab, 0xcd, 0xef})
	for _, form := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, v := range []any{s, &s, tunnel.Config{Key: s}, tunnel.Peer{PSK: s}} {
			if text := fmt.Sprintf(form, v); bytes.Contains([]byte(text), []byte("abcdef")) || bytes.Contains([]byte(text), []byte("171 205 239")) {
				t.Errorf("%s prints %s", form, text)
			}
		}
	}
}
