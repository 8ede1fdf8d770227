// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/test/lab"
)

// follow makes the kernel follow connections, and translate sources, without our rules:
// what begins now is known as it is.
func (s *site) follow() {
	s.t.Helper()
	s.run("", "nft", "flush", "ruleset")
	s.run(`table ip others {
	chain post { type nat hook postrouting priority srcnat; oifname "none" masquerade; }
	chain pre { type filter hook prerouting priority 0; ct state established accept; }
	chain out { type filter hook output priority 0; ct state established accept; }
}
`, "nft", "-f", "-")
}

// socket is one of UDP that sends to an address.
func socket(t *testing.T, h *lab.Host, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{}
	if from != "" {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))
	}
	var conn net.Conn
	if err := h.Do(func() (err error) { conn, err = d.Dial("udp", to); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func said(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	if _, err := conn.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
}

// none checks that a socket has got nothing. The kernel is asked itself: a read whose
// deadline has passed looks at nothing.
func none(t *testing.T, what string, conn net.PacketConn) {
	t.Helper()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		b := make([]byte, 100)
		if n, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT); err == nil {
			t.Errorf("%s: %q", what, b[:n])
		} else if err != unix.EAGAIN {
			t.Errorf("%s: %v", what, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A connection of this machine that is older than the rules has its underlay address:
// whoever gets its packets by the mesh would answer in clear.
func TestOlderConnectionsAreNotHalfInClear(t *testing.T) {
	s := newSite(t)
	s.follow()
	atWorld := listen(t, s.world, pod2+":53")
	answered, silent := socket(t, s.host, "", pod2+":53"), socket(t, s.host, "", pod2+":53")
	said(t, answered, "before")
	said(t, silent, "before")
	for range 2 {
		b := make([]byte, 100)
		n, from, err := atWorld.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		if from.String() == answered.LocalAddr().String() {
			atWorld.WriteTo(b[:n], from)
		}
	}
	if _, err := answered.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	s.plan()
	for _, old := range []net.Conn{answered, silent} {
		old.Write([]byte("later")) // what is dropped on its way out is an error
	}
	said(t, socket(t, s.host, "", pod2+":53"), "new")
	if p := s.tun.receive("of this machine", to(pod2, 53)); p.src.String() != "100.112.0.1" || p.payload != "new" {
		t.Errorf("came %+v", p)
	}
	none(t, "in clear", atWorld)
}

// What comes by the link from a peer's own address is let in as an answer only, however old
// the connection is: what this node answered would go in clear.
func TestOlderConnectionsOfPeersAreNotAnsweredInClear(t *testing.T) {
	s := newSite(t)
	s.follow()
	atPod, atNode := listen(t, s.pod, pod1+":53"), listen(t, s.host, "100.112.0.1:53")
	peer := socket(t, s.world, "192.0.2.1:4000", pod1+":53")
	said(t, peer, "before")
	b := make([]byte, 100)
	_, from, err := atPod.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	atPod.WriteTo([]byte("answer"), from)
	if _, err := peer.Read(b); err != nil {
		t.Fatal(err)
	}
	asked := listen(t, s.pod, pod1+":54")
	asked.WriteTo([]byte("asked"), from)
	s.in.Members[0].Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	s.plan()
	s.tun.send(udp("192.0.2.1", pod1, 53, "older"))
	s.tun.send(udp("192.0.2.1", "100.112.0.1", 53, "new"))
	s.tun.send(udp(pod2, pod1, 53, "last"))
	s.tun.send(udp(pod2, "100.112.0.1", 53, "last"))
	for who, conn := range map[string]net.PacketConn{"the pod": atPod, "this machine": atNode} {
		if got := datagram(t, conn); got != "last" {
			t.Errorf("to %s came %q", who, got)
		}
	}
	s.tun.send(udp("192.0.2.1", pod1, 54, "answer"))
	if got := datagram(t, asked); got != "answer" {
		t.Errorf("%q came", got)
	}
}

// While somebody has taken our routes away nothing that is for peers leaves in clear.
func TestWithoutRoutesNothingGoesInClear(t *testing.T) {
	s := newSite(t)
	nodeOf := &nodeOf{t, s.world}
	nodeOf.run("ip", "addr", "add", overlay2+"/32", "dev", "lo")
	atPod, atNode := listen(t, s.world, pod2+":53"), listen(t, s.world, overlay2+":53")
	last := listen(t, s.world, "192.0.2.1:53")
	fromPod, fromNode := socket(t, s.pod, "", pod2+":53"), socket(t, s.host, "", pod2+":53")
	for _, family := range []string{"-4", "-6"} {
		s.run("", "ip", family, "route", "flush", "table", "180")
		s.run("", "ip", family, "route", "flush", "table", "main", "protocol", "180")
	}
	for _, conn := range []net.Conn{fromPod, fromNode, socket(t, s.host, "", overlay2+":53"), socket(t, s.pod, "", overlay2+":53")} {
		conn.Write([]byte("clear"))
	}
	said(t, socket(t, s.host, "", "192.0.2.1:53"), "last")
	said(t, socket(t, s.pod, "", "192.0.2.1:53"), "last")
	for range 2 {
		datagram(t, last)
	}
	none(t, "to a pod", atPod)
	none(t, "to an overlay address", atNode)
	s.plan()
	said(t, fromPod, "again")
	if p := s.tun.receive("of a pod", to(pod2, 53)); p.payload != "again" || p.src.String() != pod1 {
		t.Errorf("%+v", p)
	}
}

// An overlay address is reached by the mesh, from this machine and from its pods: a
// neighbour that sends it packets in clear is no member, whatever source it takes.
func TestOverlayAddressesAreNotReachedInClear(t *testing.T) {
	for _, bypass := range []bool{false, true} {
		t.Run(map[bool]string{false: "closed", true: "bypass"}[bypass], func(t *testing.T) {
			s := newSite(t)
			s.in.Options.Bypass = bypass
			s.in.Health["m2"] = topology.Health{Down: true}
			s.plan()
			const own = "100.112.0.1"
			s.run("table ip services {\n chain pre { type nat hook prerouting priority dstnat; udp dport 54 dnat to 10.244.1.7:53; }\n}\n", "nft", "-f", "-")
			other := &nodeOf{t, s.world}
			other.run("ip", "route", "add", own, "via", "192.0.2.2")
			other.run("ip", "-6", "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
			s.run("", "ip", "-6", "addr", "add", "2001:db8::2/64", "dev", "eth0", "nodad")
			other.run("ip", "-6", "route", "add", "fd00:0:0:2::1", "via", "2001:db8::2")
			other.run("ip", "addr", "add", overlay2+"/32", "dev", "lo")
			at4, at6, atPod := listen(t, s.host, own+":53"), listen(t, s.host, "[fd00:0:0:2::1]:53"), listen(t, s.pod, pod1+":53")
			underlay, underlay6 := listen(t, s.host, "192.0.2.2:53"), listen(t, s.host, "[2001:db8::2]:53")
			said(t, socket(t, s.world, "", own+":53"), "clear")
			said(t, socket(t, s.world, "", own+":54"), "clear, to a service")
			said(t, socket(t, s.world, pod2+":0", own+":53"), "clear, of a peer's pod")
			said(t, socket(t, s.world, overlay2+":0", own+":53"), "clear, of a peer")
			said(t, socket(t, s.world, overlay2+":0", "192.0.2.2:53"), "clear, of a peer")
			said(t, socket(t, s.world, "", "[fd00:0:0:2::1]:53"), "clear")
			said(t, socket(t, s.world, "192.0.2.1:0", "192.0.2.2:53"), "last")
			said(t, socket(t, s.world, "", "[2001:db8::2]:53"), "last")
			for _, conn := range []net.PacketConn{underlay, underlay6} {
				if got := datagram(t, conn); got != "last" {
					t.Errorf("%q came", got)
				}
			}
			said(t, socket(t, s.host, "", own+":53"), "of this machine")
			if got := datagram(t, at4); got != "of this machine" {
				t.Errorf("%q came", got)
			}
			said(t, socket(t, s.pod, "", own+":53"), "of its pod")
			if got := datagram(t, at4); got != "of its pod" {
				t.Errorf("%q came", got)
			}
			s.tun.send(udp(overlay2, own, 53, "of a peer"))
			if got := datagram(t, at4); got != "of a peer" {
				t.Errorf("%q came", got)
			}
			none(t, "in clear", at6)
			none(t, "to a service", atPod)
			if bypass { // what is in clear on purpose comes, and is answered
				said(t, socket(t, s.world, pod2+":0", pod1+":53"), "in clear")
				if got := datagram(t, atPod); got != "in clear" {
					t.Errorf("%q came", got)
				}
			}
		})
	}
}
