// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kernel_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/test/lab"
)

const (
	pod1, pod2, pod3 = "10.244.1.7", "10.244.2.7", "10.244.3.7"
	overlay2         = "100.112.0.2"
)

func TestPacketsOfPodsAndOfThisMachineGoIntoTheMesh(t *testing.T) {
	s := newSite(t)
	serve(t, s.world, "10.244.2.7:80", "clear")
	begin(t, s.pod, pod2+":80")
	if p := s.tun.receive("of a pod", to(pod2, 80)); p.src.String() != pod1 || p.flags != syn || p.mss != 1368 {
		t.Errorf("of a pod: %+v", p)
	}
	begin(t, s.host, pod2+":81")
	if p := s.tun.receive("of this machine", to(pod2, 81)); p.src.String() != "100.112.0.1" || p.flags != syn || p.mss != 1368 {
		t.Errorf("of this machine: %+v", p)
	}
	begin(t, s.host, overlay2+":82")
	if p := s.tun.receive("to an overlay address", to(overlay2, 82)); p.src.String() != "100.112.0.1" || p.mss > 1368 {
		t.Errorf("to an overlay address: %+v", p)
	}
	begin(t, s.host, "[fd00:0:0:2::2]:83")
	if p := s.tun.receive("to an overlay address of IPv6", to("fd00:0:0:2::2", 83)); p.src.String() != "fd00:0:0:2::1" || p.mss > 1348 || p.mss < 1200 {
		t.Errorf("to an overlay address of IPv6: %+v", p)
	}
	s.in.Health["m2"] = topology.Health{MTU: 1300}
	s.plan()
	begin(t, s.pod, pod2+":84")
	if p := s.tun.receive("by a narrow path", to(pod2, 84)); p.mss != 1248 {
		t.Errorf("by a narrow path: %+v", p)
	}
}

// The socket of WireGuard bears a mark, and takes the underlay wherever it sends.
func TestPacketsOfTheSocketGoInClear(t *testing.T) {
	s := newSite(t)
	serve(t, s.world, "10.244.2.7:80", "clear")
	dial := func(mark int) (conn net.Conn, err error) {
		d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
			c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
			return err
		}}
		err = s.host.Do(func() error { conn, err = d.Dial("tcp", pod2+":80"); return err })
		return conn, err
	}
	conn, err := dial(0x20)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer, err := ask(conn, "hello"); answer != "clear hello" {
		t.Errorf("%q, %v", answer, err)
	}
}

func TestServicesLeadIntoTheMesh(t *testing.T) {
	s := newSite(t)
	s.run(`table ip nat {
	chain pre { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 dnat to 10.244.2.7; }
	chain out { type nat hook output priority -100; ip daddr 10.96.0.1 dnat to 10.244.2.7; }
}
`, "nft", "-f", "-")
	begin(t, s.pod, "10.96.0.1:80")
	if p := s.tun.receive("of a pod", to(pod2, 80)); p.src.String() != pod1 {
		t.Errorf("of a pod: %+v", p)
	}
	begin(t, s.host, "10.96.0.1:81")
	if p := s.tun.receive("of this machine", to(pod2, 81)); p.src.String() != "100.112.0.1" {
		t.Errorf("of this machine: %+v", p)
	}
}

func TestConnectionsOfPeersReachPodsAndThisMachine(t *testing.T) {
	for _, strict := range []string{"0", "1"} {
		t.Run("rp_filter "+strict, func(t *testing.T) {
			s := newSite(t)
			if err := s.host.Sysctl("ipv4/conf/all/rp_filter", strict); err != nil {
				t.Fatal(err)
			}
			for _, tc := range []struct {
				host *lab.Host
				addr string
			}{{s.pod, pod1}, {s.host, "100.112.0.1"}, {s.host, "10.244.1.1"}} {
				listener, err := tc.host.Listen("tcp", tc.addr+":80")
				if err != nil {
					t.Fatal(err)
				}
				for i, src := range []string{pod2, overlay2} {
					if answer := s.handshake(src, tc.addr, uint16(5000+i), 80); answer.mss > 1368 || answer.src.String() != tc.addr {
						t.Errorf("the answer of %s: %+v", tc.addr, answer)
					}
					conn, err := listener.Accept()
					if err != nil {
						t.Fatal(err)
					}
					if size := segment(t, conn); tc.host == s.pod && size != 1368 {
						t.Errorf("%s sends segments of %d", tc.addr, size)
					}
					conn.Close()
				}
			}
		})
	}
}

