// SPDX-License-Identifier: Apache-2.0

//go:build guest

package kernel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

const (
	ipsecLink = "tombolo0"
	ipsecID   = 0x544d
	ipsecMark = 0x20
	ipsecPort = 4500
	ipsecEcho = 7000
)

// marker is in every packet between pods.
var marker = []byte("in-clear-text-nobody-may-see-this")

// ends are two nodes with a pod each, and a wire between them on which a listener sits.
type ends struct {
	t    *testing.T
	side [2]*side
	wire *lab.Capture
	// wireHost is where the listener sits.
	wireHost *lab.Host
	next     uint32 // SPI
}

type side struct {
	host, pod *lab.Host
	outer     [2]netip.Addr // of IPv4 and IPv6
	inner     [2]netip.Addr // the pod's
	ranges    []netip.Prefix
	device    *ipsec.Device
	socket    *net.UDPConn
}

// do calls fn in the node's namespace.
func (s *side) do(t *testing.T, fn func() error) {
	t.Helper()
	if err := s.host.Do(fn); err != nil {
		t.Fatal(err)
	}
}

func newEnds(t *testing.T) *ends {
	t.Helper()
	l := labtest.New(t, "ipsec")
	fatal := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	wire, err := l.Router("wire")
	fatal(err)
	e := &ends{t: t, next: 0x1000, wireHost: wire}
	for i, name := range []string{"a", "b"} {
		host, err := l.Router(name)
		fatal(err)
		pod, err := l.Host("pod-" + name)
		fatal(err)
		n := string(rune('1' + i))
		outer4, outer6 := "192.0.2."+n, "2001:db8::"+n
		inner4, inner6 := "10."+n+".0.2", "fd10:"+n+"::2"
		fatal(l.Link(lab.End{Host: host, Name: "wan", Addr: outer4, Addr6: outer6},
			lab.End{Host: wire, Name: name, Addr: "192.0.2.25" + n, Addr6: "2001:db8::f" + n}),
			l.Link(lab.End{Host: pod, Name: "eth0", Addr: inner4, Addr6: inner6},
				lab.End{Host: host, Name: "pods", Addr: "10." + n + ".0.1", Addr6: "fd10:" + n + "::1"}),
			lab.CopyPackets(host, "wan"), host.Default("192.0.2.25"+n), host.Default("2001:db8::f"+n),
			pod.Default("10."+n+".0.1"), pod.Default("fd10:"+n+"::1"), pod.Echo(ipsecEcho))
		e.side[i] = &side{host: host, pod: pod,
			outer:  [2]netip.Addr{netip.MustParseAddr(outer4), netip.MustParseAddr(outer6)},
			inner:  [2]netip.Addr{netip.MustParseAddr(inner4), netip.MustParseAddr(inner6)},
			ranges: []netip.Prefix{netip.MustParsePrefix("10." + n + ".0.0/24"), netip.MustParsePrefix("fd10:" + n + "::/64")}}
	}
	fatal(l.AwaitLinks())
	e.wire, err = wire.Capture("a")
	fatal(err)
	return e
}

// open makes the links, with routes into them.
func (e *ends) open() {
	e.t.Helper()
	for i, s := range e.side {
		far := e.side[1-i]
		s.do(e.t, func() (err error) {
			s.device, err = ipsec.Open(ipsec.Settings{Link: ipsecLink, ID: ipsecID, MTU: 1400, Mark: ipsecMark, Mask: 0x60})
			if err != nil {
				return err
			}
			link, err := netlink.LinkByName(ipsecLink)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			for _, r := range far.ranges {
				dst := &net.IPNet{IP: r.Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen())}
				err = errors.Join(err, netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: link.Attrs().Index}))
			}
			return err
		})
	}
}

// paths has each node send to the other by an outer address: 0 of IPv4, 1 of IPv6.
func (e *ends) paths(family int) {
	e.t.Helper()
	for i, s := range e.side {
		far := e.side[1-i]
		s.do(e.t, func() error {
			return s.device.Apply([]ipsec.Peer{{ID: 1, Local: s.outer[family], Remote: far.outer[family], Ranges: far.ranges}})
		})
	}
}

// keys gives both nodes new states, those that receive first, and returns their names.
func (e *ends) keys(family int, cipher ipsec.Cipher, udp bool) (names []ipsec.Name) {
	e.t.Helper()
	for i, s := range e.side { // from s to far
		far := e.side[1-i]
		var key [ipsec.KeyBytes]byte
		if _, err := rand.Read(key[:]); err != nil {
			e.t.Fatal(err)
		}
		e.next++
		st := ipsec.State{Name: ipsec.Name{To: far.outer[family], SPI: e.next}, Peer: 1, From: s.outer[family],
			Cipher: cipher, Key: ipsec.NewKey(key)}
		if udp {
			st.FromPort, st.ToPort = ipsecPort, ipsecPort
		}
		far.do(e.t, func() error { return far.device.Add(st) })
		st.Sends = true
		s.do(e.t, func() error { return s.device.Add(st) })
		names = append(names, st.Name)
	}
	return names
}

