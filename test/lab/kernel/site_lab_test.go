// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// site is a node of a mesh with a pod behind it and the internet before it, where
// somebody has the addresses of the peers' pods and sees what is sent in clear.
//
//	pod 10.244.1.7 --- node 192.0.2.2 --- world 192.0.2.1, 10.244.2.7, 10.244.3.7
//	                        |
//	                    tombolo0: tunnel
type site struct {
	*node
	pod, world *lab.Host
	tun        *tunnel
	in         topology.Input
}

func newSite(t *testing.T) *site {
	t.Helper()
	l := labtest.New(t, "packets")
	host := func(make func(string) (*lab.Host, error), name string) *lab.Host {
		h, err := make(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	node, pod, world := host(l.Router, "node"), host(l.Host, "pod"), host(l.Router, "world")
	for _, err := range []error{
		l.Link(lab.End{Host: node, Name: "eth0", Addr: "192.0.2.2"}, lab.End{Host: world, Name: "eth0", Addr: "192.0.2.1"}),
		l.Link(lab.End{Host: node, Name: "cni0", Addr: "10.244.1.1"}, lab.End{Host: pod, Name: "eth0", Addr: pod1}),
		node.Default("192.0.2.1"), pod.Default("10.244.1.1"), world.Route("10.244.1.0/24", "192.0.2.2"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &site{node: newNode(t, node), pod: pod, world: world, in: input()}
	other := &nodeOf{t, world}
	other.run("ip", "addr", "add", pod2+"/32", "dev", "lo")
	other.run("ip", "addr", "add", pod3+"/32", "dev", "lo")
	s.tun = openTunnel(t, node)
	s.plan()
	return s
}

// nodeOf runs commands in a host that has no kernel of ours.
type nodeOf struct {
	t    *testing.T
	host *lab.Host
}

func (n *nodeOf) run(args ...string) {
	n.t.Helper()
	(&node{t: n.t, host: n.host}).run("", args...)
}

func input() topology.Input {
	numbered := func(n byte, ranges ...string) member.Facts {
		m := member.Facts{
			ID: fmt.Sprint("m", n), Key: member.Key{n}, Overlay4: netip.AddrFrom4([4]byte{100, 112, 0, n}),
			Overlay6: netip.AddrFrom16([16]byte{0: 0xfd, 7: 2, 15: n}),
		}
		for _, r := range ranges {
			m.Ranges = append(m.Ranges, netip.MustParsePrefix(r))
		}
		return m
	}
	in := topology.Input{
		Self: numbered(1, "10.244.1.0/24"), Members: []member.Facts{numbered(2, "10.244.2.0/24"), numbered(3, "10.244.3.0/24")},
		Options: topology.Defaults(), Health: map[string]topology.Health{},
	}
	in.Options.Overlay6 = netip.MustParsePrefix("fd00:0:0:2::/64")
	return in
}

// plan puts the input into force.
func (s *site) plan() {
	s.t.Helper()
	want, _, problems := topology.Plan(s.in)
	if len(problems) > 0 {
		s.t.Fatal(problems)
	}
	reachState(s.t, s.node, want)
}

// serve echoes lines at an address, with a word before each, until the lab ends.
func serve(t *testing.T, h *lab.Host, addr, word string) {
	t.Helper()
	listener, err := h.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, word, lines.Text())
				}
			}()
		}
	}()
}

func ask(conn net.Conn, line string) (string, error) {
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer := make([]byte, 100)
	n, err := conn.Read(answer)
	return strings.TrimSpace(string(answer[:n])), err
}

// begin dials in the background, until the test ends.
func begin(t *testing.T, h *lab.Host, addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := h.DialContext(ctx, "tcp", addr); err == nil {
			conn.Close()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// handshake begins a connection from a peer's pod, and gives what the answer was.
func (s *site) handshake(src, dst string, sport, dport uint16) packet {
	s.t.Helper()
	p := packet{src: netip.MustParseAddr(src), dst: netip.MustParseAddr(dst), sport: sport, dport: dport, flags: syn, seq: 1000, mss: 1460}
	s.tun.send(tcp(p, 0))
	answer := s.tun.receive("answer to "+src, func(q packet) bool { return q.dst == p.src && q.dport == sport && q.flags == synAck })
	p.flags, p.seq, p.mss = ack, 1001, 0
	s.tun.send(tcp(p, answer.seq+1))
	return answer
}

// segment is the size that a connection sends.
func segment(t *testing.T, conn net.Conn) (size int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if info, e := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); e == nil {
			size = int(info.Snd_mss)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// listen receives datagrams in a host.
func listen(t *testing.T, h *lab.Host, addr string) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	if err := h.Do(func() (err error) { conn, err = net.ListenPacket("udp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func datagram(t *testing.T, conn net.PacketConn) string {
	t.Helper()
	b := make([]byte, 100)
	n, _, err := conn.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// connect dials, from an address if one is given.
func (s *site) connect(h *lab.Host, addr, from string) (conn net.Conn) {
	s.t.Helper()
	d := net.Dialer{Timeout: patience}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	if err := h.Do(func() (err error) { conn, err = d.Dial("tcp", addr); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}