func TestPacketsFromNobodysSourceAreDropped(t *testing.T) {
	s := newSite(t)
	atPod, atNode := listen(t, s.pod, pod1+":53"), listen(t, s.host, "100.112.0.1:53")
	for dst, conn := range map[string]net.PacketConn{pod1: atPod, "100.112.0.1": atNode} {
		for _, src := range []string{"10.9.9.9", "192.0.2.1", pod1, "10.244.1.9"} {
			s.tun.send(udp(src, dst, 53, "from "+src))
		}
		s.tun.send(udp(pod2, dst, 53, "from a peer"))
		if got := datagram(t, conn); got != "from a peer" { // in order: the others would have come before
			t.Errorf("to %s came %q", dst, got)
		}
	}
	// A peer answers from its own address what a pod of ours has asked it in clear, and no
	// more: what it asks from there would be answered in clear.
	s.in.Members[0].Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	s.plan()
	s.tun.send(udp("192.0.2.1", pod1, 53, "from the node"))
	s.tun.send(udp("192.0.2.1", "100.112.0.1", 53, "from the node"))
	atWorld := listen(t, s.world, "192.0.2.1:4000")
	atPod.WriteTo([]byte("question"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4000})
	datagram(t, atWorld)
	s.tun.send(udp("192.0.2.1", pod1, 53, "answer"))
	if got := datagram(t, atPod); got != "answer" {
		t.Errorf("of a node came %q", got)
	}
	s.in.Members[0].Addresses = nil
	s.plan()
	// What came from the mesh does not go back into it, nor to where a peer's range is in clear.
	clear := listen(t, s.world, pod3+":53")
	s.tun.send(udp(pod2, pod3, 53, "through"))
	s.tun.send(udp(pod2, overlay2, 53, "through"))
	s.tun.send(udp(pod2, "192.0.2.1", 53, "through")) // to where this node announces nothing
	lost := packet{src: netip.MustParseAddr(pod2), dst: netip.MustParseAddr("192.0.2.1"), sport: 7, dport: 80, flags: ack, seq: 1}
	s.tun.send(tcp(lost, 1)) // of no connection
	s.tun.send(udp(pod2, "100.112.0.1", 53, "last"))
	if got := datagram(t, atNode); got != "last" {
		t.Errorf("came %q", got)
	}
	begin(t, s.host, overlay2+":99")
	if p := s.tun.receive("the last", func(p packet) bool { return p.dport == 53 || p.dport == 99 }); p.dport != 99 {
		t.Errorf("went back: %+v", p)
	}
	counts := map[string]uint64{}
	err := s.host.Do(func() error {
		all, err := s.kernel.Counts()
		for _, c := range all {
			counts[topology.Reason(c.Chain, c.Line)] += c.Packets
		}
		return err
	})
	if want := map[string]uint64{"source": 8, "transit": 0, "destination": 4, "clear": 2}; err != nil || fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("counted %v, %v, want %v", counts, err, want)
	}
	none(t, "went on in clear", clear)
}

// A policy decides about connections that peers begin, also about those that live: a change ends
// what it forbids.
func TestPolicyBetweenPeers(t *testing.T) {
	s := newSite(t)
	serve(t, s.pod, pod1+":80", "pod")
	atPod, atNode := listen(t, s.pod, pod1+":53"), listen(t, s.host, "100.112.0.1:53")
	answer := s.handshake(pod2, pod1, 6000, 80)
	p, problems := policy.Compile([]policy.Rule{
		{Name: "names", Caller: []string{"spiffe://*/node/m2"}, Destination: []string{"10.244.1.0/24:53"}},
		{Name: "this-machine", Source: []string{pod3}, Destination: []string{"100.112.0.1:53"}},
	}, nil)
	if p == nil {
		t.Fatal(problems)
	}
	_, peers, _ := topology.Plan(s.in)
	var parties []policy.Party
	for _, peer := range peers {
		parties = append(parties, policy.Party{Caller: "spiffe://t/cluster/c1/node/" + peer.ID, Ranges: slices.Concat(peer.Allowed, peer.Sources)})
	}
	lowered, problems := policy.Lower("c1", parties, p)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s.in.Access = &topology.Access{Sets: lowered.Sets, Lines: lowered.Lines}
	s.plan()
	s.tun.send(udp(pod3, pod1, 53, "of another peer"))
	s.tun.send(udp(pod2, pod1, 53, "allowed"))
	if got := datagram(t, atPod); got != "allowed" {
		t.Errorf("to the pod came %q", got)
	}
	s.tun.send(udp(pod2, "100.112.0.1", 53, "of another peer"))
	s.tun.send(udp(pod3, "100.112.0.1", 53, "allowed"))
	if got := datagram(t, atNode); got != "allowed" {
		t.Errorf("to this machine came %q", got)
	}
	lives := packet{src: answer.dst, dst: answer.src, sport: 6000, dport: 80, flags: ack, seq: 1001, payload: "hello\n"}
	s.tun.send(tcp(lives, answer.seq+1))
	lives.sport, lives.flags, lives.payload = 6001, syn, ""
	s.tun.send(tcp(lives, 0))
	begin(t, s.pod, pod2+":99")
	if p := s.tun.receive("the last", func(p packet) bool { return p.payload != "" || p.dport == 6001 || p.dport == 99 }); p.dport != 99 {
		t.Errorf("a connection that it forbids is answered: %+v", p)
	}
}