// forget removes states at both nodes.
func (e *ends) forget(names []ipsec.Name) {
	e.t.Helper()
	for _, s := range e.side {
		for _, n := range names {
			s.do(e.t, func() error { return s.device.Remove(n) })
		}
	}
}

// reach has bytes go from pod to pod and back by TCP, in both families, and looks at what was on the wire.
func (e *ends) reach(names []ipsec.Name) {
	e.t.Helper()
	for family := range 2 {
		to := netip.AddrPortFrom(e.side[1].inner[family], ipsecEcho).String()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		conn, err := e.side[0].pod.DialContext(ctx, "tcp", to)
		cancel()
		if err != nil {
			e.t.Errorf("dialling %s: %v (%v)", to, err, e.trouble())
			continue
		}
		if err := there(conn, 64<<10); err != nil {
			e.t.Errorf("%s: %v (%v)", to, err, e.trouble())
		}
		conn.Close()
	}
	e.nothingInClear()
	for _, n := range names {
		if c, err := e.wire.With(binary.BigEndian.AppendUint32(nil, n.SPI)); err != nil || c == 0 {
			e.t.Errorf("of the state %#x there were %d packets on the wire (%v)", n.SPI, c, err)
		}
	}
}

// there sends bytes to an echo, and compares what comes back.
func there(conn net.Conn, size int) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent := bytes.Repeat(marker, size/len(marker)+1)
	wrote := make(chan error, 1)
	go func() { _, err := conn.Write(sent); wrote <- err }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return errors.New("other bytes came back")
	}
	return <-wrote
}

func (e *ends) nothingInClear() {
	e.t.Helper()
	if n, err := e.wire.With(marker); err != nil || n != 0 {
		e.t.Errorf("%d packets were on the wire in clear (%v)", n, err)
	}
}

// trouble are the counters of the kernel's IPsec that are not 0, of both nodes.
func (e *ends) trouble() (out []string) {
	for i, s := range e.side {
		s.do(e.t, func() error {
			text, err := os.ReadFile("/proc/thread-self/net/xfrm_stat")
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) == 2 && f[1] != "0" {
					out = append(out, string(rune('a'+i))+":"+f[0]+"="+f[1])
				}
			}
			return err
		})
	}
	return out
}

// TestWithoutIPsec: what a kernel lacks is said, and nothing is changed for that. With all of it nothing is.
func TestWithoutIPsec(t *testing.T) {
	f := ipsec.Able(false)
	if f == nil || f.Code != fault.CodeUnsupported || !strings.Contains(f.Next, "modprobe -a xfrm_user xfrm_interface esp4") {
		t.Fatalf("without its modules: %v", f)
	}
}

// TestWithoutESP: the same where only a part is missing.
func TestWithoutESP(t *testing.T) {
	before := ipsecLinks(t)
	f := ipsec.Able(false)
	if f == nil || !strings.Contains(f.Error(), "it lacks ESP in UDP over IPv4, ESP in UDP over IPv6 (Linux 5.8)") ||
		!strings.Contains(f.Next, "modprobe -a esp4 gcm") {
		t.Fatalf("without esp4: %v", f)
	}
	if after := ipsecLinks(t); after != before {
		t.Errorf("it has left %s, before %s", after, before)
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
	if f := ipsec.Able(false); f != nil {
		t.Fatal(f)
	}
	e := newEnds(t)
	e.open()
	e.foreign()
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

// foreign makes policies and states as other programs have them: one without a template, and one that is not AEAD.
func (e *ends) foreign() {
	e.t.Helper()
	for _, s := range e.side {
		s.do(e.t, func() error {
			_, all, err := net.ParseCIDR("203.0.113.0/24")
			return errors.Join(err,
				netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: all, Dst: all, Dir: netlink.XFRM_DIR_OUT,
					Action: netlink.XFRM_POLICY_BLOCK}),
				netlink.XfrmStateAdd(&netlink.XfrmState{Src: net.IPv4(203, 0, 113, 1), Dst: net.IPv4(203, 0, 113, 2),
					Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL, Spi: 0x777, Reqid: 1,
					Auth:  &netlink.XfrmStateAlgo{Name: "hmac(sha256)", Key: make([]byte, 32)},
					Crypt: &netlink.XfrmStateAlgo{Name: "cbc(aes)", Key: make([]byte, 32)}}))
		})
	}
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
			return err
		})
	}
	e.reach(names)
	for i, s := range e.side {
		s.do(e.t, func() error {
			if err := s.device.Close(false); err != nil {
				return err
			}
			policies, err := netlink.XfrmPolicyList(unix.AF_UNSPEC)
			states, errStates := netlink.XfrmStateList(unix.AF_UNSPEC)
			_, errLink := netlink.LinkByName(ipsecLink)
			if len(policies) != 1 || len(states) != 1 || !errors.As(errLink, new(netlink.LinkNotFoundError)) {
				e.t.Errorf("node %d has %d policies and %d states, want those of others alone; the link: %v", i,
					len(policies), len(states), errLink)
			}
			return errors.Join(err, errStates)
		})
	}
	e.nothingInClear()
}
