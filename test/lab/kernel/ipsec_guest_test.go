// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
)

// TestWithoutIPsec: what a kernel lacks is said, and nothing is changed for that. With all of it nothing is.
func TestWithoutIPsec(t *testing.T) {
	f := ipsec.Able(t.Context(), false)
	if f == nil || f.Code != fault.CodeUnsupported || !strings.Contains(f.Next, "modprobe -a xfrm_user xfrm_interface esp4") {
		t.Fatalf("without its modules: %v", f)
	}
}

// The same where only a part is missing: each of these runs in a kernel that has what the ones before it lacked.
func TestWithoutLinks(t *testing.T) { lacks(t, "links of kind xfrm", "xfrm_interface,") }
func TestWithoutESP(t *testing.T)   { lacks(t, espOf+", "+chaCha, "esp4 gcm ") }
func TestWithoutSeqiv(t *testing.T) {
	lacks(t, espOf+", "+chaCha, "esp4 gcm ghash-generic ctr seqiv drbg esp6 ")
}
func TestWithoutDRBG(t *testing.T) {
	lacks(t, espOf+", "+chaCha, "esp4 gcm ghash-generic ctr seqiv drbg esp6 ")
}
func TestWithoutChaCha(t *testing.T) { lacks(t, chaCha, "chacha20poly1305,") }

const (
	espOf  = "ESP in UDP over IPv4, ESP in UDP over IPv6 (Linux 5.8)"
	chaCha = "ChaCha20-Poly1305 for ESP"
)

// lacks checks that the kernel is said to lack something, and which modules to load; nothing has been changed for it.
func lacks(t *testing.T, what, modules string) {
	t.Helper()
	before := ipsecLinks(t)
	f := ipsec.Able(t.Context(), false)
	if f == nil || f.Code != fault.CodeUnsupported || !strings.HasSuffix(f.Error(), "it lacks "+what) ||
		!strings.HasPrefix(f.Next, "load it with modprobe -a "+modules) {
		t.Fatalf("it says %v, %q", f, f.Next)
	}
	if after := ipsecLinks(t); after != before {
		t.Errorf("it has left %s, before %s", after, before)
	}
}

// TestWithoutDiverting: what another engine beside IPsec needs is missing, and IPsec alone has all.
func TestWithoutDiverting(t *testing.T) {
	if f := ipsec.Able(t.Context(), false); f != nil {
		t.Error(f)
	}
	if f := ipsec.Able(t.Context(), true); f == nil || !strings.Contains(f.Error(), "it lacks diverting packets") ||
		!strings.HasPrefix(f.Next, "load it with modprobe -a sch_ingress cls_flower act_mirred,") {
		t.Errorf("it says %v", f)
	}
}

func ipsecLinks(t *testing.T) string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range links {
		out = append(out, l.Attrs().Name)
	}
	return strings.Join(out, " ")
}

// TestTheKernelsIPsec: what a mesh needs of it, on a wire on which somebody listens.
func TestTheKernelsIPsec(t *testing.T) {
	if f := ipsec.Able(t.Context(), false); f != nil {
		t.Fatal(f)
	}
	e := newEnds(t)
	for i, s := range e.side {
		others, err := lab.OthersIPsec(s.host)
		if err != nil {
			t.Fatal(err)
		}
		e.others[i] = others
	}
	e.open()
	t.Run("no policy, no state", func(t *testing.T) {
		e.t = t
		e.dropped()
		e.paths(0)
		e.dropped()
	})
	for _, s := range e.side { // nobody has to read it: the kernel takes what is ESP
		var err error
		if s.socket, err = s.host.ListenUDP("udp", ":4500"); err != nil {
			t.Fatal(err)
		}
		encapsulate(t, s.socket)
	}
	for _, c := range []struct {
		name   string
		family int
		cipher ipsec.Cipher
		udp    bool
	}{
		{"AES-256-GCM over IPv4", 0, ipsec.AES, false},
		{"AES-256-GCM over IPv6", 1, ipsec.AES, false},
		{"ChaCha20-Poly1305 over IPv4", 0, ipsec.ChaCha, false},
		{"in UDP over IPv4", 0, ipsec.AES, true},
		{"in UDP over IPv6", 1, ipsec.AES, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.t = t
			e.paths(c.family)
			names := e.keys(c.family, c.cipher, c.udp)
			e.reach(names)
			e.forget(names)
		})
	}
	t.Run("a new key in the middle of a connection", func(t *testing.T) {
		e.t = t
		e.paths(0)
		e.rekeyed()
	})
	t.Run("a masquerade beside it", func(t *testing.T) {
		e.t = t
		m := e.side[0].host.Masquerade("wan")
		if err := m.On(); err != nil {
			t.Fatal(err)
		}
		names := e.keys(0, ipsec.AES, false)
		e.sourceStays()
		e.forget(names)
		if err := m.Off(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a state of another peer", func(t *testing.T) { e.t = t; e.impostor() })
	t.Run("taken over, and no trace", func(t *testing.T) { e.t = t; e.end() })
}

func encapsulate(t *testing.T, c *net.UDPConn) {
	t.Helper()
	conn, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctlErr := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_ENCAP, unix.UDP_ENCAP_ESPINUDP)
	}); ctlErr != nil || err != nil {
		t.Fatal(ctlErr, err)
	}
}

