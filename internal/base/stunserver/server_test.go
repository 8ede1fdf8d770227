// SPDX-License-Identifier: Apache-2.0

package stunserver

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func count(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

// serve starts a server and gives its endpoints on an address.
func serve(t *testing.T, c Config, on string) (*Server, []netip.AddrPort) {
	t.Helper()
	m, err := Open(t.Context(), c, telemetry.NewSTUN(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	g := run.NewGroup(ctx)
	g.Go("STUN server", m.Run)
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	var at []netip.AddrPort
	for _, s := range m.ports {
		at = append(at, netip.AddrPortFrom(netip.MustParseAddr(on), s.port))
	}
	return m, at
}

func socket(t *testing.T, on string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(on)))
	if strings.HasPrefix(on, "[") && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
		t.Skip("this machine has no IPv6, not even on its loopback")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends a question until its answer comes, and gives it and its sender. A question that was sent twice may have two
// answers: those to earlier ones are passed over, and so each has an ID of its own.
func ask(t *testing.T, conn *net.UDPConn, id nat.ID, wish nat.Wish, to netip.AddrPort,
) (nat.Message, netip.AddrPort, int) {
	t.Helper()
	b, from := exchange(t, conn, nat.Request(id, wish), to, another(id))
	m, err := nat.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m, from, len(b)
}

// another tells the answers to other questions than that with an ID.
func another(id nat.ID) func([]byte) bool {
	return func(b []byte) bool {
		m, err := nat.Parse(bytes.TrimPrefix(b, []byte(nat.Marker)))
		return err == nil && m.ID != id
	}
}

// nothing passes over nothing.
func nothing([]byte) bool { return false }

// exchange sends until something comes that is not passed over, and gives it and its sender.
func exchange(t *testing.T, conn *net.UDPConn, packet []byte, to netip.AddrPort, over func([]byte) bool,
) ([]byte, netip.AddrPort) {
	t.Helper()
	b := make([]byte, 2000)
	for range 50 {
		if _, err := conn.WriteToUDPAddrPort(packet, to); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		n, from, err := conn.ReadFromUDPAddrPort(b)
		for err == nil && over(b[:n]) {
			n, from, err = conn.ReadFromUDPAddrPort(b)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return b[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	}
	t.Fatalf("%v does not answer", to)
	return nil, netip.AddrPort{}
}

// TestCallersOfESPInUDP get what others do behind the marker, from both ports, and so do their mistakes.
func TestCallersOfESPInUDP(t *testing.T) {
	conn := socket(t, "127.0.0.1:0")
	_, at := serve(t, Config{Listen: "127.0.0.1:0", Second: "127.0.0.1:0"}, "127.0.0.1")
	for _, wish := range []nat.Wish{nat.WishNothing, nat.WishOther, nat.WishOtherPort} {
		by := at[0]
		if wish == nat.WishOtherPort {
			by = at[1]
		}
		id := nat.ID{byte(wish)}
		b, from := exchange(t, conn, append([]byte(nat.Marker), nat.Request(id, wish)...), at[0], another(id))
		text, marked := bytes.CutPrefix(b, []byte(nat.Marker))
		got, err := nat.Parse(text)
		if err != nil || !marked || got.Mapped != local(conn) || got.ID != id || from != by {
			t.Errorf("wish %d: %+v from %v, with its marker %v, %v", wish, got, from, marked, err)
		}
	}
	conn = socket(t, "127.0.0.1:0") // nothing comes late to it
	long := append([]byte(nat.Marker), make([]byte, limit.STUNMessage+1)...)
	for _, junk := range [][]byte{[]byte(nat.Marker), long, append([]byte(nat.Marker+nat.Marker), nat.Request(nat.ID{}, 0)...)} {
		if _, err := conn.WriteToUDPAddrPort(junk, at[0]); err != nil {
			t.Fatal(err)
		}
	}
	asked := append([]byte(nat.Marker), nat.Request(nat.ID{77}, nat.WishNothing)...)
	if b, _ := exchange(t, conn, asked, at[0], nothing); !bytes.Contains(b, []byte{77}) {
		t.Errorf("junk was answered: %x", b)
	}
}

func local(conn *net.UDPConn) netip.AddrPort { return conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// TestCallersLearnWhereTheyComeFrom: by every kind of listening socket, at every
// address of the machine, and the answer comes from the address that was asked.
func TestCallersLearnWhereTheyComeFrom(t *testing.T) {
	for listen, addrs := range map[string][]string{
		":0": {"127.0.0.1", "127.0.0.2", "::1"}, "0.0.0.0:0": {"127.0.0.1", "127.9.9.9"}, "127.0.0.1:0": {"127.0.0.1"}, "[::1]:0": {"::1"},
	} {
		for _, on := range addrs {
			t.Run(listen+" at "+on, func(t *testing.T) {
				caller := "127.0.0.1:0"
				if on == "::1" {
					caller = "[::1]:0"
				}
				conn := socket(t, caller)
				m, at := serve(t, Config{Listen: listen, Second: Off}, on)
				got, from, n := ask(t, conn, nat.ID{1}, nat.WishNothing, at[0])
				if got.Mapped != local(conn) || got.ID != (nat.ID{1}) || got.Other.IsValid() || from != at[0] {
					t.Errorf("%+v from %v, want %v from %v", got, from, local(conn), at[0])
				}
				if n > 44 {
					t.Errorf("the answer has %d bytes", n)
				}
				ask(t, conn, nat.ID{2}, nat.WishNothing, at[0]) // the first is counted by then
				if v := count(t, m.metrics.Answers.WithLabelValues(family(at[0].Addr()))); v < 1 {
					t.Errorf("%v answers are counted", v)
				}
			})
		}
	}
}

func TestTheOtherPort(t *testing.T) {
	conn := socket(t, "127.0.0.1:0")
	_, at := serve(t, Config{Listen: "127.0.0.1:0", Second: "127.0.0.1:0"}, "127.0.0.1")
	for i := range at {
		got, from, _ := ask(t, conn, nat.ID{1, byte(i)}, nat.WishOther, at[i])
		if got.Other != at[1-i] || from != at[i] {
			t.Errorf("%+v from %v, want %v as the other", got, from, at[1-i])
		}
		got, from, _ = ask(t, conn, nat.ID{2, byte(i)}, nat.WishOtherPort, at[i])
		if from != at[1-i] || got.Mapped != local(conn) {
			t.Errorf("%+v from %v, want %v", got, from, at[1-i])
		}
	}
	_, alone := serve(t, Config{Listen: "127.0.0.1:0"}, "127.0.0.1")
	got, _, _ := ask(t, conn, nat.ID{3}, nat.WishOtherPort, alone[0])
	if got.Class != nat.ClassFailure || got.Code != 420 {
		t.Errorf("a server with one port answers %+v", got)
	}
	got, _, _ = ask(t, conn, nat.ID{4}, nat.WishOther, alone[0])
	if got.Class != nat.ClassSuccess || got.Other.IsValid() {
		t.Errorf("a server with one port answers %+v", got)
	}
}

// TestWhatIsNoQuestionHasNoAnswer: after all of it a question is answered, and it is
// the first thing that comes.
func TestWhatIsNoQuestionHasNoAnswer(t *testing.T) {
	conn := socket(t, "127.0.0.1:0")
	m, at := serve(t, Config{Listen: "127.0.0.1:0"}, "127.0.0.1")
	request, _ := nat.Parse(nat.Request(nat.ID{1}, nat.WishNothing))
	allocate := nat.Request(nat.ID{1}, nat.WishNothing)
	allocate[1] = 3
	bad := [][]byte{nil, []byte("hello"), nat.Answer(request, local(conn), netip.AddrPort{}), allocate, make([]byte, limit.STUNMessage+200)}
	for _, b := range bad {
		if _, err := conn.WriteToUDPAddrPort(b, at[0]); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := exchange(t, conn, nat.Request(nat.ID{7}, nat.WishNothing), at[0], nothing)
	if got, err := nat.Parse(b); err != nil || got.ID != (nat.ID{7}) {
		t.Errorf("the first answer is to %v, %v", got.ID, err)
	}
	if v := count(t, m.metrics.Dropped.WithLabelValues(dropMalformed)); int(v) != len(bad) {
		t.Errorf("%v are counted as malformed", v)
	}
}

func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	a := netip.MustParseAddr
	r := newRates()
	for i := range stunServerBurst {
		if why := r.refuse(a("192.0.2.1"), now); why != "" {
			t.Fatalf("answer %d: %s", i, why)
		}
	}
	if why := r.refuse(a("::ffff:192.0.2.1"), now); why != dropSource {
		t.Errorf("beyond the burst: %q", why)
	}
	if why := r.refuse(a("192.0.2.2"), now); why != "" {
		t.Errorf("another address: %s", why)
	}
	if why := r.refuse(a("192.0.2.1"), now.Add(time.Second/stunServerRate)); why != "" {
		t.Errorf("later: %s", why)
	}
	for i := range stunServerBurst + 1 {
		b := a("2001:db8::").As16()
		b[15], b[8] = byte(i), byte(i)
		why := r.refuse(netip.AddrFrom16(b), now)
		if want := map[bool]string{true: dropSource}[i == stunServerBurst]; why != want {
			t.Fatalf("a site's address %d: %q", i, why)
		}
	}
	r = newRates()
	refused := 0
	for i := range 2 * stunServerSources {
		if why := r.refuse(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now); why == dropTotal {
			refused++
		}
	}
	if want := 2*stunServerSources - stunServerTotalBurst; refused != want {
		t.Errorf("%d are refused for the total, want %d", refused, want)
	}
	if len(r.sources) != stunServerSources || r.recent.Len() != stunServerSources {
		t.Errorf("%d sources are kept, %d in order", len(r.sources), r.recent.Len())
	}
}

func TestPortsThatAreTaken(t *testing.T) {
	busy := local(socket(t, "127.0.0.1:0")).String()
	for name, c := range map[string]struct {
		c           Config
		fails       bool
		at, without int
	}{
		"off":                     {c: Config{Listen: Off, Second: busy, Main: busy}},
		"nothing is said":         {c: Config{}, without: 0, at: 1},
		"the main port's number":  {c: Config{Main: "127.0.0.1:0"}, at: 1},
		"which is taken":          {c: Config{Main: busy, SecondDefault: "127.0.0.1:0"}, without: 1},
		"asked for, and taken":    {c: Config{Listen: busy}, fails: true},
		"the default second":      {c: Config{Main: "127.0.0.1:0", SecondDefault: "127.0.0.1:0"}, at: 2},
		"which is taken, too":     {c: Config{Main: "127.0.0.1:0", SecondDefault: busy}, at: 1, without: 1},
		"a second that is taken":  {c: Config{Main: "127.0.0.1:0", Second: busy}, fails: true},
		"no second":               {c: Config{Main: "127.0.0.1:0", Second: Off, SecondDefault: "127.0.0.1:0"}, at: 1},
		"an address that is none": {c: Config{Listen: "nonsense"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Open(t.Context(), c.c, telemetry.NewSTUN(prometheus.NewRegistry()))
			if c.fails {
				if !fault.Has(err, fault.CodeAddressBusy) || !strings.Contains(err.Error(), "stun.") {
					t.Fatalf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			at, without := m.Status().Listen, m.Status().Without
			if len(at) != c.at || len(without) != c.without {
				t.Errorf("listens at %v, without %v", at, without)
			}
		})
	}
}
