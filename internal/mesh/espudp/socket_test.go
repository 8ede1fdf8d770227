// SPDX-License-Identifier: Apache-2.0

package espudp_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/espudp"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The beginnings of the kinds of packets.
var (
	probeHead = []byte{0xf5, 0x54, 0x42, 0x01}
	stunHead  = append([]byte{1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)
	quicHead  = []byte{0xc3, 0, 0, 0, 1}
)

// came is a packet that was handed over.
type came struct {
	kind  string
	from  netip.AddrPort
	local netip.Addr
	data  string
}

// node is a socket that runs.
type node struct {
	*espudp.Socket
	packets chan came
	hold    chan struct{} // handlers wait for it
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{packets: make(chan came, 4096), hold: make(chan struct{})}
	close(n.hold)
	n.start(t)
	return n
}

func (n *node) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if n.Socket, err = espudp.Open(ctx, espudp.Settings{}); err != nil {
		t.Fatal(err)
	}
	take := func(kind string) tunnel.Handler {
		return func(from netip.AddrPort, local netip.Addr, p []byte) {
			<-n.hold
			select {
			case n.packets <- came{kind, from, local, string(p)}:
			default:
			}
		}
	}
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx, tunnel.Handlers{Probe: take("probe"), STUN: take("STUN")}) }()
	t.Cleanup(func() {
		cancel()
		err := <-ran
		if closed := n.Close(); !errors.Is(closed, net.ErrClosed) { // a test has closed it
			err = errors.Join(err, closed)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

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

func (n *node) dropped(reason string) uint64 {
	for _, d := range n.Drops() {
		if d.Reason == reason {
			return d.Packets
		}
	}
	return 0
}

// outsider is another program on a loopback address, which takes only what comes from where it sends to.
func outsider(t testing.TB, at netip.Addr, port uint16) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// say sends a packet, again if the kernel has refused an earlier one: it does so with ESP where it has none.
func say(t testing.TB, c *net.UDPConn, parts ...[]byte) {
	t.Helper()
	_, err := c.Write(bytes.Join(parts, nil))
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, err = c.Write(bytes.Join(parts, nil))
	}
	if err != nil {
		t.Fatal(err)
	}
}

var marker, localhost = []byte(nat.Marker), netip.MustParseAddr("127.0.0.1")

// TestWhatIsNotESP is handed over without its marker, with where it came from and to; each answer leaves from the
// address that was asked, of both families, behind the marker.
func TestWhatIsNotESP(t *testing.T) {
	a := newNode(t)
	asked := []netip.Addr{localhost, netip.MustParseAddr("127.0.0.88")}
	if a.Has(netip.IPv6Loopback()) {
		asked = append(asked, netip.IPv6Loopback())
	}
	for _, at := range asked {
		c := outsider(t, at, a.Port())
		own := c.LocalAddr().(*net.UDPAddr).AddrPort()
		hear := func(want string) {
			t.Helper()
			b := make([]byte, 100)
			if n, err := c.Read(b); err != nil || string(b[:n]) != nat.Marker+want {
				t.Errorf("from %v: %q, %v", at, b[:n], err)
			}
		}
		for kind, head := range map[string][]byte{"probe": probeHead, "STUN": stunHead} {
			say(t, c, marker, head, []byte("a question"))
			if got, want := a.next(t), (came{kind, own, at, string(head) + "a question"}); got != want {
				t.Errorf("to %v came %+v, want %+v", at, got, want)
			}
		}
		if err := errors.Join(a.Send(own, at, []byte("an answer")), a.SendWhole(own, at, []byte("one more"))); err != nil {
			t.Fatal(err)
		}
		hear("an answer")
		hear("one more")
		say(t, c, marker, quicHead, []byte("hello"))
		b := make([]byte, 100)
		n, from, err := a.Packets().ReadFrom(b)
		if err != nil || string(b[:n]) != string(quicHead)+"hello" || from.String() != own.String() {
			t.Fatalf("%q from %v, %v", b[:n], from, err)
		}
		if _, local := from.(espudp.Address).Ends(); local != at {
			t.Errorf("it came to %v, want %v", local, at)
		}
		if n, err := a.Packets().WriteTo([]byte("QUIC's"), from); err != nil || n != 6 {
			t.Errorf("%d, %v", n, err)
		}
		hear("QUIC's")
	}
	if _, err := a.Packets().WriteTo([]byte{1}, &net.UDPAddr{}); err == nil {
		t.Error("an address of another socket is taken")
	}
}

// TestTheKernelTakesESP: what has no marker is not read here, unless it is too short for ESP; what nobody takes is
// dropped and counted.
func TestTheKernelTakesESP(t *testing.T) {
	a := newNode(t)
	c := outsider(t, localhost, a.Port())
	for _, junk := range [][]byte{
		append([]byte{0, 0, 1, 0}, make([]byte, 100)...),                        // an SPI that nobody has
		append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...), // STUN of another program
		probeHead[:4:4], {0xc3, 0, 0, 0, 0x41}, // too short for ESP, and without a marker
		{0xff}, {}, {1}, {0, 0, 0}, marker,
		append(bytes.Clone(marker), 0, 0, 0, 0, 0, 0), append(bytes.Clone(marker), 1, 0, 0, 0, 5),
		append(append(bytes.Clone(marker), probeHead...), make([]byte, 2000)...),
	} {
		say(t, c, junk)
	}
	say(t, c, marker, probeHead)
	if got := a.next(t); got.data != string(probeHead) || got.kind != "probe" {
		t.Errorf("%+v", got)
	}
	// Of those without a marker the kernel has taken two for ESP and one for a keepalive.
	if unknown, probes := a.dropped("unknown"), a.dropped("probes"); unknown != 8 || probes != 1 {
		t.Errorf("%d unknown, want 8, and %d probes that are too long, want 1", unknown, probes)
	}
}

// TestTwoSockets talk to each other, also when one has lost the address that it is to send from.
func TestTwoSockets(t *testing.T) {
	a, b := newNode(t), newNode(t)
	to := netip.AddrPortFrom(localhost, b.Port())
	for _, local := range []netip.Addr{{}, localhost, netip.MustParseAddr("192.0.2.77")} {
		if err := a.Send(to, local, probeHead); err != nil {
			t.Fatal(err)
		}
		if got := b.next(t); got.from.Port() != a.Port() || got.local != localhost {
			t.Errorf("from %v: %+v", local, got)
		}
	}
	whole := append(bytes.Clone(probeHead), make([]byte, 1400)...)
	if err := a.SendWhole(to, netip.Addr{}, whole); err != nil {
		t.Fatal(err)
	}
	if got := b.next(t); got.data != string(whole) {
		t.Errorf("%d bytes came", len(got.data))
	}
	if err := a.SendWhole(to, netip.Addr{}, make([]byte, 1<<16)); err == nil {
		t.Error("more than fits into a datagram was sent")
	}
}

// TestFullQueues drop what comes, and only of their kind.
func TestFullQueues(t *testing.T) {
	n := &node{packets: make(chan came, 4096), hold: make(chan struct{})}
	n.start(t)
	let := sync.OnceFunc(func() { close(n.hold) })
	t.Cleanup(let) // before the socket's end
	c := outsider(t, localhost, n.Port())
	for _, x := range []struct {
		reason string
		head   []byte
	}{{"probes", probeHead}, {"stun", stunHead}, {"queue", quicHead}} {
		runtest.Eventually(t, x.reason+" are dropped", func() bool {
			for range 100 {
				say(t, c, marker, x.head)
			}
			return n.dropped(x.reason) > 0
		})
	}
	let()
	if n.next(t).data == "" || n.dropped("unknown") != 0 {
		t.Errorf("%v", n.Drops())
	}
}

// TestDeadlines of reading, as QUIC ends its reader.
func TestDeadlines(t *testing.T) {
	n := newNode(t)
	p := n.Packets()
	read := func() error { _, _, err := p.ReadFrom(make([]byte, 10)); return err }
	for _, at := range []time.Time{time.Unix(1, 0), time.Now().Add(20 * time.Millisecond)} {
		if err := p.SetReadDeadline(at); err != nil || !errors.Is(read(), os.ErrDeadlineExceeded) {
			t.Errorf("%v: %v", at, err)
		}
	}
	if err := p.SetDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- read() }()
	if err := errors.Join(p.SetReadDeadline(time.Unix(1, 0)), p.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who waited: %v", err)
	}
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		t.Error(err)
	}
	go func() { ended <- read() }()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the socket's end: %v", err)
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	a := newNode(t)
	s, err := espudp.Open(t.Context(), espudp.Settings{Port: a.Port()})
	if f := fault.From(err); f.Code != fault.CodeAddressBusy || f.Next == "" {
		t.Errorf("%v, %v", s, err)
	}
}