// dropped sends a datagram in each family, and waits until the kernel has counted that it was dropped.
func (e *ends) dropped() {
	e.t.Helper()
	for family := range 2 {
		conn, err := e.side[0].pod.ListenUDP("udp", ":0")
		if err != nil {
			e.t.Fatal(err)
		}
		before := strings.Join(e.trouble(), " ")
		until := time.Now().Add(10 * time.Second)
		for {
			// An ICMP error of an earlier one is reported by the next: either way nothing has passed.
			_, _ = conn.WriteToUDPAddrPort(marker, netip.AddrPortFrom(e.side[1].inner[family], ipsecEcho))
			link, err := e.drops()
			if now := strings.Join(e.trouble(), " "); now != before || link > 0 {
				break
			}
			if err != nil || time.Now().After(until) {
				e.t.Fatalf("nothing was dropped: %v %v", e.trouble(), err)
			}
		}
		conn.Close()
	}
	e.nothingInClear()
}

// drops are those of the first node's link.
func (e *ends) drops() (n uint64, err error) {
	e.side[0].do(e.t, func() error {
		link, err := netlink.LinkByName(ipsecLink)
		if err == nil && link.Attrs().Statistics != nil {
			s := link.Attrs().Statistics
			n = s.TxErrors + s.TxDropped + s.TxCarrierErrors
		}
		return err
	})
	return n, nil
}

// rekeyed changes the keys again and again while bytes flow: not one packet may be lost to that.
func (e *ends) rekeyed() {
	e.t.Helper()
	names := e.keys(0, ipsec.AES, false)
	before := strings.Join(e.trouble(), " ")
	conn, err := e.side[0].pod.DialContext(context.Background(), "tcp",
		netip.AddrPortFrom(e.side[1].inner[0], ipsecEcho).String())
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	for range 5 {
		done := make(chan error, 1)
		go func() { done <- there(conn, 256<<10) }()
		fresh := e.keys(0, ipsec.AES, false)
		if err := <-done; err != nil {
			e.t.Error(err)
		}
		if err := there(conn, 16<<10); err != nil {
			e.t.Error(err)
		}
		e.forget(names) // nothing is on its way by the old ones any more
		names = fresh
	}
	if after := strings.Join(e.trouble(), " "); after != before {
		e.t.Errorf("packets were lost: %s, before %s", after, before)
	}
	e.nothingInClear()
	e.forget(names)
}

// sourceStays has the far pod see the near one's own address.
func (e *ends) sourceStays() {
	e.t.Helper()
	l, err := e.side[1].pod.Listen("tcp", ":7100")
	if err != nil {
		e.t.Fatal(err)
	}
	defer l.Close()
	from := make(chan string, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			from <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String()
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := e.side[0].pod.DialContext(ctx, "tcp", netip.AddrPortFrom(e.side[1].inner[0], 7100).String())
	if err != nil {
		e.t.Fatal(err)
	}
	defer c.Close()
	if got := <-from; got != e.side[0].inner[0].String() {
		e.t.Errorf("the far pod sees %s, want %s", got, e.side[0].inner[0])
	}
}

// impostor has another peer, whose states are in order, send from the range of the first one.
func (e *ends) impostor() {
	e.t.Helper()
	a, b := e.side[0], e.side[1]
	var key [ipsec.KeyBytes]byte
	e.next++
	st := ipsec.State{Name: ipsec.Name{To: b.outer[0], SPI: e.next}, Peer: 2, From: a.outer[0], Key: ipsec.NewKey(key)}
	b.do(e.t, func() error { return b.device.Add(st) })
	st.Peer, st.Sends = 1, true
	a.do(e.t, func() error { return a.device.Add(st) })
	conn, err := a.pod.ListenUDP("udp", ":0")
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	until := time.Now().Add(10 * time.Second)
	for !strings.Contains(strings.Join(e.trouble(), " "), "b:XfrmInTmplMismatch") {
		if time.Now().After(until) {
			e.t.Fatalf("it was not refused: %v", e.trouble())
		}
		_, _ = conn.WriteToUDPAddrPort(marker, netip.AddrPortFrom(b.inner[0], ipsecEcho))
	}
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		e.t.Fatal(err)
	}
	if n, _, err := conn.ReadFromUDPAddrPort(make([]byte, 100)); err == nil {
		e.t.Errorf("%d bytes came back", n)
	}
	e.forget([]ipsec.Name{st.Name})
}

// end takes the link over, with what it has, then removes all that is ours and nothing else.
func (e *ends) end() {
	e.t.Helper()
	names := e.keys(0, ipsec.AES, false)
	for _, s := range e.side {
		s.do(e.t, func() error { return s.device.Close(true) })
	}
	e.open()
	for i, s := range e.side {
		s.do(e.t, func() error {
			seen, err := s.device.States()
			if len(seen) != 2 {
				e.t.Errorf("node %d has %d states after it was taken over, want 2", i, len(seen))
			}
			for _, s := range seen {
				if want := slices.Contains(e.side[1-i].outer[:], s.To); s.Sends != want {
					e.t.Errorf("node %d sends by the state to %s: %v", i, s.To, s.Sends)
				}
			}
			return err
		})
	}
	e.reach(names)
	for i, s := range e.side {
		s.do(e.t, func() error {
			if err := s.device.Close(false); err != nil {
				return err
			}
			_, errLink := netlink.LinkByName(ipsecLink)
			if !errors.As(errLink, new(netlink.LinkNotFoundError)) {
				e.t.Errorf("node %d has the link: %v", i, errLink)
			}
			return nil
		})
		if left, err := lab.AllIPsec(s.host); err != nil || !slices.Equal(left, e.others[i]) {
			e.t.Errorf("node %d has, %v\n%s\nwant what others have:\n%s", i, err, strings.Join(left, "\n"),
				strings.Join(e.others[i], "\n"))
		}
	}
	e.nothingInClear()
}