// Without the link nothing goes in clear.
func TestWithoutATunnelNothingGoesInClear(t *testing.T) {
	s := newSite(t)
	serve(t, s.world, "10.244.2.7:80", "clear")
	heard := listen(t, s.world, pod2+":53")
	if err := s.tun.file.Close(); err != nil { // as kill -9 does
		t.Fatal(err)
	}
	for _, tc := range []struct {
		who    string
		host   *lab.Host
		addr   string
		within time.Duration // what this machine sends itself is lost without a word
	}{
		{"a pod", s.pod, pod2 + ":80", patience}, {"a pod", s.pod, overlay2 + ":80", patience},
		{"this machine", s.host, overlay2 + ":80", patience}, {"this machine", s.host, pod2 + ":80", time.Second},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), tc.within)
		conn, err := tc.host.DialContext(ctx, "tcp", tc.addr)
		if err == nil {
			conn.Close()
			t.Errorf("%s reaches %s in clear", tc.who, tc.addr)
		} else if ctx.Err() != nil && tc.within == patience {
			t.Errorf("%s to %s waits: %v", tc.who, tc.addr, err)
		}
		cancel()
	}
	none(t, "went in clear", heard)
	// The next start takes over what is left.
	s.tun = openTunnel(t, s.host)
	want, _, _ := topology.Plan(s.in)
	if have, err := s.Observe(); err != nil || len(plan.Diff(plan.State{}, have)) < 10 {
		t.Fatalf("nothing is left: %v, %v", have, err)
	}
	reachState(t, s.node, want)
	begin(t, s.pod, pod2+":81")
	s.tun.receive("after the next start", to(pod2, 81))
}

// With bypass a connection stays where it began, and its answers with it.
func TestBypassKeepsConnectionsWhereTheyBegan(t *testing.T) {
	s := newSite(t)
	serve(t, s.world, "10.244.2.7:80", "clear")
	serve(t, s.pod, pod1+":80", "pod")
	s.in.Options.Bypass = true
	s.in.Health["m2"] = topology.Health{Down: true}
	s.plan()
	out := s.connect(s.pod, pod2+":80", "")
	back := s.connect(s.world, pod1+":80", pod2) // the peer's, in clear
	s.in.Health["m2"] = topology.Health{}
	s.plan()
	for conn, want := range map[net.Conn]string{out: "clear later", back: "pod later"} {
		if answer, err := ask(conn, "later"); answer != want {
			t.Errorf("%q, %v, want %q", answer, err, want)
		}
	}
	begin(t, s.pod, pod2+":81")
	if p := s.tun.receive("a new connection", to(pod2, 81)); p.src.String() != pod1 {
		t.Errorf("%+v", p)
	}

	// What began in the mesh stays there, and waits.
	answer := s.handshake(pod2, pod1, 6000, 80)
	s.in.Health["m2"] = topology.Health{Down: true}
	s.plan()
	p := packet{src: answer.dst, dst: answer.src, sport: 6000, dport: 80, flags: ack, seq: 1001, payload: "hello\n"}
	s.tun.send(tcp(p, answer.seq+1))
	got := s.tun.receive("the answer by the mesh", func(q packet) bool { return q.dport == 6000 && q.payload != "" })
	if got.payload != "pod hello\n" {
		t.Errorf("%+v", got)
	}
	conn := s.connect(s.pod, pod2+":80", "")
	if answer, err := ask(conn, "new"); answer != "clear new" {
		t.Errorf("a new connection: %q, %v", answer, err)
	}
}

// Where the marks of what comes by the link do not count, strict checks drop it: the
// test above would notice.
func TestStrictChecksDropWithoutTheMark(t *testing.T) {
	s := newSite(t)
	for path, value := range map[string]string{"all/rp_filter": "1", "tombolo0/src_valid_mark": "0"} {
		if err := s.host.Sysctl("ipv4/conf/"+path, value); err != nil {
			t.Fatal(err)
		}
	}
	conn := listen(t, s.pod, pod1+":53")
	s.tun.send(udp(pod2, pod1, 53, "dropped"))
	s.plan() // puts the setting back
	s.tun.send(udp(pod2, pod1, 53, "comes"))
	if got := datagram(t, conn); got != "comes" {
		t.Errorf("%q came", got)
	}
}
