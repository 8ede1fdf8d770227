// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/kerneltest"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

const pod16, pod26 = "fd10:1::7", "fd10:2::7"

// withIPv6 gives the site's machines addresses of IPv6 too.
func (s *site) withIPv6() {
	s.t.Helper()
	for path, value := range map[string]string{"all/forwarding": "1", "all/accept_dad": "0", "default/accept_dad": "0"} {
		if err := s.host.Sysctl("ipv6/conf/"+path, value); err != nil {
			s.t.Fatal(err)
		}
	}
	pod, world := &nodeOf{s.t, s.pod}, &nodeOf{s.t, s.world}
	at := &nodeOf{s.t, s.host}
	for _, c := range []struct {
		on   *nodeOf
		args string
	}{
		{at, "addr add fd10:1::1/64 dev cni0 nodad"}, {pod, "addr add fd10:1::7/64 dev eth0 nodad"}, {pod, "-6 route add default via fd10:1::1"},
		{at, "addr add 2001:db8::2/64 dev eth0 nodad"}, {world, "addr add 2001:db8::1/64 dev eth0 nodad"},
		{at, "-6 route add default via 2001:db8::1"}, {world, "addr add fd10:2::7/128 dev lo nodad"}, {world, "-6 route add fd10:1::/64 via 2001:db8::2"},
	} {
		c.on.run(append([]string{"ip"}, strings.Fields(c.args)...)...)
	}
	s.in.Self.Ranges = append(s.in.Self.Ranges, netip.MustParsePrefix("fd10:1::/64"))
	s.in.Members[0].Ranges = append(s.in.Members[0].Ranges, netip.MustParsePrefix("fd10:2::/64"))
	s.plan()
}

// udp6 makes a packet of IPv6.
func udp6(src, dst string, port uint16, payload string) []byte {
	body := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(body, 4000)
	binary.BigEndian.PutUint16(body[2:], port)
	binary.BigEndian.PutUint16(body[4:], uint16(8+len(payload)))
	body = append(body, payload...)
	h := make([]byte, 8, 40+len(body))
	h[0], h[6], h[7] = 0x60, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	h = append(append(h, netip.MustParseAddr(src).AsSlice()...), netip.MustParseAddr(dst).AsSlice()...)
	pseudo := append(append([]byte{}, h[8:]...), 0, 0, byte(len(body)>>8), byte(len(body)), 0, 0, 0, unix.IPPROTO_UDP)
	binary.BigEndian.PutUint16(body[6:], checksum(append(pseudo, body...)))
	return append(h, body...)
}

func TestIPv6GoesTheSameWay(t *testing.T) {
	s := newSite(t)
	s.withIPv6()
	begin(t, s.pod, "["+pod26+"]:80")
	if p := s.tun.receive("of a pod", to(pod26, 80)); p.src.String() != pod16 || p.flags != syn || p.mss != 1348 {
		t.Errorf("of a pod: %+v", p)
	}
	begin(t, s.host, "["+pod26+"]:81")
	if p := s.tun.receive("of this machine", to(pod26, 81)); p.src.String() != "fd00:0:0:2::1" || p.mss != 1348 {
		t.Errorf("of this machine: %+v", p)
	}
	atPod, atNode := listen(t, s.pod, "["+pod16+"]:53"), listen(t, s.host, "[fd00:0:0:2::1]:53")
	for dst, conn := range map[string]net.PacketConn{pod16: atPod, "fd00:0:0:2::1": atNode} {
		for _, src := range []string{"fd99::1", "2001:db8::1", pod16} {
			s.tun.send(udp6(src, dst, 53, "from "+src))
		}
		s.tun.send(udp6(pod26, dst, 53, "from a peer"))
		if got := datagram(t, conn); got != "from a peer" {
			t.Errorf("to %s came %q", dst, got)
		}
	}
	serve(t, s.world, "["+pod26+"]:80", "clear")
	if err := s.tun.file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"[" + pod26 + "]:80", "[fd00:0:0:2::2]:80"} {
		if conn, err := s.pod.DialContext(t.Context(), "tcp", addr); err == nil {
			conn.Close()
			t.Errorf("%s is reached in clear", addr)
		}
	}
}

// Where IPv6 is off for new links, ours has it.
func TestIPv6ThatIsOffForNewLinks(t *testing.T) {
	n := alone(t)
	if err := n.host.Sysctl("ipv6/conf/default/disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	if err := n.Make(kerneltest.Link); err != nil {
		t.Fatal(err)
	}
	reachState(t, n, kerneltest.State(1))
}

// Thousands of rules come into force at once, and are read again.
func TestAPolicyOfThousandsOfRules(t *testing.T) {
	s := newSite(t)
	access := &topology.Access{}
	for i := range 4096 {
		access.Lines = append(access.Lines, plan.Line{plan.If(plan.KeyProto, "6"), plan.If(plan.KeyPort, fmt.Sprint(i+1)), plan.Do("accept")})
	}
	before := s.kernel.Sent()
	s.in.Access = access
	s.plan()
	if sent := s.kernel.Sent(); sent.Transactions != before.Transactions+1 {
		t.Errorf("%+v after %+v: not at once", sent, before)
	}
	s.in.Access = nil
	s.plan()
}
