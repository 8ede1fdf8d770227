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
	next     uint32      // SPI
	others   [2][]string // what others have of IPsec at both nodes
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
		all := []ipsec.Peer{{ID: 1, Local: s.outer[family], Remote: far.outer[family], Ranges: far.ranges}}
		s.do(e.t, func() error {
			missing, err := s.device.Differs(all)
			err = errors.Join(err, s.device.Apply(all))
			left, again := s.device.Differs(all)
			if none, _ := s.device.Differs(nil); none == 0 || left != 0 {
				e.t.Errorf("node %d lacks %d policies, then %d, and has %d of the peer", i, missing, left, none)
			}
			return errors.Join(err, again)
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
